"""What anybody can see of a study: its record, its Optuna storage, its MLflow runs, its files. Nothing is written."""

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import optuna
from mlflow import MlflowClient
from mlflow.entities import Run
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial

from harness.storage import Rows, home_of
from orchestrator.home import Home
from orchestrator.journal_store import journals
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.studies import read_study

Replicate = tuple[str, int]
"""A configuration's fingerprint and a seed: what a trial's values may depend on, and nothing else."""
Curve = Mapping[int, set[float]]
"""Values by step: one for each, if all is well."""

_CLOCK = re.compile(r"seconds|tokens_per_second|latency|roofline|(^|[/_])ms")


def exact(metric: str) -> bool:
    """Whether a metric is the same whenever it is measured: nothing of it was read off a clock."""
    return _CLOCK.search(metric) is None


@dataclass(frozen=True, kw_only=True)
class Truth:
    """What an unbroken run found for one replicate."""

    state: TrialState
    stopped_at: int | None
    metrics: Mapping[str, float]
    curves: Mapping[str, Curve]
    model: str
    """Digest of the final weights; empty when there are none."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a study is."""

    home: Home
    name: str
    tracking: str
    """The address of its MLflow."""

    @classmethod
    def of(cls, home: Path, name: str, storage: str | None = None) -> "Place":
        """A study of a home, tracked there, and kept there or in a database."""
        return cls(home=home_of(home, storage), name=name, tracking=f"sqlite:///{home / 'mlflow.db'}")

    def exists(self) -> bool:
        """Whether there is a study."""
        return journals(self.home).exists(self.name)

    def record(self) -> StudyRecord:
        """The study as it stands."""
        return read_study(self.home, self.name)

    def finished(self) -> dict[int, TrialRecord]:
        """Its finished trials by number; none before there is a study."""
        if not self.exists():
            return {}
        return {trial.number: trial for trial in self.record().trials if trial.state.finished}

    def reports(self) -> int:
        """Reports that its attempts have made so far, all together."""
        outputs = self.home.study(self.name).glob("trials/*/attempt-*/output.log")
        return sum(output.read_bytes().count(b"\nstep ") + 1 for output in outputs)

    def optuna_trials(self) -> list[FrozenTrial]:
        """Its trials as Optuna itself reads them, without any of our code."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            uri = self.home.storage_uri
            kept = JournalFileBackend(str(self.home.journal(self.name))) if uri is None else Rows(uri, self.name)
            storage = JournalStorage(kept)
        return optuna.load_study(study_name=self.name, storage=storage).get_trials(deepcopy=False)

    def runs(self) -> list[Run]:
        """All its MLflow runs, the parent among them."""
        client = MlflowClient(tracking_uri=self.tracking)
        experiment = client.get_experiment_by_name(self.name)
        return [] if experiment is None else list(client.search_runs([experiment.experiment_id]))

    def curves(self, run: Run) -> dict[str, Curve]:
        """The exact metrics of a run."""
        client = MlflowClient(tracking_uri=self.tracking)
        curves: dict[str, dict[int, set[float]]] = {name: {} for name in run.data.metrics if exact(name)}
        for name, values in curves.items():
            for point in client.get_metric_history(run.info.run_id, name):
                values.setdefault(point.step, set()).add(point.value)
        return dict(curves)

    def model(self, trial: TrialRecord) -> str:
        """Digest of the weights that a trial's last attempt left."""
        if not trial.attempts:
            return ""
        folder = self.home.attempt(self.name, trial.number, trial.attempts[-1].number)
        path = folder / "checkpoint" / "model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""

    def half_written(self) -> list[Path]:
        """Files that somebody began and did not finish, and training states that nobody will go on from."""
        states = self.home.study(self.name).glob("trials/*/attempt-*/state")
        aside = (path for path in self.home.root.rglob("*") if path.name.startswith(".") or path.suffix in _ASIDE)
        return [path.relative_to(self.home.root) for path in (*aside, *states)]

    def truth(self) -> dict[Replicate, Truth]:
        """What an unbroken study found, by replicate."""
        runs = {run.data.tags.get("plt.trial"): run for run in self.runs()}
        return {
            (trial.configuration, trial.seed): Truth(
                state=trial.state,
                stopped_at=trial.stopped_at,
                metrics={name: value for name, value in trial.metrics.items() if exact(name)},
                curves=self.curves(runs[str(trial.number)]),
                model=self.model(trial),
            )
            for trial in self.record().trials
        }


_ASIDE = frozenset({".new", ".tmp", ".partial"})
