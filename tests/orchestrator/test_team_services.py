"""A team's services under the real command line: PostgreSQL for studies and MLflow's server beside it, both killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from mlflow import MlflowClient

from orchestrator.home import Home
from orchestrator.records import StudyRecord, StudyState, TrialState
from orchestrator.studies import list_studies, read_study
from tests.services import MlflowServer, Postgres

STUDY = """\
name: NAME
model: {variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}
data: {corpus: phop, seq_len: 16, eval_sequences: 8}
train: {tokens: TOKENS, batch_size: 4, precision: float32, compile: off, evaluations: 4}
search:
  lr: {choices: [0.001, 0.002, 0.003, 0.004, 0.005, 0.006]}
objectives:
  - {metric: tasks/phop/accuracy, direction: maximize}
sampler: {name: grid}
budget: {configurations: COUNT}
"""


def write_study(folder: Path, name: str, count: int, tokens: int = 1024) -> Path:
    path = folder / f"{name}.yaml"
    text = STUDY.replace("NAME", name).replace("COUNT", str(count)).replace("TOKENS", str(tokens))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def mlflow_server(postgres: Postgres, tmp_path: Path) -> Iterator[MlflowServer]:
    """On databases of the same PostgreSQL."""
    name = f"mlflow_{os.getpid()}"
    postgres.make(name)
    postgres.make(f"{name}_users")
    scheme = "postgresql+psycopg"
    server = MlflowServer(
        tmp_path / "server", postgres.with_password(name, scheme), postgres.with_password(f"{name}_users", scheme)
    )
    yield server
    server.end()


class Plt:
    """Runs `plt` in one home, with a team's storage."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._folder, self._runs = folder, 0
        unsigned = {name: value for name, value in os.environ.items() if not name.startswith("MLFLOW_TRACKING")}
        home = {"PLT_HOME": str(folder / "home"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "OMP_NUM_THREADS": "1"}
        self._environment = {**unsigned, **home, **variables}

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Its output is in `said`."""
        self._runs += 1
        with (self._folder / f"plt-{self._runs}.txt").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "orchestrator.main", *arguments],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __call__(self, *arguments: str) -> tuple[int, str]:
        """Exit code, and what it printed."""
        return self.start(*arguments).wait(200), self.said()

    def said(self) -> str:
        """What the last one printed so far."""
        return (self._folder / f"plt-{self._runs}.txt").read_text(encoding="utf-8")


def wait_until(happened: Callable[[], bool], what: Callable[[], str]) -> None:
    until = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < until, what()
        time.sleep(0.05)


@pytest.mark.slow
def test_a_study_outlives_the_death_of_its_services(
    postgres: Postgres, mlflow_server: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL dies under a study, and with it MLflow's server; both die again when they are back."""
    monkeypatch.setenv("PLT_STORAGE", postgres.make("team"))
    monkeypatch.setenv("PGPASSWORD", Postgres.PASSWORD)
    home, count = Home(tmp_path / "home"), 6
    plt = Plt(tmp_path, mlflow_server.variables)

    def finished() -> int:
        return sum(trial.state.finished for trial in read_study(home, "team").trials) if list_studies(home) else 0

    driver = plt.start("run", str(write_study(tmp_path, "team", count, tokens=16384)), "--backend", "local")
    for wanted in (1, 3):
        wait_until(lambda: finished() >= wanted or driver.poll() is not None, plt.said)  # noqa: B023
        assert driver.poll() is None, plt.said()
        postgres.kill()
        mlflow_server.kill()
        if wanted == 1:
            wait_until(lambda: "paused; see that it runs" in plt.said() or driver.poll() is not None, plt.said)
            assert driver.poll() is None, plt.said()
        postgres.start()
        mlflow_server.launch()
    mlflow_server.wait()
    assert driver.wait(120) == 0, plt.said()
    assert "Connection refused): paused; see that it runs and can be reached from here" in plt.said()
    if home.spool("team").exists():  # the study ended sooner than MLflow's server was there again
        assert plt("resume", "team", "--backend", "local")[0] == 0
    assert_whole(read_study(home, "team"), count)
    for name, value in mlflow_server.variables.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient()
    experiment = client.get_experiment_by_name("team")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"}
    trials = Counter(run.data.tags.get("plt.trial", "the study's") for run in runs)
    assert trials == Counter(["the study's", *map(str, range(count))])
    record, steps = read_study(home, "team"), set()
    for run in runs:
        if (number := run.data.tags.get("plt.trial")) is not None:
            metrics = dict(record.trials[int(number)].metrics)
            assert {name: run.data.metrics.get(name) for name in metrics} == metrics
            points = {(point.step, point.value) for point in client.get_metric_history(run.info.run_id, "train/loss")}
            steps.add(tuple(sorted(step for step, _ in points)))
    (curve,) = steps  # the same for all: no gap, and no step twice with another value
    assert curve[-1] == 256
    assert len(curve) == len(set(curve)) == 20
    assert not home.spool("team").exists()


def assert_whole(record: StudyRecord, count: int) -> None:
    """Every configuration once, none left."""
    assert record.state is StudyState.COMPLETE
    assert [trial.state for trial in record.trials] == [TrialState.COMPLETE] * count
    assert len({(trial.configuration, trial.seed) for trial in record.trials}) == count
    assert [len(trial.attempts) for trial in record.trials] == [1] * count
    assert record.driver is None


@pytest.mark.slow
def test_a_driver_that_was_cut_off_stops_when_it_comes_back_to_a_study_that_another_drives(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is frozen and its session ended, as of a host that lost its network; the other host has folders of its own."""
    monkeypatch.setenv("PLT_STORAGE", postgres.make("split"))
    monkeypatch.setenv("PGPASSWORD", Postgres.PASSWORD)
    hosts = [Plt(tmp_path / name, {"PLT_HOME": str(tmp_path / name / "home")}) for name in ("a", "b")]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    home, count = Home(tmp_path / "b" / "home"), 4
    first = hosts[0].start("run", str(write_study(tmp_path, "split", count, tokens=8192)), "--backend", "local")
    try:
        wait_until(
            lambda: (
                list_studies(home) != [] and any(trial.state.finished for trial in read_study(home, "split").trials)
            ),
            hosts[0].said,
        )
        first.send_signal(signal.SIGSTOP)
        before = read_study(home, "split")
        assert before.driver is not None
        assert before.driver.endswith(f":{first.pid}"), "also seen from the other host"
        code, said = hosts[1]("run", str(tmp_path / "split.yaml"), "--backend", "local")
        assert (code, f"split is being driven by {before.driver}" in said) == (2, True), said
        with postgres.connect("split") as connection:
            connection.execute(
                "select pg_terminate_backend(pid, 10000) from pg_stat_activity where pid <> pg_backend_pid()"
            )
        assert hosts[1]("resume", "split", "--backend", "local")[0] == 0, hosts[1].said()
        whole = read_study(home, "split")
        first.send_signal(signal.SIGCONT)
        assert first.wait(120) == 2, hosts[0].said()
    finally:
        first.kill()
    (line,) = [line for line in hosts[0].said().splitlines() if line.startswith("plt:")]
    assert "study split was taken over by" in line
    assert "Traceback" not in hosts[0].said()
    assert whole.state is StudyState.COMPLETE
    assert read_study(home, "split") == whole, "and wrote nothing"
    assert [trial.state for trial in whole.trials] == [TrialState.COMPLETE] * count
    kept = [trial for trial in before.trials if trial.state.finished]
    assert kept == [whole.trials[trial.number] for trial in kept]


@pytest.mark.slow
@pytest.mark.parametrize("storage", ["file", "database"])
def test_sixteen_may_begin_at_once_where_nothing_is_yet(
    storage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """No folder, no table. Each costs processor time for half a minute, so CI begins in a database."""
    if storage == "file" and not os.environ.get("PLT_FAULT_ROUNDS"):
        pytest.skip("set PLT_FAULT_ROUNDS for the longer tests")
    if storage == "database":
        monkeypatch.setenv("PLT_STORAGE", request.getfixturevalue("database"))
    submitters = []
    for number in range(16):
        folder = tmp_path / str(number)
        folder.mkdir()
        one = Plt(folder, {"PLT_HOME": str(tmp_path / "home")})
        file = write_study(folder, f"study-{number:02}", 1, tokens=64)
        submitters.append((one, one.start("run", str(file), "--backend", "local")))
    for one, process in submitters:
        assert process.wait(250) == 0, one.said()
        assert "plt:" not in one.said()
    home = Home(tmp_path / "home")
    assert list_studies(home) == [f"study-{number:02}" for number in range(16)]
    for name in list_studies(home):
        assert_whole(read_study(home, name), 1)
        assert not home.spool(name).exists()
