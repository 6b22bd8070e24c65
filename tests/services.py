"""Services of a team, started by the tests that need them: PostgreSQL, and MLflow's server with sign-in."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import psutil
import psycopg
import pytest


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def answers(url: str, seconds: float) -> bool:
    """Whether a server answers in time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            urllib.request.urlopen(url, timeout=5).close()
        except OSError:
            time.sleep(0.1)
        else:
            return True
    return False


def have_postgres() -> bool:
    """Whether PostgreSQL is installed."""
    return _programs() is not None


def programs() -> Path:
    """The folder of PostgreSQL's programs; skips the test without, or fails it where PLT_REQUIRE_POSTGRES is set."""
    found = _programs()
    if found is None:
        why = "PostgreSQL is not installed (apt-get install postgresql)"
        pytest.fail(why) if os.environ.get("PLT_REQUIRE_POSTGRES") else pytest.skip(why)
    return found


def _programs() -> Path | None:
    named = shutil.which("postgres")
    folders = [*sorted(Path("/usr/lib/postgresql").glob("*/bin")), *([Path(named).parent] if named else [])]
    return folders[-1] if folders else None


def kill_family(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process and everything below it, and wait until none of them runs; nothing when it is dead."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for one in family:
        if one.is_running():
            one.kill()
    process.wait()
    until = time.monotonic() + 30
    while any(one.is_running() and one.status() != psutil.STATUS_ZOMBIE for one in family):
        assert time.monotonic() < until, "a process survives SIGKILL"
        time.sleep(0.01)


class Postgres:
    """A server of its own, as a child of this process; it does not run as root."""

    USER, PASSWORD = "planted-db-user", "planted-db-password"

    def __init__(self) -> None:
        self._programs, self.port = programs(), free_port()
        self.folder = Path(tempfile.mkdtemp(prefix="plt-postgres-", dir="/tmp"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.folder, account.pw_uid, account.pw_gid)
            who = [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--init-groups", "--reset-env"]
            self._as = ["setpriv", *who, "--pdeathsig", "KILL", "--"]
        secret = self.folder / "secret"
        secret.write_text(self.PASSWORD + "\n", encoding="utf-8")
        secret.chmod(0o644)
        options = ["-N", "-A", "scram-sha-256", "-U", self.USER, f"--pwfile={secret}", "-E", "UTF8"]
        made = [*self._as, str(self._programs / "initdb"), *options, "-D", str(self.folder / "data")]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd="/")
        self.start()

    def start(self) -> None:
        """Run it, and wait until it answers; it dies with the thread that calls this, and so outlives no test run."""
        where = ["-D", str(self.folder / "data"), "-k", str(self.folder), "-p", str(self.port)]
        # Processes are killed here, machines are not: what the system was handed is kept without waiting for disks.
        few = ["listen_addresses=127.0.0.1", "max_connections=200", "shared_buffers=32MB", "fsync=off"]
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._as, str(self._programs / "postgres"), *where, *(f"-c{one}" for one in few)], stderr=log, cwd="/"
            )
        until = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.address("postgres"), password=self.PASSWORD).close()
            except psycopg.OperationalError:
                assert time.monotonic() < until, self.log()
                time.sleep(0.02)
            else:
                return

    def kill(self) -> None:
        """SIGKILL to the server and everything below it, as a power cut."""
        kill_family(self._process)

    def send(self, number: signal.Signals) -> None:
        """Send the server and everything below it a signal."""
        for one in psutil.Process(self._process.pid).children(recursive=True):
            one.send_signal(number)
        self._process.send_signal(number)

    def end(self) -> None:
        """Stop it and delete what it kept."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        return (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")

    def connect(self, database: str = "postgres") -> psycopg.Connection:
        return psycopg.connect(self.address(database), password=self.PASSWORD, autocommit=True)

    def make(self, database: str) -> str:
        """A new database; its address, without the password."""
        with self.connect() as connection:
            connection.execute(f'create database "{database}"'.encode())
        return self.address(database)

    def address(self, database: str, port: int | None = None) -> str:
        return f"postgresql://{self.USER}@127.0.0.1:{port or self.port}/{database}"

    def with_password(self, database: str, scheme: str = "postgresql") -> str:
        return f"{scheme}://{self.USER}:{self.PASSWORD}@127.0.0.1:{self.port}/{database}"


class MlflowServer:
    """MLflow's server with one user, on databases that are given."""

    USER, PASSWORD = "planted-user", "planted-password-15"

    def __init__(self, folder: Path, runs: str, users: str) -> None:
        """Addresses as SQLAlchemy's."""
        self.folder, self.port, self._runs = folder, free_port(), runs
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "sign-in.ini").write_text(
            f"[mlflow]\ndefault_permission = READ\ndatabase_uri = {users}\n"
            f"admin_username = {self.USER}\nadmin_password = {self.PASSWORD}\n"
            "authorization_function = mlflow.server.auth:authenticate_request_basic_auth\n",
            encoding="utf-8",
        )
        self.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def variables(self) -> Mapping[str, str]:
        """Of somebody who may use it."""
        return {
            "MLFLOW_TRACKING_URI": self.address,
            "MLFLOW_TRACKING_USERNAME": self.USER,
            "MLFLOW_TRACKING_PASSWORD": self.PASSWORD,
        }

    def start(self) -> None:
        """Run it, and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Run it."""
        where = [f"--backend-store-uri={self._runs}", f"--artifacts-destination={self.folder / 'files'}"]
        with (self.folder / "server.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--app-name=basic-auth"),
                    *(f"--port={self.port}", "--workers=1", *where),
                ],
                env=os.environ
                | {
                    "MLFLOW_FLASK_SERVER_SECRET_KEY": "of-the-server",
                    "MLFLOW_AUTH_CONFIG_PATH": str(self.folder / "sign-in.ini"),
                    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
                    "MLFLOW_DISABLE_TELEMETRY": "true",
                },
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Until it answers."""
        assert answers(f"{self.address}/health", 120), (self.folder / "server.txt").read_text(encoding="utf-8")

    def kill(self) -> None:
        """SIGKILL to it and its workers."""
        kill_family(self._process)

    def end(self) -> None:
        self.kill()
