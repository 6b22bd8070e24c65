"""One cluster for this folder, and the table of what each loss cost.

PLT_HEALTH_CHECKS=default has the head look after its nodes as Ray ships. PLT_REQUIRE_HOSTS=1 fails where hosts cannot
be made, instead of skipping.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hosts import missing
from ray_hosts import HEALTH_CHECKS, RayHosts

LOSSES = pytest.StashKey[list[tuple[str, ...]]]()
HEALTH = os.environ.get("PLT_HEALTH_CHECKS") or "short"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LOSSES] = []


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayHosts]:
    """Head and two workers; in a folder whose name is short enough for sockets."""
    why = missing()
    if why and os.environ.get("PLT_REQUIRE_HOSTS") != "1":
        pytest.skip(why)
    assert not why, why
    with tempfile.TemporaryDirectory(prefix="plt-hosts-", dir="/tmp") as folder:
        made = RayHosts(Path(folder), HEALTH_CHECKS[HEALTH])
        try:
            for host in (made.head, made.worker("w1"), made.worker("w2")):
                made.await_start(host)
            yield made
        finally:
            made.close()


@pytest.fixture
def losses(request: pytest.FixtureRequest) -> list[tuple[str, ...]]:
    """Rows of the table: what was lost, seconds until it was noticed, seconds until its trial ran again, as what."""
    return request.config.stash[LOSSES]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of losses."""
    rows = config.stash[LOSSES]
    if not rows:
        return
    terminalreporter.section(f"losses, health checks: {HEALTH}")
    form = "{:<34}  {:>9}  {:>12}  {}"
    for row in (("what was lost", "noticed s", "runs again s", "recorded as"), *rows):
        terminalreporter.line(form.format(*row))
