"""A real S3-compatible store for tests: SeaweedFS on this machine, with keys that it checks. It can be killed."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

KEY, SECRET, BUCKET = "planted-store-key", "planted-store-secret", "plt-test"
_PORTS = ("master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc")
_PATIENCE_SECONDS = 60.0


def weed() -> str | None:
    """The program, if it is installed."""
    return shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


class Store:
    """One bucket, kept in a folder over restarts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        rights = ["Admin", "Read", "Write", "List", "Tagging"]
        identity = {"name": "app", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": rights}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        self._ports = dict(zip((*_PORTS, "s3.port", "s3.port.grpc"), _free_ports(len(_PORTS) + 2), strict=True))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        """Where it answers, the same after a restart."""
        return f"http://127.0.0.1:{self._ports['s3.port']}"

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
        }

    def start(self) -> None:
        """Start it; returns when it answers."""
        (self._folder / "data").mkdir(exist_ok=True)
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        with (self._folder / "weed.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(weed()),
                    "-logtostderr=true",
                    "server",
                    f"-dir={self._folder / 'data'}",
                    "-ip=127.0.0.1",
                    "-ip.bind=127.0.0.1",
                    "-filer=true",
                    "-s3",
                    f"-s3.config={self._folder / 's3.json'}",
                    "-master.volumeSizeLimitMB=64",
                    "-volume.max=20",
                    "-master.telemetry=false",  # by default it reports to an outside host
                    "-master.electionTimeout=1s",  # by default a restart takes ten seconds and more
                    "-s3.port.iceberg=0",
                    "-s3.port.lance=0",
                    *ports,
                ],
                stdout=log,
                stderr=log,
                cwd=self._folder,
            )
        until = time.monotonic() + _PATIENCE_SECONDS
        while not self._answers():
            said = (self._folder / "weed.txt").read_text(encoding="utf-8", errors="replace")[-3000:]
            assert time.monotonic() < until, said
            assert self._process.poll() is None, said
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        """Whether it can really keep something: the gateway answers before the volumes are there."""
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError, ClientError

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
            config=Config(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5),
        )
        try:
            with urllib.request.urlopen(self.endpoint, timeout=2):
                pass
        except urllib.error.HTTPError:
            pass  # it wants a key
        except OSError:
            return False
        try:
            if BUCKET not in [each["Name"] for each in client.list_buckets()["Buckets"]]:
                client.create_bucket(Bucket=BUCKET)
            client.put_object(Bucket=BUCKET, Key="ready", Body=b"ready")
        except (BotoCoreError, ClientError):
            return False
        return True


def _free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()
