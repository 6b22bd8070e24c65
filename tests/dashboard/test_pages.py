"""Every page of the real app, through Streamlit's own AppTest, on homes as a person may meet them."""

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
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
    app.run()  # makes the pages known
    for name, value in address.items():
        app.query_params[name] = value
    app.switch_page(page).run()
    assert not app.exception
    return app


def text(app: AppTest) -> str:
    """Everything the page says in words, tables included."""
    kinds = (app.markdown, app.caption, app.info, app.warning, app.error, app.header, app.subheader, app.code)
    words = [str(element.value) for elements in kinds for element in elements]
    return "\n".join(words + [frame.value.to_csv() for frame in app.dataframe])


def charts(app: AppTest) -> list[dict[str, Any]]:
    """The figures on the page, as Plotly's JSON."""
    return [json.loads(element.proto.spec) for element in app.get("plotly_chart")]


def values(coordinates: Any) -> list[float]:
    """A trace's coordinates: a list with None for NaN, or Plotly's base64 of an array."""
    if isinstance(coordinates, dict):
        return list(np.frombuffer(base64.b64decode(coordinates["bdata"]), dtype=coordinates["dtype"]))
    return [math.nan if value is None else float(value) for value in coordinates]


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_home_says_what_to_run(home: Home, page: str) -> None:
    app = open_page(page)
    assert "No studies yet" in text(app)
    assert "plt run experiments/quickstart.yaml" in text(app)
    assert str(home.root) in text(app)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (STUDIES, "nothing yet"),
        (TRADE_OFFS, "This study has no trials yet. Its budget is 9 configurations."),
        (COMPARE, "Choose configurations above"),
        (TRIAL, "This study has no trials yet. Its budget is 9 configurations."),
    ],
)
def test_a_study_without_trials(plant: Plant, page: str, said: str) -> None:
    plant(trials=0)
    assert said in text(open_page(page))


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (STUDIES, "1 of 9"),
        (TRADE_OFFS, "1 configuration: 1 front."),
        (COMPARE, "Choose configurations above"),
        (TRIAL, "COMPLETE"),
    ],
)
def test_a_single_trial(plant: Plant, page: str, said: str) -> None:
    plant(trials=1)
    assert said in text(open_page(page))


@pytest.mark.parametrize(
    ("page", "said"),
    [
        (STUDIES, "3 diverged"),
        (TRADE_OFFS, "No configuration has a result: 3 diverged"),
        (COMPARE, "Choose configurations above"),
        (TRIAL, "**diverged**: train/loss became nan at step 100"),
    ],
)
def test_a_study_in_which_all_failed(plant: Plant, page: str, said: str) -> None:
    plant(trials=3, failing=range(3))
    assert said in text(open_page(page))


def test_the_curve_of_a_diverged_trial_has_a_gap(plant: Plant) -> None:
    plant(trials=1, failing=[0], track=True)
    app = open_page(TRIAL, study="loops")
    [curve] = (trace for figure in charts(app) for trace in figure["data"])
    losses = values(curve["y"])
    assert len(losses) == 20
    assert math.isnan(losses[9])
    assert all(math.isfinite(loss) for loss in losses[:9] + losses[10:])
    assert "Traceback (most recent call last)" in text(app)


def test_studies_lists_each_with_its_best(plant: Plant) -> None:
    plant("first")
    plant("second", trials=2)
    table = open_page(STUDIES).dataframe[0].value.set_index("study")
    assert dict(table["state"]) == {"first": "COMPLETE", "second": "INTERRUPTED"}
    assert dict(table["configurations"]) == {"first": "9 of 9", "second": "2 of 9"}
    assert "R=3 · window 8 · gate learned" in str(table.loc["first", "best"])


def test_trade_offs_show_each_configuration_and_the_constraint(plant: Plant) -> None:
    study = plant()
    app = open_page(TRADE_OFFS, study="loops")
    assert "9 configurations" in text(app)
    latency, memory = charts(app)
    for figure in (latency, memory):
        drawn = {point[0] for trace in figure["data"] for point in trace.get("customdata", [])}
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
