"""A corpus is part of what a study's trials mean."""

from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.corpora import corpus_fingerprints
from orchestrator.errors import ServiceError, StudyError
from orchestrator.home import Home
from orchestrator.spec import StudySpec
from orchestrator.study import Study

MakeSpec = Callable[..., StudySpec]


def test_the_fingerprint_follows_the_content_of_the_files(make_spec: MakeSpec, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"text {name} " * 2000, encoding="utf-8")
    corpus = f"files:{tmp_path}/*.txt"
    spec = make_spec(data={"seq_len": 128, "corpus": corpus})
    first = corpus_fingerprints(spec)
    assert first == corpus_fingerprints(spec)
    assert set(first) == {corpus}
    (tmp_path / "b.txt").write_text("another text " * 2000, encoding="utf-8")
    assert corpus_fingerprints(spec) != first


def test_a_corpus_without_files_is_refused_by_its_glob(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match=r"nothing/\*.py"):
        corpus_fingerprints(make_spec(data={"seq_len": 128, "corpus": f"files:{tmp_path}/nothing/*.py"}))


def test_a_study_goes_on_only_with_the_data_it_began_with(make_spec: MakeSpec, home: Home) -> None:
    Study.open(make_spec(), home, corpora={"stdlib": "aaaa"})
    Study.open(make_spec(), home, corpora={"stdlib": "aaaa"})
    Study.open(make_spec(), home)
    before = home.journal("small").read_bytes()
    with pytest.raises(StudyError, match="corpus stdlib has fingerprint bbbb, was aaaa"):
        Study.open(make_spec(), home, corpora={"stdlib": "bbbb"})
    assert home.journal("small").read_bytes() == before
