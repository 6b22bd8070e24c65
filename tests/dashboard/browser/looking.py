"""What a person does with the dashboard, in the words of the tests."""

import re
from time import monotonic
from urllib.parse import parse_qs, urlparse

from playwright.sync_api import Locator, Page, WebSocketRoute, expect

expect.set_options(timeout=60_000)
PATIENCE = 90_000
"""Milliseconds that a driver may take to start on a busy machine."""


class Wire:
    """What a page, not opened yet, and its server will say to each other; either's words can be held up."""

    def __init__(self, page: Page) -> None:
        self._page, self.asked = page, 0
        self._questions: list[str | bytes] | None = None
        self._answers: list[str | bytes] | None = None
        self._browser: WebSocketRoute | None = None
        self._server: WebSocketRoute | None = None
        page.route_web_socket(re.compile("/_stcore/stream"), self._connect)

    def _connect(self, browser: WebSocketRoute) -> None:
        self._browser, self._server = browser, browser.connect_to_server()
        browser.on_message(self._ask)
        self._server.on_message(self._answer)

    def _ask(self, words: str | bytes) -> None:
        self.asked += 1
        if self._questions is not None:
            self._questions.append(words)
        elif self._server is not None:
            self._server.send(words)

    def _answer(self, words: str | bytes) -> None:
        if self._answers is not None:
            self._answers.append(words)
        elif self._browser is not None:
            self._browser.send(words)

    def hold_answers(self) -> None:
        """Keep what the server says from now on."""
        self._answers = []

    def hold_questions(self) -> None:
        """Keep what the page asks from now on."""
        self._questions = []

    def until_asked(self, times: int) -> None:
        """Wait until the page has asked so often since it was opened."""
        deadline = monotonic() + 60
        while self.asked < times:
            assert monotonic() < deadline, f"the page asked {self.asked} times of {times}"
            self._page.wait_for_timeout(50)

    def until_answered(self) -> None:
        """Wait until an answer is being held."""
        deadline = monotonic() + 60
        while not self._answers:
            assert monotonic() < deadline, "the server said nothing"
            self._page.wait_for_timeout(50)

    def let_go(self) -> None:
        """Hand over all that was kept, at once."""
        questions, answers = self._questions or [], self._answers or []
        self._questions = self._answers = None
        self.asked -= len(questions)
        for words in questions:
            self._ask(words)
        for words in answers:
            self._answer(words)


class Visitor:
    """One person with one browser tab."""

    def __init__(self, page: Page, base: str) -> None:
        self.page, self._base = page, base

    def go(self, path: str) -> None:
        """Open a page of the dashboard and wait until it has drawn itself."""
        self.page.goto(f"{self._base}/{path}")
        self.settled()

    def settled(self) -> None:
        """Wait until nothing is being drawn."""
        expect(self.page.locator("[data-testid=stApp][data-test-script-state=notRunning]")).to_be_visible()

    def exceptions(self) -> list[str]:
        """Tracebacks that the page shows."""
        return self.page.locator("[data-testid=stException]").all_inner_texts()

    def says(self, text: "str | re.Pattern[str]", patience: float = 60_000) -> None:
        """Wait until the page says so."""
        expect(self.page.get_by_text(text).filter(visible=True).first).to_be_visible(timeout=patience)

    def says_no(self, text: str) -> None:
        """Wait until the page says it nowhere."""
        expect(self.page.get_by_text(text)).to_have_count(0)

    def click(self, name: str) -> None:
        """Click a button, and wait for what comes of it."""
        self.button(name).click()
        self.settled()

    def button(self, name: str) -> Locator:
        """A button by its words."""
        return self.page.get_by_role("button", name=name, exact=True).first

    def fill(self, label: str, text: str) -> None:
        """Type into a field and leave it."""
        field = self.page.get_by_label(label, exact=True).first
        field.fill(text)
        field.press("Tab")
        self.settled()

    def choose(self, name: str) -> None:
        """Choose one of a row of buttons, the last one of that name, and see that it stays chosen."""
        option = self.page.get_by_role("radio", name=name).last
        self.page.wait_for_timeout(500)  # what was typed before is on its way
        self.settled()
        option.click()
        expect(option).to_be_checked()
        self.page.wait_for_timeout(500)
        self.settled()
        expect(option).to_be_checked()

    def parameters(self) -> dict[str, str]:
        """What the address bar holds."""
        return {name: values[0] for name, values in parse_qs(urlparse(self.page.url).query).items()}

    def chart(self, key: str) -> Locator:
        """A chart by the name that the page gave it."""
        return self.page.locator(f".st-key-{key} .js-plotly-plot")

    def click_point(self, key: str) -> None:
        """Click the first point of a chart."""
        chart = self.chart(key)
        chart.locator(".scatterlayer .trace .points path").first.hover(force=True)
        expect(chart.locator(".hoverlayer .hovertext").first).to_be_visible()  # what is pointed at is clicked
        self.page.mouse.down()
        self.page.mouse.up()

    def click_cell(self, alt: str, row: int, x: float) -> None:
        """Click into a row of a table, so many pixels from its left edge; rows count from 0 below the head."""
        table = self.page.get_by_label(alt).locator("canvas").first
        table.click(position={"x": x, "y": 35 * (row + 1) + 17}, force=True)

    def box(self, key: str, right_of: float | None, left_of: float) -> None:
        """Box-select the points of a chart between two places on its horizontal axis."""
        plot = self.chart(key)
        plot.scroll_into_view_if_needed()
        plot.hover()
        plot.locator(".modebar-btn[data-val=select]").click()
        ends = plot.evaluate(
            "(gd, [low, high]) => { const axis = gd._fullLayout.xaxis;"
            " return [low === null ? 2 : axis.d2p(low), axis.d2p(high)]; }",
            [right_of, left_of],
        )
        area = plot.locator(".nsewdrag").first.bounding_box()
        assert area is not None
        mouse = self.page.mouse
        mouse.move(area["x"] + ends[0], area["y"] + 3)
        mouse.down()
        mouse.move(area["x"] + ends[1], area["y"] + area["height"] - 3, steps=8)
        mouse.up()
        self.settled()
