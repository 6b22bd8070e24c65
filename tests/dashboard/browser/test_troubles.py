"""Troubles that users of dashboards report, each tried in a real browser."""

import re
from collections.abc import Callable, Iterator

import psutil
import pytest
from playwright.sync_api import expect

from orchestrator.home import Home
from orchestrator.records import StudyRecord
from orchestrator.studies import list_studies
from tests.dashboard.browser.conftest import Visit, serving
from tests.dashboard.planting import plant_study

pytestmark = pytest.mark.slow
PAGES = ("", "study", "trade-offs", "compare", "loops", "search", "trial", "cluster")


@pytest.fixture(scope="module")
def planted(shared_home: Home) -> StudyRecord:
    """A study to look at, with one failed trial."""
    return plant_study(shared_home, "seen", failing={7})


@pytest.fixture
def drivers(shared_home: Home) -> Iterator[Callable[[str], list[psutil.Process]]]:
    """Finds the living drivers of a study of the home; those that were found are ended afterwards."""
    found: list[psutil.Process] = []

    def find(study: str) -> list[psutil.Process]:
        found.extend(one for one in psutil.process_iter() if _drives(one, shared_home, study))
        return found

    yield find
    for process in found:
        process.kill()


@pytest.mark.usefixtures("planted")
def test_two_tabs_submit_one_study(
    visit: Visit, shared_home: Home, drivers: Callable[[str], list[psutil.Process]]
) -> None:
    tabs = [visit("submit") for _ in range(2)]
    for tab in tabs:
        tab.fill("Name", "twice")
        tab.fill("Tokens per trial", "40M")
        tab.choose("local")
    for tab in tabs:
        tab.button("Start the study").dblclick()
    for tab in tabs:
        tab.page.wait_for_url(re.compile(r"/study\?study=twice"), timeout=30_000)
    assert len(drivers("twice")) == 1
    assert list_studies(shared_home).count("twice") == 1
    tabs[0].page.reload()
    tabs[0].says(re.compile("RUNNING|CREATED"))
    assert tabs[0].parameters()["study"] == "twice"


def _drives(process: psutil.Process, home: Home, study: str) -> bool:
    """Whether it is a driver of that study in this home."""
    try:
        return process.cmdline()[-4:-2] == ["resume", study] and process.environ().get("PLT_HOME") == str(home.root)
    except psutil.Error:
        return False


@pytest.mark.usefixtures("planted")
def test_read_only_offers_and_accepts_nothing(visit: Visit, shared_home: Home) -> None:
    with serving(shared_home, shared_home.root / "read-only.log", read_only=True) as url:
        visitor = visit("study?study=seen", base=url)
        visitor.says("This dashboard is read-only.")
        for name in ("Resume", "Retry 1 failed", "More budget", "Clone and edit"):
            expect(visitor.button(name)).to_have_count(0)
        expect(visitor.page.get_by_role("link", name="Submit")).to_have_count(0)
        visitor.go("submit")
        expect(visitor.page.get_by_role("button", name="Start the study")).to_have_count(0)
        visitor.page.context.close()
        visitor.exceptions = list  # type: ignore[method-assign]  # its server is gone at the end


@pytest.mark.usefixtures("planted")
def test_every_page_outlives_refreshes_and_a_sleep(visit: Visit) -> None:
    """A fragment that refreshes must find itself again, also when the connection was away for a while."""
    visitor = visit("trade-offs?study=seen")
    for page in ("study", "trade-offs", "cluster"):
        visitor.go(f"{page}?study=seen")
        visitor.page.context.set_offline(True)
        visitor.page.wait_for_timeout(300)
        visitor.page.context.set_offline(False)
        visitor.page.wait_for_timeout(5_200)
        visitor.settled()
        assert visitor.exceptions() == [], page


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_is_wider_than_the_window(visit: Visit, width: int) -> None:
    visitor = visit("?study=seen", width=width)
    for page in (*PAGES, "submit"):
        visitor.go(f"{page}?study=seen")
        wide = visitor.page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert wide <= width, page
