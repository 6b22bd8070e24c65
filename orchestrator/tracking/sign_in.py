"""Whether an MLflow server knows whoever runs a study, and lets them write: asked before a study starts.

MLflow takes seconds to import, so the server is asked without it, with the credentials that MLflow would use: of the
address, of `MLFLOW_TRACKING_USERNAME` and `_PASSWORD`, `MLFLOW_TRACKING_TOKEN`, MLflow's own credentials file, or
`.netrc`. Only a clear no is one: what is said to a server that is down, slow or broken waits in the study's folder.
Nothing is made on the server: the requests lack what they need, and are refused for that by a server that would have
allowed them.
"""

import configparser
import os
from pathlib import Path
from typing import Any

from orchestrator.errors import ServiceError
from orchestrator.home import Home
from orchestrator.tracking.mlflow_connection import MAY_NOT, UNKNOWN_USER, is_server

_API = "/api/2.0/mlflow/experiments/"
_SECONDS = 5.0
_OTHER_WAYS = ("MLFLOW_TRACKING_AUTH", "MLFLOW_TRACKING_AWS_SIGV4")
"""Plugins that sign requests in ways of their own."""


def refuse_sign_in(home: Home, study: str) -> None:
    """Raise a `ServiceError` when the home's MLflow server does not know this user, or lets them not write runs."""
    if not is_server(home.mlflow_uri) or any(os.environ.get(name) for name in _OTHER_WAYS):
        return
    import requests

    try:
        with requests.Session() as session:
            _sign(session)
            _refuse(home, session.post(_address(home, "create"), json={}, timeout=_SECONDS))
            name = {"experiment_name": study}
            found = session.get(_address(home, "get-by-name"), params=name, timeout=_SECONDS)
            _refuse(home, found)
            if found.status_code == requests.codes.ok:
                number = {"experiment_id": found.json()["experiment"]["experiment_id"]}
                tag = session.post(_address(home, "set-experiment-tag"), json=number, timeout=_SECONDS)
                _refuse(home, tag)
    except (requests.RequestException, ValueError, KeyError):
        return  # whatever it is, it is no clear no


def _address(home: Home, what: str) -> str:
    return home.mlflow_uri.rstrip("/") + _API + what


def _sign(session: Any) -> None:
    user, password = (_variable(name) for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"))
    if user and password:
        session.auth = (user, password)
    elif token := os.environ.get("MLFLOW_TRACKING_TOKEN"):
        session.auth = _Token(token)


class _Token:
    """Signs requests; `requests` would prefer `.netrc` to a mere header."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: Any) -> Any:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def _variable(name: str) -> str | None:
    """From the environment, or from MLflow's own file."""
    file = configparser.ConfigParser()
    try:
        file.read(Path("~/.mlflow/credentials").expanduser())
    except configparser.Error:
        return os.environ.get(name)
    return os.environ.get(name) or file.get("mlflow", name.lower(), fallback=None)


def _refuse(home: Home, answer: Any) -> None:
    why = {401: UNKNOWN_USER, 403: MAY_NOT}.get(answer.status_code)
    if why is not None:
        raise ServiceError(f"MLflow at {home.shown_mlflow_uri} cannot be used: {why}")
