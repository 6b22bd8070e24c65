"""How long the dashboard's pages take over a large study, beside the MLflow UI's and optuna-dashboard's own calls.

    python benchmarks/dashboard.py [--trials 10000] [--mlflow-runs 2000] [--repeats 5] [--memory-minutes 0]
                                   [--sessions 50] [--json FILE]

The study has 12 searched parameters, 8 metrics and one configuration per trial; its journal has the five entries per
trial that a driver writes. Times are a page's whole script on the server, through Streamlit's AppTest in this process:

    first view       nothing read yet: the journal is read, grouped, drawn
    refresh          one more trial has ended since the last view
    compare          200 configurations beside each other

MLflow gets its runs in SQLite and is asked without a server between, which flatters it: what its UI asks for to list
100 runs and, for a comparison, the 200 runs and their metric histories. optuna-dashboard's server application is called
without a network on the same journal: its study page polls every trial after the ones that it has.

With `--memory-minutes`, fifty sessions are open over that time at a real server, and its memory is printed every minute
(`benchmarks.dashboard_sessions`).
"""

import argparse
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
sys.path.insert(0, str(Path(__file__).parents[1]))

SPEC = """
name: large
model: {variant: plt, d_model: 64, num_layers: 2, num_heads: 4}
data: {corpus: stdlib, seq_len: 128}
search:
  num_loops: {choices: [1, 2, 3, 4]}
  window: {choices: [8, 16, 64]}
  gate_mode: {choices: [learned, 0.5]}
  lr: {low: 1e-3, high: 1e-2, log: true}
  min_lr_ratio: {low: 0.0, high: 0.5}
  warmup_ratio: {low: 0.0, high: 0.2}
  weight_decay: {low: 0.0, high: 0.5}
  beta1: {low: 0.8, high: 0.95}
  beta2: {low: 0.9, high: 0.999}
  grad_clip: {low: 0.5, high: 2.0}
  embedding_init_std: {low: 0.01, high: 0.1}
  gate_bias_init: {low: -2.0, high: 2.0}
objectives:
  - {metric: val/bits_per_byte, direction: minimize}
  - {metric: decode/ms_per_token, direction: minimize}
  - {metric: kv/bytes_per_sequence, direction: minimize}
constraints: ["decode/ms_per_token <= 14"]
sampler: {name: random}
budget: {configurations: 1000000}
benchmark: {batch_sizes: [1], context: 128}
"""
SHOWS = {
    "studies": "a table of studies",
    "study": "Front so far",
    "trade_offs": "Hypervolume",
    "compare": "Parameters",
    "loops": "Gain against cost, by loop count",
    "search": "Importance",
}
"""What is seen at the end of each page."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Large:
    """A study that grows, written as a driver writes it but for waiting for the disk."""

    def __init__(self, folder: Path) -> None:
        from orchestrator.home import Home
        from orchestrator.journal import create_journal, open_journal
        from orchestrator.search_space import SearchSpace
        from orchestrator.spec import load_spec

        self.home = Home(folder / "home").create()
        self.spec = load_spec(Path("study.yaml"), text=SPEC)
        create_journal(self.spec, self.home, BEGIN)
        self._storage = open_journal(self.home, "large")
        self._id = self._storage.get_study_id_from_name("large")
        self._space, self._random, self.count = SearchSpace(self.spec), random.Random(0), 0

    def grow(self, trials: int) -> None:
        """Add so many ended trials."""
        for _ in range(trials):
            self._add()

    def point(self) -> tuple[dict[str, Any], dict[str, float]]:
        """A random point and what was measured there."""
        draw = self._random
        params = {
            name: draw.choice(one.choices) if hasattr(one, "choices") else draw.uniform(one.low, one.high)
            for name, one in self.spec.search.items()
        }
        loops, window = params["num_loops"], params["window"]
        bits = 2.2 - 0.2 * loops**0.5 - 0.01 * window**0.5 + 20 * abs(params["lr"] - 4e-3) + draw.gauss(0, 0.02)
        latency = 4.0 + 2.2 * loops + 0.01 * window + draw.gauss(0, 0.05)
        return params, {
            "val/bits_per_byte": bits,
            "val/loss": bits * 0.7,
            "val/accuracy": 0.9 - 0.2 * bits,
            "decode/ms_per_token": latency,
            "decode/latency_ratio": latency / 6.2,
            "kv/bytes_per_sequence": 131072.0 + (loops - 1) * window * 512.0,
            "train/loss": bits * 0.72,
            "train/seconds": 30.0 * loops,
        }

    def _add(self) -> None:
        import optuna
        from optuna.trial import Trial, create_trial

        from orchestrator import stored_trial
        from orchestrator.configuration import resolve
        from orchestrator.constraints import violations
        from orchestrator.records import AttemptRecord

        params, metrics = self.point()
        began = BEGIN + timedelta(seconds=30 * self.count)
        trial_id = self._storage.create_new_trial(
            self._id,
            create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params=params,
                distributions=self._space.distributions(params),
                user_attrs=stored_trial.asked(resolve(self.spec, params), 0),
            ),
        )
        attempt = AttemptRecord(number=1, started=began)
        ended = AttemptRecord(number=1, started=began, ended=began + timedelta(seconds=30), info={"hardware": "cpu"})
        for one in (attempt, ended):
            self._storage.set_trial_user_attr(trial_id, "attempt:1", stored_trial.attempt_to_plain(one))
        done = stored_trial.result(metrics, began + timedelta(seconds=30))
        self._storage.set_trial_user_attr(trial_id, "result", done)
        study = optuna.load_study(study_name="large", storage=self._storage, sampler=optuna.samplers.RandomSampler())
        for name, amount in violations(self.spec.constraints, metrics).items():
            Trial(study, trial_id).set_constraint(name, amount)
        values = [metrics[objective.metric] for objective in self.spec.objectives]
        self._storage.set_trial_state_values(trial_id, optuna.trial.TrialState.COMPLETE, values)
        self.count += 1


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def open_page(page: str, home: Path, **address: str) -> Any:
    """The app about to show a page of a home. It has run once over an empty home, because it must know its pages."""
    from streamlit import config
    from streamlit.testing.v1 import AppTest

    import dashboard

    config.set_option("runner.magicEnabled", False)  # as `plt dashboard` does

    os.environ["PLT_HOME"] = str(home.with_name("empty"))
    app = AppTest.from_file(Path(dashboard.__file__).with_name("app.py"), default_timeout=600).run()
    for name, value in address.items():
        app.query_params[name] = value
    os.environ["PLT_HOME"] = str(home)
    return app.switch_page(f"views/{page}.py")


def refuse_another(app: Any, page: str) -> None:
    """A time is only worth something when the page was shown, whole."""
    assert not app.exception, app.exception
    shown = [element.value for element in app.subheader] or ["a table of studies"] * len(app.dataframe)
    assert SHOWS[page] in shown, (page, shown)


def measure_ours(large: Large, repeats: int) -> dict[str, float]:
    """Seconds by what was done; medians but for the first view, which there is one of."""
    from orchestrator.studies import read_study

    result: dict[str, float] = {}
    home = large.home.root
    open_page("trade_offs", home.with_name("empty")).run()  # Streamlit, pandas and Plotly are loaded; the study is not
    page = open_page("trade_offs", home, study="large")
    result["first view of the trade-offs"] = timed(page.run)
    refuse_another(page, "trade_offs")
    refreshes = []
    for _ in range(repeats):
        large.grow(1)
        refreshes.append(timed(page.run))
    result["refresh after one new trial"] = statistics.median(refreshes)
    result["refresh with nothing new"] = statistics.median(timed(page.run) for _ in range(repeats))
    picks = [trial.configuration for trial in read_study(large.home, "large").trials[:200]]
    compare = open_page("compare", home, study="large", picks="~".join(dict.fromkeys(picks)))
    result["compare 200, first"] = timed(compare.run)
    refuse_another(compare, "compare")
    result["compare 200, again"] = statistics.median(timed(compare.run) for _ in range(repeats))
    for name in ("studies", "study", "search", "loops"):
        other = open_page(name, home, study="large")
        result[f"first view of {name}"] = timed(other.run)
        refuse_another(other, name)
    return result


def measure_optuna_dashboard(large: Large, repeats: int) -> dict[str, float]:
    """Its study page's calls on a storage of its own over the same journal."""
    from optuna.storages import JournalStorage
    from optuna_dashboard._app import create_app

    from orchestrator.journal_file import JournalFile

    storage = JournalStorage(JournalFile(large.home.journal("large")))
    app = create_app(storage)

    def call(path: str, query: str = "") -> bytes:
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "SERVER_NAME": "localhost",
            "SERVER_PORT": "80",
            "wsgi.url_scheme": "http",
            "wsgi.input": BytesIO(),
            "wsgi.errors": StringIO(),
            "HTTP_ACCEPT": "application/json",
            "CONTENT_TYPE": "application/json",
        }
        statuses: list[str] = []
        body = b"".join(app(environ, lambda status, _headers, _error=None: statuses.append(status)))
        assert statuses[0].startswith("200"), (path, statuses, body[:200])
        return body

    result = {"first view of a study": timed(lambda: call("/api/studies/0", "after=0"))}
    refreshes = []
    for _ in range(repeats):
        large.grow(1)
        refreshes.append(timed(lambda: call("/api/studies/0", f"after={large.count - 1}")))
    result["refresh after one new trial"] = statistics.median(refreshes)
    return result


def measure_mlflow(large: Large, runs: int, repeats: int) -> dict[str, float]:
    """What its UI asks for, of so many runs in SQLite, without a server between."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(tracking_uri=f"sqlite:///{large.home.root / 'beside.db'}")
    experiment = client.create_experiment("large")
    ids = []
    for _ in range(runs):
        params, metrics = large.point()
        run = client.create_run(experiment)
        client.log_batch(
            run.info.run_id,
            metrics=[Metric(name, value, 0, 0) for name, value in metrics.items()],
            params=[Param(name, str(value)) for name, value in params.items()],
        )
        ids.append(run.info.run_id)

    def listing() -> None:
        client.search_runs([experiment], max_results=100)

    def everything() -> None:
        token = None
        while True:
            page = client.search_runs([experiment], max_results=1000, page_token=token)
            token = page.token
            if not token:
                return

    def compare() -> None:
        for run_id in ids[:200]:
            client.get_run(run_id)
            client.get_metric_history(run_id, "val/loss")

    listing()
    return {
        "list 100 runs": statistics.median(timed(listing) for _ in range(repeats)),
        f"read all {runs} runs": timed(everything),
        "compare 200 runs": statistics.median(timed(compare) for _ in range(min(repeats, 3))),
    }


def machine() -> dict[str, Any]:
    """Where and on what this ran."""
    from benchmarks.commit import commit

    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return {"commit": commit(), "machine": {"system": platform.platform(), "cpus": cores, "load": round(load, 2)}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--mlflow-runs", type=int, default=2_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory-minutes", type=float, default=0.0)
    parser.add_argument("--sessions", type=int, default=50, help="sessions that are open at a time")
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    chosen = parser.parse_args()
    os.fsync = lambda _handle: None  # type: ignore[assignment]  # writing the study is not what is measured
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(StringIO()):
        large = Large(Path(folder))
        seconds = timed(lambda: large.grow(chosen.trials))
        size = large.home.journal("large").stat().st_size / 2**20
        print(f"{chosen.trials:,} trials, {size:.0f} MiB of journal, written in {seconds:.0f} s", flush=True)
        result: dict[str, Any] = {**machine(), "trials": chosen.trials, "seconds": {}}
        for name, measure in (
            ("ours", lambda: measure_ours(large, chosen.repeats)),
            ("optuna-dashboard", lambda: measure_optuna_dashboard(large, chosen.repeats)),
            (f"MLflow, {chosen.mlflow_runs:,} runs", lambda: measure_mlflow(large, chosen.mlflow_runs, chosen.repeats)),
        ):
            if chosen.repeats and (chosen.mlflow_runs or not name.startswith("MLflow")):
                result["seconds"][name] = measure()
                _show(name, result["seconds"][name])
        if chosen.memory_minutes:
            from benchmarks.dashboard_sessions import measure_memory

            result["memory"] = measure_memory(large.home.root, chosen.memory_minutes, chosen.sessions)
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def _show(name: str, seconds: dict[str, float]) -> None:
    for what, took in seconds.items():
        print(f"{name:>20}  {what:<32} {1000 * took:8.0f} ms", flush=True)


if __name__ == "__main__":
    main()
