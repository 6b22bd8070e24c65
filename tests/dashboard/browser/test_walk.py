"""A person's walk through the dashboard in a real browser: submit, watch, choose, compare, share, stop, retry."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dashboard.trade_off_chart import FEW
from orchestrator.configurations import group
from orchestrator.export import exported
from orchestrator.home import Home
from orchestrator.records import StudyRecord, StudyState, TrialState
from orchestrator.studies import list_studies, read_spec, read_study
from tests.dashboard.browser.conftest import Visit
from tests.dashboard.browser.looking import PATIENCE, Visitor, Wire
from tests.dashboard.planting import plant_many, plant_study

pytestmark = pytest.mark.slow
TINY = """
name: {name}
model: {{variant: plt, d_model: 16, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 4}}
data: {{corpus: phop, hops: 2, alphabet: 4, seq_len: 32, eval_sequences: 16}}
train: {{tokens: 2k, batch_size: 4, precision: float32, compile: off}}
search: {{num_loops: {{choices: [1, 2, 3]}}}}
objectives:
  - {{metric: tasks/phop/accuracy, direction: maximize}}
sampler: {{name: grid}}
budget: {{configurations: 3, max_failure_rate: 1}}
"""


@pytest.fixture(scope="module")
def planted(shared_home: Home) -> StudyRecord:
    """A study with three seeds and known results."""
    return plant_study(shared_home, "loops", failing={7})


def submit_quickstart(visitor: Visitor, name: str, tokens: str) -> None:
    """Fill the form: the quickstart, shrunk to seconds, on the local backend."""
    visitor.says("The study file is valid.")
    for label, value in (
        ("Name", name),
        ("Tokens per trial", tokens),
        ("Configurations", "2"),
        ("Width when decoding", "64"),
        ("Layers when decoding", "1"),
        ("Context", "64"),
    ):
        visitor.fill(label, value)
    visitor.choose("local")


def test_submit_and_watch(visit: Visit, shared_home: Home) -> None:
    visitor = visit("submit")
    submit_quickstart(visitor, "walk", "4k")
    visitor.says("2 at most")
    visitor.button("Start the study").dblclick()
    visitor.page.wait_for_url(re.compile(r"/study\?study=walk"), timeout=20_000)
    visitor.says(re.compile("RUNNING|COMPLETE"), PATIENCE)
    visitor.says("COMPLETE", PATIENCE)
    assert list_studies(shared_home).count("walk") == 1
    study = read_study(shared_home, "walk")
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 2
    visitor.page.get_by_role("link", name="Trade-offs").first.click()
    visitor.says("2 configurations")


def test_choose_compare_and_share(visit: Visit, planted: StudyRecord, tmp_path: Path) -> None:
    visitor = visit("trade-offs?study=loops")
    visitor.says("9 configurations")
    visitor.box("chart-left", None, 6.15)  # between R=2 with window 8 and R=2 with window 64
    cheap = {
        one.fingerprint for one in group(planted) if one.metrics and one.metrics["decode/ms_per_token"].mean < 6.15
    }
    assert len(cheap) == 3
    expect(visitor.page.get_by_role("button", name=re.compile("^Remove "))).to_have_count(3)
    expect(visitor.page).to_have_url(re.compile("picks="))
    assert set(visitor.parameters()["picks"].split("~")) == cheap

    visitor.page.wait_for_timeout(6_000)  # a refresh happens
    expect(visitor.page.get_by_role("button", name=re.compile("^Remove "))).to_have_count(3)

    with visitor.page.expect_download() as download:
        visitor.button("Trials, CSV").click()
    file = tmp_path / "trials.csv"
    download.value.save_as(file)
    assert file.read_bytes() == exported(planted, "csv")

    visitor.click("Compare")
    visitor.says("Is the difference real?")
    visitor.says("better for sure")
    second = visit(visitor.page.url.removeprefix(f"{visitor.page.url.split('/compare')[0]}/"))
    second.says("Is the difference real?")
    expect(second.page.get_by_role("button", name=re.compile("^Remove "))).to_have_count(3)
    assert second.parameters() == visitor.parameters()

    second.page.get_by_role("link", name="Loops").first.click()
    second.says("Gain against cost, by loop count")
    second.says("loops: take R=3, window 8, gate_mode learned")
    second.says(re.compile("Sure at 95 %: R=3 is the smallest loop count from which no larger one pays"))


def test_a_click_on_a_name_opens_the_study_and_one_on_a_failure_its_trial(visit: Visit, shared_home: Home) -> None:
    plant_study(shared_home, "newest", failing={7})
    visitor = visit("")
    visitor.click_cell("Every study with its state, progress and best result", row=0, x=60)
    visitor.page.wait_for_url(re.compile(r"/study\?study="))
    visitor.go("study?study=newest")
    visitor.click_cell("Failed trials, newest first, with reason and message", row=0, x=60)
    visitor.page.wait_for_url(re.compile(r"/trial\?study=newest&.*trial=7|/trial\?trial=7.*study=newest"))


@pytest.mark.usefixtures("planted")
def test_a_click_chooses_a_point(visit: Visit) -> None:
    visitor = visit("trade-offs?study=loops")
    visitor.says("9 configurations")
    visitor.click_point("chart-left")
    expect(visitor.page.get_by_role("button", name=re.compile("^Remove "))).to_have_count(1)
    expect(visitor.page).to_have_url(re.compile("picks="))
    assert len(visitor.parameters()["picks"].split("~")) == 1


def test_a_point_of_a_large_study_is_its_configuration(visit: Visit, shared_home: Home) -> None:
    study = plant_many(shared_home, "many", FEW + 1)
    visitor = visit("trade-offs?study=many")
    visitor.says(f"{FEW + 1} configurations")
    visitor.box("chart-left", None, 4.5)
    expect(visitor.page.get_by_role("button", name=re.compile("^Remove "))).to_have_count(4)
    expect(visitor.page).to_have_url(re.compile("picks="))
    assert set(visitor.parameters()["picks"].split("~")) == {one.configuration for one in study.trials[:4]}


@pytest.mark.usefixtures("planted")
def test_a_budget_moves_the_answer(visit: Visit) -> None:
    visitor = visit("trade-offs?study=loops")
    visitor.says(re.compile("Best feasible: R=3"))
    visitor.page.get_by_label("At most", exact=True).first.fill("6.1")
    visitor.page.get_by_label("At most", exact=True).first.press("Tab")
    visitor.says(re.compile("Within these budgets: R=2 · window 8 · gate learned"))
    assert visitor.parameters()["budgets"] == "decode/ms_per_token:6.1"


@pytest.mark.usefixtures("planted")
def test_a_budget_that_is_typed_while_the_page_is_drawn_is_not_lost(visit: Visit) -> None:
    visitor = visit("trade-offs?study=loops")
    visitor.says(re.compile("Best feasible: R=3"))
    first, second = (visitor.page.get_by_label("At most", exact=True).nth(index) for index in (0, 1))
    first.fill("6.1")
    first.press("Tab")  # the page is drawn anew from here
    second.fill("5")
    visitor.says(re.compile("Within these budgets: R=2 · window 8 · gate learned"))
    expect(second).to_have_value("5")
    second.press("Enter")
    expect(visitor.page).to_have_url(re.compile("budgets=.*kv"))
    assert visitor.parameters()["budgets"].startswith("decode/ms_per_token:6.1~kv/bytes_per_sequence:")


@pytest.mark.usefixtures("planted")
def test_a_browser_that_is_late_loses_no_choice(visit: Visit) -> None:
    """It asks for a refresh before it has heard what came of a gesture, and reports its widgets as they were."""
    wires: list[Wire] = []
    visitor = visit("trade-offs?study=loops", prepare=lambda page: wires.append(Wire(page)))
    (wire,) = wires
    visitor.says("9 configurations")
    visitor.chart("chart-left").locator(".points path").first.wait_for()
    wire.hold_answers()
    asked = wire.asked
    visitor.click_point("chart-left")
    wire.until_answered()
    wire.until_asked(asked + 2)
    wire.let_go()
    chips = visitor.page.get_by_role("button", name=re.compile("^Remove "))
    expect(chips).to_have_count(1)

    wire.hold_answers()
    asked = wire.asked
    budget = visitor.page.get_by_label("At most", exact=True).first
    budget.fill("6.1")
    budget.press("Tab")
    wire.until_answered()
    wire.until_asked(asked + 2)
    wire.let_go()
    visitor.says(re.compile("Within these budgets: R=2 · window 8 · gate learned"))
    expect(visitor.page).to_have_url(re.compile("budgets="))
    assert visitor.parameters()["budgets"] == "decode/ms_per_token:6.1"
    expect(chips).to_have_count(1)


def test_what_is_typed_fast_is_all_submitted(visit: Visit, shared_home: Home) -> None:
    """Every field is left, and the study started, before the page was drawn anew even once."""
    wires: list[Wire] = []
    visitor = visit("submit", prepare=lambda page: wires.append(Wire(page)))
    (wire,) = wires
    visitor.says("The study file is valid.")
    visitor.choose("local")
    typed = {"Name": "fast", "Tokens per trial": "4k", "Configurations": "1", "Width when decoding": "64"}
    typed |= {"Layers when decoding": "1", "Context": "64", "Seeds": "3, 4"}
    wire.hold_questions()
    asked = wire.asked
    for label, value in typed.items():
        field = visitor.page.get_by_label(label, exact=True).first
        field.fill(value)
        field.press("Tab")
    values = visitor.page.get_by_label("Values", exact=True).first
    values.fill("2")
    values.press("Tab")
    visitor.button("Start the study").click()
    wire.until_asked(asked + len(typed) + 2)
    wire.let_go()
    visitor.page.wait_for_url(re.compile(r"/study\?study=fast"), timeout=PATIENCE)
    spec, _ = read_spec(shared_home, "fast")
    assert (spec.train.tokens, spec.budget.configurations, spec.seeds) == (4_000, 1, (3, 4))
    assert spec.search["num_loops"].every() == (2,)
    assert spec.benchmark is not None
    benchmark = spec.benchmark
    assert (benchmark.model.d_model, benchmark.model.num_layers, benchmark.context) == (64, 1, 64)


def test_stop_a_running_study(visit: Visit, shared_home: Home) -> None:
    visitor = visit("submit")
    submit_quickstart(visitor, "long", "40M")
    visitor.button("Start the study").click()
    visitor.says("Running now", PATIENCE)
    visitor.button("Stop").click()
    visitor.click("Yes, stop it")
    visitor.says(re.compile("asked .* to stop"))
    visitor.says("INTERRUPTED", PATIENCE)
    assert read_study(shared_home, "long").state is StudyState.INTERRUPTED


def test_retry_what_failed(visit: Visit, shared_home: Home) -> None:
    plant_study(shared_home, "flaky", failing={1}, spec_text=TINY, measure=lambda _: {"tasks/phop/accuracy": 0.5})
    visitor = visit("study?study=flaky")
    visitor.says("Failures by reason")
    visitor.button("Retry 1 failed").click()
    visitor.choose("local")
    visitor.click("Yes, retry 1 failed")
    visitor.says(re.compile("started `plt retry flaky|started plt retry flaky"))
    expect(visitor.button("Retry 1 failed")).to_have_count(0, timeout=PATIENCE)
    visitor.says("COMPLETE", PATIENCE)
    study = read_study(shared_home, "flaky")
    assert [(trial.retries, trial.state) for trial in study.trials[3:]] == [(1, TrialState.COMPLETE)]
    launch = json.loads(shared_home.launch("flaky").read_text())
    assert launch["command"][:3] == ["retry", "flaky", "--failed"]
