"""Every file and folder that the platform keeps, named in one place.

    PLT_HOME/
      studies/NAME/optuna.journal      the truth about the study's trials, unless PLT_STORAGE points elsewhere
      studies/NAME/driver.lock         held by the driver while it runs
      studies/NAME/live.json           what its trials are doing, for whoever watches
      studies/NAME/launch.json         the driver that the dashboard started last, if it started one
      studies/NAME/driver.log          what that driver printed
      studies/NAME/untracked.jsonl     what MLflow has not taken yet, and how much of the file it has
      studies/NAME/trials/N/attempt-K/ checkpoint of one attempt
      studies/NAME/trials/N/loops.csv  loop diagnostics of the trained model, written by the driver
      data/FINGERPRINT/                token shards
      models/NAME/                     imported checkpoints
      benchmarks/FINGERPRINT.json      decode measurements by architecture and hardware
      mlflow.db, mlartifacts/          MLflow, unless MLFLOW_TRACKING_URI points elsewhere
      mlflow.lock                      held while the database is made

`PLT_CHECKPOINTS` names a store, on any path that fsspec takes, for copies of the checkpoints: there they lie under
NAME/trials/N/attempt-K/, and machines need no common disk.

Files are written aside and renamed, so a reader never sees half of one.
"""

import fcntl
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import ServiceError, StudyError

_USER_INFO = re.compile(r"//[^/\s]+@")
_PASSWORD_KEY = re.compile(r"((?:password|passwd|token|secret)=)[^&\s]+", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def valid_name(name: str) -> bool:
    """Whether a study may be called so: a letter or digit, then up to 99 letters, digits, dots, dashes, underscores."""
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Home:
    """The folder where studies, data, measurements and tracked runs live."""

    root: Path

    @classmethod
    def from_environment(cls) -> "Home":
        """`PLT_HOME`, by default `plt-home` in the current folder. Nothing is created yet."""
        return cls(Path(os.environ.get("PLT_HOME") or "plt-home").expanduser().resolve())

    def create(self) -> "Home":
        """Make the folder and prove that it can be written to."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise ServiceError(
                f"PLT_HOME is {self.root} and cannot be written to ({error.strerror}); "
                "set PLT_HOME to a folder of yours"
            ) from error
        return self

    @property
    def data(self) -> Path:
        """Token shards, one folder per fingerprint."""
        return self.root / "data"

    def model(self, name: str) -> Path:
        """An imported checkpoint; a name that is no plain name is refused."""
        if not valid_name(name):
            raise StudyError(f"{name!r} is no model name; give --out, or a folder of plain letters and digits")
        return self.root / "models" / name

    @property
    def benchmarks(self) -> Path:
        """Decode measurements, one file per architecture, grid and hardware."""
        return self.root / "benchmarks"

    @property
    def studies(self) -> Path:
        """One folder per study."""
        return self.root / "studies"

    def study(self, name: str) -> Path:
        """A study's folder; a name that is no plain name is refused."""
        if not valid_name(name):
            raise StudyError(
                f"{name!r} is no study name; use letters, digits, dots, dashes and underscores, at most 100"
            )
        return self.studies / name

    def journal(self, name: str) -> Path:
        """The study's Optuna journal."""
        return self.study(name) / "optuna.journal"

    def driver_lock(self, name: str) -> Path:
        """Held by the study's driver; its text names host and pid."""
        return self.study(name) / "driver.lock"

    def live(self, name: str) -> Path:
        """What the study's running trials are doing, written by its driver about once a second."""
        return self.study(name) / "live.json"

    def launch(self, name: str) -> Path:
        """Which driver was started for the study from outside a terminal, and how."""
        return self.study(name) / "launch.json"

    def driver_output(self, name: str) -> Path:
        """What that driver printed."""
        return self.study(name) / "driver.log"

    def launch_lock(self, name: str) -> Path:
        """Held while a driver is started, so that nobody starts a second one."""
        return self.study(name) / "launch.lock"

    def spool(self, name: str) -> Path:
        """What the study's tracker said and MLflow has not taken yet."""
        return self.study(name) / "untracked.jsonl"

    def tracking_lock(self, name: str) -> Path:
        """Held by the process that writes the study's runs into MLflow."""
        return self.study(name) / "tracking.lock"

    def attempt(self, name: str, number: int, attempt: int) -> Path:
        """One attempt's own folder."""
        return self.study(name) / "trials" / str(number) / f"attempt-{attempt}"

    @property
    def checkpoint_store(self) -> str | None:
        """`PLT_CHECKPOINTS` when set: where copies of all studies' checkpoints go."""
        return os.environ.get("PLT_CHECKPOINTS") or None

    def stored_trials(self, name: str) -> str | None:
        """Address of a study's trials in that store; one folder for each, called by its number."""
        store = self.checkpoint_store
        return None if store is None else f"{store.rstrip('/')}/{self.study(name).name}/trials"

    def loop_table(self, name: str, number: int) -> Path:
        """A trial's loop diagnostics."""
        return self.study(name) / "trials" / str(number) / "loops.csv"

    @property
    def storage_uri(self) -> str | None:
        """`PLT_STORAGE`, a database that keeps the studies' journals; None when this home does."""
        return os.environ.get("PLT_STORAGE") or None

    @property
    def shown_storage(self) -> str:
        """Where studies are kept, for people and messages."""
        return str(self.root) if self.storage_uri is None else without_secrets(self.storage_uri)

    @property
    def mlflow_uri(self) -> str:
        """`MLFLOW_TRACKING_URI` when set, else SQLite in this home."""
        return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self.root / 'mlflow.db'}"

    @property
    def shown_mlflow_uri(self) -> str:
        """The tracking address without user and password, for people, messages and logs."""
        return without_secrets(self.mlflow_uri)

    @property
    def mlflow_artifacts(self) -> Path:
        """Where MLflow keeps artifacts when it runs on this home's SQLite."""
        return self.root / "mlartifacts"

    @property
    def mlflow_lock(self) -> Path:
        """Held while MLflow's database is made, so that two processes do not both make it."""
        return self.root / "mlflow.lock"


def without_secrets(text: str) -> str:
    """The text with user names, tokens and passwords taken out of every address in it."""
    return _PASSWORD_KEY.sub(r"\1***", _USER_INFO.sub("//***@", text))


def write_aside(path: Path, text: str) -> None:
    """Write a text file so that readers see the old text or the new one, never a part.

    It is written beside the file first, by one writer at a time; what a killed writer left there the next one takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.aside")
    with os.fdopen(_alone(aside), "r+", encoding="utf-8") as file:
        try:
            file.truncate(0)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise


def _alone(path: Path) -> int:
    """Open a file, made if missing, that nobody else has open this way and that is still at its path."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            if path.stat().st_ino == os.fstat(handle).st_ino:
                return handle
        except FileNotFoundError:
            pass  # the writer before us has put it in its place
        os.close(handle)
