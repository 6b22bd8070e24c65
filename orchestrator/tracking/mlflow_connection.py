"""Reaching MLflow: a quiet client with bounded patience, and one experiment per study.

MLflow takes seconds to import, so it is imported on the first call and not with this module. Making the schema of a
fresh database is slow and goes wrong when two processes do it at once, so it is done under a lock file in the home.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import ServiceError
from orchestrator.home import Home, without_secrets

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Experiment

_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # what goes wrong is raised, and said by us
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
_PATIENCE = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # by default 7 with growing pauses: minutes for a dead server
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}

_TRAINING = {"mlflow.experimentKind": "custom_model_development"}
"""So that MLflow's pages open on the runs, not on traces of language model calls."""
_SIGN_IN = "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
UNKNOWN_USER = f"it does not know this user and password; {_SIGN_IN}"
MAY_NOT = f"this user may not do that there; {_SIGN_IN}"
_SIGNS = {
    "error code 401": UNKNOWN_USER,
    "error code 403": MAY_NOT,
    "Connection refused": "connection refused",
    "Read timed out": "no answer in time",
    "timed out": "no answer in time",
    "Failed to resolve": "unknown host",
    "Connection reset": "connection reset",
}
"""What the nested text of a failed HTTP request says, to what it means."""


_PASSING = frozenset(
    {"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED", "RESOURCE_EXHAUSTED", "IO_ERROR"}
)
"""Error codes of requests that may succeed later."""
_REFUSALS = frozenset({"INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST", "RESOURCE_ALREADY_EXISTS"})
"""Error codes of requests that never will, because of what they say; any other is the service's, not the request's."""


def connect(home: Home) -> "MlflowClient":
    """A client of the home's MLflow; the database of a new home is made first. Use it inside `service_errors`."""
    prepare()
    from mlflow import MlflowClient

    if is_server(home.mlflow_uri):
        return MlflowClient(tracking_uri=home.mlflow_uri)
    _require_writable(home.mlflow_uri)
    with _locked(home.mlflow_lock):
        return MlflowClient(tracking_uri=home.mlflow_uri)


def require_durable(home: Home) -> None:
    """Refuse a database that lives in memory: every connection has its own, and all of it ends with the process."""
    uri = home.mlflow_uri
    if uri.startswith("sqlite:") and (":memory:" in uri or "mode=memory" in uri or uri.rstrip("/") == "sqlite:"):
        raise ServiceError(
            f"MLFLOW_TRACKING_URI is {home.shown_mlflow_uri}, a database in memory that no other process sees and that "
            "ends with this one; use sqlite:///FILE or a server's address, or unset it to track in PLT_HOME"
        )


def _require_writable(uri: str) -> None:
    """Raise an OSError when a database file cannot be written; MLflow would try for minutes before it says so."""
    if not uri.startswith("sqlite:///"):
        return
    path = Path(uri.removeprefix("sqlite:///").partition("?")[0])
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.open("r+b").close()
    elif not os.access(path.parent, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path.parent))


def prepare() -> None:
    """Set what MLflow reads when it is imported; what the user set wins."""
    for name, value in {**_QUIET, **_PATIENCE}.items():
        os.environ.setdefault(name, value)
    logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of every retry


@contextmanager
def service_errors(home: Home) -> Iterator[None]:
    """Turn what MLflow raises inside into a ServiceError of one line, with the remedy."""
    prepare()
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise ServiceError(_unusable(home, error)) from error


def is_server(uri: str) -> bool:
    """Whether a tracking address is a server's, which keeps artifacts itself, and not a database's."""
    return uri.startswith(("http://", "https://"))


def is_new(home: Home) -> bool:
    """Whether MLflow has not been used yet: its database is a file that does not exist. Readers leave it so."""
    uri = home.mlflow_uri
    return uri.startswith("sqlite:///") and not Path(uri.removeprefix("sqlite:///")).exists()


def reason(error: Exception) -> str:
    """Why a request failed, in a few words: the first line of the error, or what a dead connection died of."""
    text = str(error)
    for sign, meaning in _SIGNS.items():
        if sign in text:
            return meaning
    lines = text.strip().splitlines()
    return without_secrets(lines[0] if lines else type(error).__name__)[:300]


def _unusable(home: Home, error: Exception) -> str:
    why = reason(error)
    if why.endswith(_SIGN_IN):
        return f"MLflow at {home.shown_mlflow_uri} cannot be used: {why}"
    remedy = (
        "start the server, or unset MLFLOW_TRACKING_URI to track in PLT_HOME"
        if is_server(home.mlflow_uri)
        else "check that the database exists and may be written to, or set MLFLOW_TRACKING_URI"
    )
    return f"MLflow at {home.shown_mlflow_uri} cannot be used ({why}); {remedy}"


def is_transient(error: Exception) -> bool:
    """Whether a failed request may succeed later: the server was silent, busy or failing, or the database locked."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    if isinstance(error, MlflowException):
        return error.error_code in _PASSING
    return isinstance(error, OSError | SQLAlchemyError)


def is_refusal(error: Exception) -> bool:
    """Whether a failed request can never succeed as it is, however well the service works."""
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import DataError, IntegrityError

    if isinstance(error, MlflowException):
        if error.error_code == "BAD_REQUEST":  # of a database that MLflow cannot use, too
            return isinstance(error.__cause__, DataError | IntegrityError | None)
        return error.error_code in _REFUSALS
    return not isinstance(error, ServiceError) and not is_transient(error)


def require_usable(client: "MlflowClient", experiment_id: str) -> None:
    """Raise a ServiceError when an experiment was deleted; MLflow keeps its name until it is restored or purged."""
    from mlflow.exceptions import MlflowException

    try:
        experiment = client.get_experiment(experiment_id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        raise ServiceError(
            f"the MLflow experiment {experiment_id} was purged; run the study again to have it made anew"
        ) from error
    if experiment.lifecycle_stage == "deleted":
        raise _deleted(experiment)


def _deleted(experiment: "Experiment") -> ServiceError:
    return ServiceError(
        f"the MLflow experiment {experiment.name!r} was deleted and MLflow keeps its name; restore it "
        f"(mlflow experiments restore --experiment-id {experiment.experiment_id}) or give the study another name"
    )


def find_experiment(client: "MlflowClient", name: str) -> "Experiment | None":
    """The study's experiment, or None when there is none yet.

    Raises:
        ServiceError: Somebody deleted it; MLflow keeps the name until it is restored or purged.
    """
    experiment = client.get_experiment_by_name(name)
    if experiment is not None and experiment.lifecycle_stage == "deleted":
        raise _deleted(experiment)
    return experiment


def open_experiment(client: "MlflowClient", home: Home, name: str) -> str:
    """The id of the study's experiment, made when there is none; safe against another process that does the same."""
    from mlflow.exceptions import MlflowException

    if (experiment := find_experiment(client, name)) is not None:
        return experiment.experiment_id
    artifacts = None if is_server(home.mlflow_uri) else (home.mlflow_artifacts / name).as_uri()
    try:
        return client.create_experiment(name, artifact_location=artifacts, tags=_TRAINING)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS" or (experiment := find_experiment(client, name)) is None:
            raise
        return experiment.experiment_id


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock file; released by the system should the process die."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
