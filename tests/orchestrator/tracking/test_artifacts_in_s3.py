"""MLflow's artifacts go to any place that MLflow is told to: here an S3 store that is not Amazon's."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.home import Home
from orchestrator.tracking.mlflow_tracker import MlflowTracker
from tests.orchestrator.seaweed import BUCKET, Store
from tests.orchestrator.tracking.test_mlflow_server import answers, free_port

Make = Callable[..., Any]


@pytest.fixture
def server(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server whose clients write artifacts into the bucket themselves."""
    monkeypatch.setenv("MLFLOW_S3_ENDPOINT_URL", store.endpoint)
    port = free_port()
    where = (f"--backend-store-uri=sqlite:///{tmp_path}/mlflow.db", f"--default-artifact-root=s3://{BUCKET}/mlflow")
    process = subprocess.Popen(
        [sys.executable, "-m", "mlflow", "server", *where, "--no-serve-artifacts", f"--port={port}", "--workers=1"],
        env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert answers(f"http://127.0.0.1:{port}/health", 120)
    yield port
    process.terminate()
    process.wait()


@pytest.mark.slow
def test_the_spec_of_a_study_lies_in_the_bucket(
    server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_study: Make
) -> None:
    import s3fs

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server}")
    tracker = MlflowTracker(Home(tmp_path / "home"), "loops")
    tracker.start_study(make_study())
    tracker.close()
    bucket = s3fs.S3FileSystem(skip_instance_cache=True)
    (spec,) = [path for path in bucket.find(f"{BUCKET}/mlflow") if path.endswith("/artifacts/spec.json")]
    assert bucket.cat_file(spec).startswith(b"{")
