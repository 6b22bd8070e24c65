"""A report says what the recommendation says, stands alone, is well formed, and exists for every kind of study."""

import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree.ElementTree import fromstring

import numpy as np
import pytest

from dashboard.report import Material, gather, to_html, to_markdown
from dashboard.report.charts import plots
from dashboard.report.svg import Axis, Mark, cells, chart, ticks
from orchestrator.home import Home
from orchestrator.loop_table import to_csv
from orchestrator.recommendation.words import headline
from orchestrator.records import StudyRecord, TrialState
from tests.orchestrator.recommendation.planted import ACCURACY, simulate, study, trial
from workers.protocol import LoopValue

MEANS = {1: [0.69], 2: [0.78, 0.80], 3: [0.76]}


class Page(HTMLParser):
    """Tags in order, and every address that a browser would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "xlink:href", "data")]


def with_diagnostics(record: StudyRecord) -> StudyRecord:
    trials = []
    for one in record.trials:
        loops = range(1, one.params["num_loops"] + 1)
        measured = {f"loops/{loop}/{name}": loop + 0.1 for loop in loops for name in ("step_size", "effective_rank")}
        trials.append(replace(one, metrics={**one.metrics, **measured}))
    return replace(record, trials=tuple(trials))


def keep_tables(home: Home, record: StudyRecord) -> None:
    """Items on which a loop more saves 0.1 nats, and a gate that is a quarter full context."""
    for one in record.trials:
        loops = one.params["num_loops"]
        values = [LoopValue("lens_loss", loops, None, None, item, 2 - 0.1 * loops + 0.01 * item) for item in range(9)]
        values += [LoopValue("global_share", loops, 0, head, None, 0.25) for head in range(3)]
        path = home.loop_table(record.name, one.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_csv(values))


@pytest.fixture
def material(tmp_path: Path) -> Material:
    record = with_diagnostics(simulate(MEANS, 0.004, 4, np.random.default_rng(0)))
    keep_tables(Home(tmp_path), record)
    return gather(Home(tmp_path), record)


def test_it_stands_alone_and_says_the_answer(material: Material) -> None:
    text = to_html(material)
    page = Page(text)
    assert page.fetched == []
    assert "script" not in page.tags
    assert not re.search(r"@import|url\(", text)
    assert headline(material.found) in text
    assert "Sure at 95 %" in text
    assert page.tags.count("svg") == page.tags.count("figure") == len(plots(material)) == 5
    assert "prefers-color-scheme" in text
    assert "width=device-width" in text


def test_every_picture_has_words_and_an_axis_with_its_unit(material: Material) -> None:
    for plot in plots(material):
        assert plot.picture.get("role") == "img"
        assert len(plot.picture.get("aria-label") or "") > 20
        assert plot.caption.endswith(".")
    shown = " ".join(text.text or "" for plot in plots(material) for text in plot.picture.iter("text"))
    assert "(MiB)" in shown


def test_items_are_paired_between_loop_counts(material: Material) -> None:
    gains = material.item_gains()
    assert {steps: round(gain.mean, 9) for steps, gain in gains.items()} == {(1, 2): 0.1, (1, 3): 0.2, (2, 3): 0.1}
    assert "Paired over 9 held-out sequences, R=1 to 3 saves" in to_html(material)


def test_names_and_questions_cannot_break_the_page(tmp_path: Path) -> None:
    record = replace(simulate(MEANS, 0.004, 2, np.random.default_rng(0)), question="<script>alert(1)</script> & more")
    text = to_html(gather(Home(tmp_path), record))
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def test_markdown_shows_the_same_plots_as_files(material: Material) -> None:
    text, files = to_markdown(material, "answer")
    assert headline(material.found) in text
    assert set(re.findall(r"\]\((.*?\.svg)\)", text)) == set(files)
    for content in files.values():
        assert fromstring(content).tag == "{http://www.w3.org/2000/svg}svg"


FAILED = {"state": TrialState.FAIL, "failure": {"reason": "diverged", "message": "", "traceback": ""}}


@pytest.mark.parametrize(
    "record",
    [
        study([]),
        study([trial(0, 2, 8, 0, {ACCURACY: 0.8, "decode/ms_per_token": 5.0})]),
        study([trial(0, 1, None, 0, {}, **FAILED), trial(1, 2, 8, 0, {}, **FAILED)]),
        simulate(MEANS, 0.004, 1, np.random.default_rng(0)),
    ],
    ids=["empty", "single trial", "all diverged", "one seed"],
)
def test_every_kind_of_study_has_a_report(record: StudyRecord, tmp_path: Path) -> None:
    made = gather(Home(tmp_path), record)
    text = to_html(made)
    assert headline(made.found) in text
    assert "nan" not in re.findall(r"[a-z]+", text.lower())
    assert to_markdown(made, "x")[0].startswith("# ")


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.2, 8.9), (1e-7, 3e-7), (1e9, 1.5e9), (0.61, 0.623)])
def test_ticks_are_round_inside_and_few(low: float, high: float) -> None:
    places = ticks(low, high)
    assert 2 <= len(places) <= 7
    assert low - 1e-9 * high <= places[0]
    assert places[-1] <= high * (1 + 1e-9)
    step = places[1] - places[0]
    assert round(step / 10 ** np.floor(np.log10(step) + 1e-9), 6) in (1, 2, 5)


def test_points_lie_where_their_values_say() -> None:
    marks = [Mark(x=x, y=y, colour="#000", title="t") for x, y in ((0.0, 0.0), (1.0, 2.0), (2.0, 4.0))]
    circles = list(chart(Axis(title="x"), Axis(title="y"), "a chart of three points", marks=marks).iter("circle"))
    xs, ys = ([float(circle.attrib[name]) for circle in circles] for name in ("cx", "cy"))
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], abs=0.11)
    assert xs[0] < xs[2]
    assert ys[0] > ys[1] > ys[2]
    assert ys[0] - ys[1] == pytest.approx(ys[1] - ys[2], abs=0.11)


def test_a_map_has_a_cell_per_value() -> None:
    rows: Sequence[Sequence[float]] = [[0.1, 0.9], [0.5, 1.0]]
    drawn = [float(rect.attrib["fill-opacity"]) for rect in cells(rows, "layer", "head", "a map", "#00f").iter("rect")]
    assert drawn == [0.1, 0.9, 0.5, 1.0]
