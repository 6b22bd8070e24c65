"""Study files as text: written from plain data, and changed in one place with everything else kept."""

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import load_spec
from orchestrator.spec.edited import edited
from orchestrator.spec.written_file import to_text

EXAMPLES = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_a_written_file_reads_back_to_the_same_study(file: Path) -> None:
    spec = load_spec(file)
    text = to_text(spec.to_plain())
    assert load_spec(Path("study.yaml"), text=text) == spec
    assert text.startswith(f"name: {spec.name}\n")
    assert max(map(len, text.splitlines())) <= 130


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_one_place_changes_and_comments_stay(file: Path) -> None:
    before = file.read_text()
    text = edited(before, ("name",), "renamed")
    assert load_spec(file, text=text) == load_spec(file).model_copy(update={"name": "renamed"})
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in before.splitlines() if line.startswith("#")
    ]


def test_places_are_made_and_taken_away() -> None:
    text = edited("name: a  # mine\n", ("train", "tokens"), "4M")
    assert text == "name: a  # mine\ntrain: {tokens: 4M}\n"
    assert edited(text, ("train", "tokens"), None) == "name: a  # mine\ntrain: {}\n"
    assert edited(text, ("data", "corpus"), None) == text
    objectives = [{"metric": "val/loss", "direction": "minimize"}]
    assert edited("", ("objectives",), objectives) == "objectives:\n  - {metric: val/loss, direction: minimize}\n"
    assert edited("", ("seeds",), [0, 1]) == "seeds: [0, 1]\n"


@pytest.mark.parametrize("text", ["name: [1", "- a\n"])
def test_what_is_no_study_file_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        edited(text, ("name",), "b")


def test_errors_in_a_text_name_its_file_and_line() -> None:
    with pytest.raises(SpecError, match=r"study\.yaml:2: .*tokenz"):
        load_spec(Path("study.yaml"), text="name: a\ntrain: {tokenz: 3}\n")
