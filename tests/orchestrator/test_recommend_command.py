"""A study from the command line to its loop tables, recommendation and report."""

import json
from pathlib import Path

import mlflow
import pytest

from orchestrator.home import Home
from orchestrator.loop_table import by_item, by_layer_and_head, from_csv, read_table, to_csv
from orchestrator.main import main
from orchestrator.studies import read_study
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from workers.protocol import LoopValue

STUDY = """\
name: loops
model: {variant: plt, d_model: 16, num_layers: 2, num_heads: 2, num_kv_heads: 2}
data: {corpus: phop, seq_len: 16, eval_sequences: 8}
train: {tokens: 512, batch_size: 4, precision: float32, compile: off, evaluations: 1}
search:
  num_loops: {choices: [1, 2]}
  window: {choices: [4], when: {num_loops: ">1"}}
objectives: [{metric: tasks/phop/accuracy, direction: maximize}]
seeds: [0, 1]
replicate: all
sampler: {name: grid}
budget: {configurations: 2}
diagnostics: {sequences: 6}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PLT_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return Home(tmp_path / "home")


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_study_leaves_loop_tables_a_recommendation_and_a_report(
    home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)
    assert main(["run", str(tmp_path / "study.yaml"), "--backend", "local", "--quiet"]) == 0
    capsys.readouterr()
    trials = read_study(home, "loops").trials
    assert len(trials) == 4
    for trial in trials:
        table, loops = read_table(home.loop_table("loops", trial.number)), trial.params["num_loops"]
        whole = {v[:2]: v.value for v in table if (v.layer, v.head, v.item) == (None, None, None)}
        assert {f"loops/{loop}/{name}": value for (name, loop), value in whole.items()} == {
            name: value for name, value in trial.metrics.items() if name.startswith("loops/")
        }
        assert f"loops/{loops}/step_size" in trial.metrics
        assert len(by_item(table, "lens_loss", loops)) == 6
        assert trial.attempts[-1].info["diagnostics"]["sequences"] == 6
        if loops == 2:
            assert [len(row) for row in by_layer_and_head(table, "global_share", 2)] == [2, 2]
    _artifacts_are_the_tables(home)
    assert main(["recommend", "loops", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["num_loops"] in (1, 2)
    assert {one["membership"] for one in said["front"].values()} <= {"front", "dominated", "undecided"}
    assert len(said["front"]) == 2
    assert main(["recommend", "loops", "--where", "model/parameters <= 1B"]) == 0
    assert "loops: take R=" in capsys.readouterr().out
    assert main(["report", "loops"]) == 0
    assert (tmp_path / "loops.html").read_text().startswith("<!DOCTYPE html>")
    assert main(["report", "loops", "--out", "answer.md"]) == 0
    assert list(tmp_path.glob("answer-*.svg"))
    capsys.readouterr()
    before = set(tmp_path.iterdir())
    assert "must end in .html or .md" in refused(["report", "loops", "--out", "answer.pdf"], capsys)
    assert "cannot write" in refused(["report", "loops", "--out", "nowhere/answer.html"], capsys)
    assert "known are" in refused(["report", "loops", "--where", "speed <= 3"], capsys)
    assert "worth is -1.0" in refused(["recommend", "loops", "--worth", "-1"], capsys)
    assert "nowhere" in refused(["recommend", "nowhere"], capsys)
    assert set(tmp_path.iterdir()) == before


def _artifacts_are_the_tables(home: Home) -> None:
    """In MLflow, and again after a run was lost and made anew from the record."""
    tracker = MlflowTracker(home, "loops")
    try:
        runs = tracker.runs()
        mlflow.MlflowClient(home.mlflow_uri).delete_run(runs[0].run_id)
        tracker.start_study(read_study(home, "loops"))
        tracker.reconcile(read_study(home, "loops"))
        for run in tracker.runs():
            assert run.number is not None
            path = mlflow.artifacts.download_artifacts(
                run_id=run.run_id, artifact_path="loops.csv", tracking_uri=home.mlflow_uri
            )
            assert Path(path).read_text() == home.loop_table("loops", run.number).read_text()
        tracker.finish_study(read_study(home, "loops"))
    finally:
        tracker.close()


def test_a_table_is_read_as_it_was_written() -> None:
    values = [LoopValue("step_size", 1, None, None, None, 1 / 3), LoopValue("global_share", 2, 0, 1, None, 1e-300)]
    assert from_csv(to_csv(values)) == values
    with pytest.raises(ValueError, match="no table of loop diagnostics"):
        from_csv("a,b\n1,2\n")


def test_diagnostics_can_be_left_out(home: Home, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(
        STUDY.replace("sequences: 6", "sequences: 0").replace("seeds: [0, 1]", "seeds: [0]")
    )
    assert main(["run", str(tmp_path / "study.yaml"), "--backend", "local", "--quiet"]) == 0
    for trial in read_study(home, "loops").trials:
        assert not [name for name in trial.metrics if name.startswith("loops/")]
        assert not home.loop_table("loops", trial.number).exists()
