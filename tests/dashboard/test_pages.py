"""Every page of the real app, through Streamlit's own AppTest, on homes as a person may meet them."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from orchestrator.configurations import group
from orchestrator.home import Home
from orchestrator.records import StudyRecord

Plant = Callable[..., StudyRecord]
APP = Path(dashboard.__file__).with_name("app.py")
STUDIES, TRADE_OFFS, COMPARE, TRIAL = (
    "views/studies.py",
    "views/trade_offs.py",
    "views/compare.py",
    "views/trial.py",
)
PAGES = (STUDIES, TRADE_OFFS, COMPARE, TRIAL)


def open_page(page: str, **address: str) -> AppTest:
    """The app at a page and an address; a page that raised fails the test here."""
    app = AppTest.from_file(APP, default_timeout=60)
    app.run()
    for name, value in address.items():
        app.query_params[name] = value
    app.switch_page(page).run()
    assert not app.exception
    return app


def text(app: AppTest) -> str:
    """Everything the page says in words."""
    kinds = (app.markdown, app.caption, app.info, app.warning, app.error, app.header, app.subheader, app.code)
    return "\n".join(str(element.value) for elements in kinds for element in elements)


def charts(app: AppTest) -> list[dict[str, object]]:
    """The figures on the page, as Plotly's JSON."""
    return [json.loads(element.proto.spec) for element in app.get("plotly_chart")]


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_home_says_what_to_run(home: Home, page: str) -> None:
    app = open_page(page)
    assert "No studies yet" in text(app)
    assert "plt run experiments/quickstart.yaml" in text(app)
    assert str(home.root) in text(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_study_without_trials(plant: Plant, page: str) -> None:
    plant(trials=0)
    app = open_page(page)
    if page in (TRADE_OFFS, TRIAL):
        assert "no trials yet" in text(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_single_trial(plant: Plant, page: str) -> None:
    plant(trials=1)
    app = open_page(page)
    if page == TRADE_OFFS:
        assert len(charts(app)) == 2
    if page == TRIAL:
        assert "COMPLETE" in text(app)


@pytest.mark.parametrize("page", PAGES)
def test_a_study_in_which_all_failed(plant: Plant, page: str) -> None:
    plant(trials=3, failing=range(3), track=page == TRIAL)
    app = open_page(page)
    if page == STUDIES:
        assert app.dataframe[0].value["failures"].iloc[0] == "3 diverged"
    if page == TRADE_OFFS:
        assert "No configuration has a result: 3 diverged" in text(app)
    if page == TRIAL:
        assert "**diverged**: train/loss became nan at step 100" in text(app)
        assert "Traceback (most recent call last)" in text(app)
        [curve] = charts(app)
        assert "trial 0" in json.dumps(curve)


def test_studies_lists_each_with_its_best(plant: Plant) -> None:
    plant("first")
    plant("second", trials=2)
    table = open_page(STUDIES).dataframe[0].value.set_index("study")
    assert dict(table["state"]) == {"first": "COMPLETE", "second": "INTERRUPTED"}
    assert dict(table["configurations"]) == {"first": "9 of 9", "second": "1 of 9"}
    assert "R=3 · window 8 · gate learned" in table.loc["first", "best"]


def test_trade_offs_show_each_configuration_and_the_constraint(plant: Plant) -> None:
    study = plant()
    app = open_page(TRADE_OFFS, study="loops")
    assert "9 configurations" in text(app)
    latency, memory = charts(app)
    for figure in (latency, memory):
        drawn = {point[0] for trace in figure["data"] for point in trace.get("customdata", [])}  # type: ignore[attr-defined]
        assert drawn == {one.fingerprint for one in group(study)}
    assert "6.50 ms/token" in json.dumps(latency)
    table = app.dataframe[0].value
    assert len(table) == 9
    standings = dict(table["standing"].value_counts())
    assert standings["infeasible"] == sum(1 for one in group(study) if not one.feasible) > 0


def test_compare_shows_what_the_address_names(plant: Plant) -> None:
    study = plant(track=True, trials=12)
    first, second = group(study)[0], group(study)[2]
    app = open_page(COMPARE, study="loops", picks=f"{second.fingerprint}~{first.fingerprint}~gone")
    assert app.multiselect(key="choose-picks").value == [second.fingerprint, first.fingerprint]
    assert app.selectbox(key="choose-baseline").value == second.fingerprint
    knobs, _, metrics = (frame.value for frame in app.dataframe[:3])
    assert "num_loops" in list(knobs["knob"])
    assert metrics["Δ R=1"].iloc[0] != "-"
    assert len(charts(app)) == 3
    markdown = app.code[0].value
    assert "baseline R=2" in markdown
    assert markdown.count("| num_loops |") == 1


def test_choices_are_written_to_the_address(plant: Plant) -> None:
    plant("first", trials=1)
    plant("second", trials=1)
    app = open_page(TRIAL, study="first")
    app.selectbox(key="choose-study").set_value("second").run()
    assert not app.exception
    assert app.query_params["study"] == "second"
    assert "trial" not in app.query_params


def test_a_link_to_what_is_gone_says_so_and_shows_something_else(plant: Plant) -> None:
    plant(trials=1)
    assert "There is no study 'gone'" in text(open_page(TRADE_OFFS, study="gone"))
    assert "has no trial 77" in text(open_page(TRIAL, study="loops", trial="77"))


def test_without_mlflow_every_page_still_shows_its_results(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    study = plant(trials=3)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    trial = open_page(TRIAL, study="loops", trial="1")
    assert "No learning curves" in text(trial)
    assert "connection refused" in text(trial)
    assert "COMPLETE" in text(trial)
    compare = open_page(COMPARE, study="loops", picks=group(study)[0].fingerprint)
    assert "No learning curves" in text(compare)
    assert len(charts(compare)) == 2


def test_a_study_that_cannot_be_read_does_not_hide_the_others(plant: Plant, home: Home) -> None:
    plant("good", trials=1)
    home.journal("bad").parent.mkdir(parents=True)
    home.journal("bad").write_text("this is no journal\n")
    app = open_page(STUDIES)
    assert list(app.dataframe[0].value["study"]) == ["good"]
    assert "bad" in text(app)
