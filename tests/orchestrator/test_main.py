"""The command line from the outside: exit codes, one clear line per mistake, nothing half-created."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.main import main

STUDY = """\
name: command-line
model: {variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2}
data: {corpus: phop, seq_len: 16, eval_sequences: 8}
train: {tokens: 512, batch_size: 4, precision: float32, compile: off, evaluations: 1}
search:
  num_loops: {choices: [1, 2]}
  window: {choices: [4, 8], when: {num_loops: ">1"}}
objectives:
  - {metric: tasks/phop/accuracy, direction: maximize}
  - {metric: kv/bytes_per_sequence, direction: minimize}
sampler: {name: grid}
budget: {configurations: 3}
benchmark: {model: {d_model: 32, num_heads: 2}, context: 16, generate: 2, repeats: 1, precision: float32}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return tmp_path / "home"


def study_file(folder: Path, text: str = STUDY) -> str:
    path = folder / "study.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a refused command prints."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    line: str = captured.err.strip()
    return line


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from orchestrator.main import main; main(['--help']); "
        "heavy = ('torch', 'ray', 'mlflow', 'optuna', 'streamlit', 'pandas', 'numpy'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == "[]"
    assert "doctor" in printed


def test_reading_a_spec_imports_neither_torch_nor_ray_nor_mlflow(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from orchestrator.spec import load_spec; "
        f"load_spec(Path({study_file(tmp_path)!r})); "
        "print([name for name in ('torch', 'ray', 'mlflow', 'optuna') if name in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


def test_a_study_runs_and_every_command_reads_it(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", study_file(tmp_path), "--backend", "local", "--quiet"]) == 0
    assert "every point tried" in capsys.readouterr().out
    assert main(["export", "command-line", "--format", "json"]) == 0
    trials = json.loads(capsys.readouterr().out)
    assert [
        set(trial) >= {"number", "state", "params", "values", "metrics", "seed", "attempts", "failure"}
        for trial in trials
    ]
    assert [(trial["number"], trial["state"], trial["failure"]) for trial in trials] == [
        (number, "COMPLETE", None) for number in range(3)
    ]
    for trial in trials:
        assert trial["values"] == [trial["metrics"]["tasks/phop/accuracy"], trial["metrics"]["kv/bytes_per_sequence"]]
    assert main(["status", "command-line", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["COMPLETE"] == 3
    assert main(["list", "--json"]) == 0
    assert [study["name"] for study in json.loads(capsys.readouterr().out)] == ["command-line"]
    assert main(["compare", "command-line/0", "command-line/2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differing_knobs"]["num_loops"] == [1, 2]
    for file_format in ("csv", "parquet"):
        output = tmp_path / f"trials.{file_format}"
        assert main(["export", "command-line", "--format", file_format, "--output", str(output)]) == 0
        assert output.stat().st_size > 100
    assert main(["run", study_file(tmp_path), "--backend", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["COMPLETE"] == 3
    assert (home / "studies" / "command-line" / "trials" / "0" / "attempt-1" / "checkpoint" / "config.json").is_file()


def test_the_same_study_twice_in_new_homes_gives_identical_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real training on the local backend, twice: equal to the last bit."""
    trained = []
    for name in ("one", "two"):
        monkeypatch.setenv("PLT_HOME", str(tmp_path / name))
        assert main(["run", study_file(tmp_path), "--backend", "local", "--quiet"]) == 0
        capsys.readouterr()
        assert main(["export", "command-line", "--format", "json"]) == 0
        exported = json.loads(capsys.readouterr().out)
        trained.append([(trial["number"], trial["params"], trial["seed"], trial["values"]) for trial in exported])
    assert trained[0] == trained[1]


def test_a_spec_mistake_names_file_and_line_and_creates_nothing(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = study_file(tmp_path, STUDY.replace("  num_loops: {choices: [1, 2]}", "  num_lops: {choices: [1, 2]}"))
    line = refused(["run", path], capsys)
    assert f"{path}:6" in line
    assert "num_lops" in line
    assert "num_loops" in line
    assert not home.exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("window: {choices: [4, 8]", "window: {choices: [4, 800]", "800"),
        ("window: {choices: [4, 8]", "window: {low: 8, high: 4}  #", "low"),
        ("budget: {configurations: 3}", "budget: {configurations: 0}", "configurations"),
        ("metric: tasks/phop/accuracy", "metric: val/bits_per_bite", "val/bits_per_bite"),
        ("corpus: phop", "corpus: wikipedia", "wikipedia"),
    ],
)
def test_bad_values_are_one_line_each(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, words: str
) -> None:
    line = refused(["run", study_file(tmp_path, STUDY.replace(old, new))], capsys)
    assert words in line
    assert ".yaml:" in line
    assert not home.exists()


def test_a_missing_file_and_an_unknown_study_say_so(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "nowhere.yaml" in refused(["run", str(tmp_path / "nowhere.yaml")], capsys)
    for arguments in (["status", "nothing"], ["export", "nothing"], ["compare", "nothing/1"], ["status", "../etc"]):
        assert len(refused(arguments, capsys).splitlines()) == 1
    assert "STUDY/NUMBER" in refused(["compare", "nothing"], capsys)
    assert not home.exists()


def test_a_corpus_that_cannot_be_read_is_refused_before_anything_is_created(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = STUDY.replace("corpus: phop", f"corpus: 'files:{tmp_path}/none/*.txt'").replace(
        "tasks/phop/accuracy, direction: maximize", "val/bits_per_byte, direction: minimize"
    )
    line = refused(["run", study_file(tmp_path, text), "--backend", "local"], capsys)
    assert "none/*.txt" in line
    assert not (home / "studies" / "command-line").exists()


def test_a_home_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "file" / "home"))
    line = refused(["run", study_file(tmp_path), "--backend", "local"], capsys)
    assert "PLT_HOME" in line


def test_another_study_under_the_same_name_is_refused_and_the_old_one_untouched(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", study_file(tmp_path), "--backend", "local", "--quiet"]) == 0
    capsys.readouterr()
    before = (home / "studies" / "command-line" / "optuna.journal").read_bytes()
    other = study_file(tmp_path, STUDY.replace("direction: maximize", "direction: minimize"))
    line = refused(["run", other, "--backend", "local", "--quiet"], capsys)
    assert "objectives" in line
    assert "--fork" in line
    assert (home / "studies" / "command-line" / "optuna.journal").read_bytes() == before


@pytest.mark.usefixtures("home")
def test_resume_needs_no_study_file_and_can_raise_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = study_file(tmp_path, STUDY.replace("configurations: 3", "configurations: 1"))
    assert main(["run", smaller, "--backend", "local", "--quiet"]) == 0
    assert main(["resume", "command-line", "--backend", "local", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["resume", "command-line", "--configurations", "3", "--backend", "local", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["budget"], summary["trials"]["COMPLETE"]) == (3, 3)


@pytest.mark.usefixtures("home")
def test_a_fork_takes_over_what_answers_the_new_question(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", study_file(tmp_path), "--backend", "local", "--quiet"]) == 0
    capsys.readouterr()
    other = study_file(tmp_path, STUDY.replace("  - {metric: kv/bytes_per_sequence, direction: minimize}\n", ""))
    assert main(["run", other, "--fork", "command-line-2", "--backend", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["COMPLETE"] == 3
    assert main(["export", "command-line-2"]) == 0
    trials = json.loads(capsys.readouterr().out)
    assert [trial["forked_from"] for trial in trials] == [f"command-line/{number}" for number in range(3)]
    assert refused(["run", other, "--fork", "command-line-2", "--backend", "local"], capsys).count("exists already")


@pytest.mark.usefixtures("home")
def test_asking_a_study_that_nobody_drives_is_refused_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("stop", "pause", "resume"):
        assert "there is no study" in refused([command, "nothing"], capsys)
    assert "there is no study" in refused(["retry", "nothing", "--failed"], capsys)
    assert main(["run", study_file(tmp_path), "--backend", "local", "--quiet"]) == 0
    capsys.readouterr()
    for command in ("stop", "pause"):
        assert "plt resume command-line" in refused([command, "command-line"], capsys)
    assert "no failed trial" in refused(["retry", "command-line", "--failed"], capsys)
    assert "Missing option '--failed'" in refused(["retry", "command-line"], capsys)


@pytest.mark.usefixtures("home")
def test_a_running_study_is_asked_from_another_process(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Paused, continued and stopped from outside while it really trains, then resumed to its end."""
    longer = study_file(tmp_path, STUDY.replace("tokens: 512", "tokens: 20k"))
    arguments = [sys.executable, "-m", "orchestrator.main", "run", longer, "--backend", "local", "--quiet"]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as driver:
        while main(["pause", "command-line"]) != 0 and driver.poll() is None:
            capsys.readouterr()
        assert "paused, no device is held" in capsys.readouterr().out
        assert main(["status", "command-line", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["state"] == "PAUSED"
        assert main(["resume", "command-line"]) == 0
        assert "going on" in capsys.readouterr().out
        assert main(["stop", "command-line"]) == 0
        assert "stopping" in capsys.readouterr().out
        assert driver.wait(timeout=60) == 130
    assert main(["resume", "command-line", "--backend", "local", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["trials"]["COMPLETE"] == 3
