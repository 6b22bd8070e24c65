"""A home, a dashboard that serves it, and Debian's Chromium to look at it with.

Where there is no Chromium the tests are skipped, except in CI, where `PLT_REQUIRE_BROWSER=1` makes that a failure.
"""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from dashboard.launch import command
from orchestrator.home import Home
from tests.dashboard.browser.looking import Visitor

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""Of a browser in a container, that asks nobody for anything."""
Visit = Callable[..., Visitor]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A busy machine may miss a test's patience; twice at most it is begun anew."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=2))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        if os.environ.get("PLT_REQUIRE_BROWSER") == "1":
            pytest.fail("no chromium to test the dashboard with; apt-get install chromium")
        pytest.skip("no chromium here; apt-get install chromium to run the browser tests")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """The home that all tests of this folder share; each uses studies of its own."""
    return Home(tmp_path_factory.mktemp("browser") / "home").create()


@contextmanager
def serving(home: Home, log: Path, **how: bool) -> Iterator[str]:
    """A dashboard as `plt dashboard` starts it; gives its address."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = int(probe.getsockname()[1])
    arguments, environment = command("localhost", port, home, **how)
    locks = log.with_name("locks")  # of the devices: other studies on this machine must not hold up these
    locks.mkdir(exist_ok=True)
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*arguments, "--server.headless", "true"],
            env={**os.environ, **environment, "TMPDIR": str(locks)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_healthy(port, server)
        yield f"http://localhost:{port}"
    finally:
        server.terminate()
        server.wait(20)


def _wait_until_healthy(port: int, server: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        assert server.poll() is None, "the dashboard ended"
        try:
            urllib.request.urlopen(f"http://localhost:{port}/_stcore/health", timeout=5)
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the dashboard did not come up in a minute")


@pytest.fixture(scope="session")
def address(shared_home: Home) -> Iterator[str]:
    """A dashboard of the shared home."""
    with serving(shared_home, shared_home.root / "dashboard.log") as url:
        yield url


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Visit]:
    """Open a page in a browser of its own; afterwards no page may have shown an exception."""
    visitors: list[Visitor] = []

    def open_page(
        path: str, base: str = address, width: int = 1280, prepare: Callable[[Page], object] | None = None
    ) -> Visitor:
        page: Page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
        if prepare is not None:
            prepare(page)
        page.set_default_timeout(60_000)
        visitor = Visitor(page, base)
        visitors.append(visitor)
        visitor.go(path)
        return visitor

    yield open_page
    for visitor in visitors:
        assert visitor.exceptions() == []
        visitor.page.context.close()
