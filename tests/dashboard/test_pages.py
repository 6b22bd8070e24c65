"""Every page of the real app, through Streamlit's own AppTest, on homes as a person may meet them."""

import base64
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard import session
from orchestrator.configurations import group
from orchestrator.home import Home
from orchestrator.loop_table import to_csv
from orchestrator.records import StudyRecord, TrialRecord
from orchestrator.studies import read_spec, read_study
from tests.dashboard.planting import measured
from workers.protocol import LoopValue

Plant = Callable[..., StudyRecord]
APP = Path(dashboard.__file__).with_name("app.py")
STUDIES, STUDY, TRADE_OFFS, COMPARE, LOOPS, SEARCH, TRIAL, SUBMIT, CLUSTER = (
    f"views/{name}.py"
    for name in ("studies", "study", "trade_offs", "compare", "loops", "search", "trial", "submit", "cluster")
)
PAGES = (STUDIES, STUDY, TRADE_OFFS, COMPARE, LOOPS, SEARCH, TRIAL)


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
    kinds = (
        *(app.markdown, app.caption, app.info, app.warning, app.error, app.success),
        *(app.header, app.subheader, app.code),
    )
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
        (STUDY, "No trial has failed."),
        (LOOPS, "No configuration has a result yet"),
        (SEARCH, "No configuration has a result yet"),
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
        (STUDY, "Front so far"),
        (LOOPS, "take R=1"),
        (SEARCH, "At least four complete trials are needed."),
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
        (STUDY, "train/loss became nan at step 100"),
        (LOOPS, "No configuration has a result yet"),
        (SEARCH, "No configuration has a result yet"),
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
    latency, memory, growth = charts(app)
    assert len(growth["data"][0]["x"]) > 0
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
    assert "**R=1** against **R=2" in text(app)
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


@pytest.mark.usefixtures("home")
def test_a_database_that_is_away_is_said_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLT_STORAGE", "postgresql://planted:secret@127.0.0.1:1/plt")
    for page in (STUDIES, TRADE_OFFS, SUBMIT):
        said = text(open_page(page))
        assert "postgresql://127.0.0.1:1/plt cannot be used (server at" in said
        assert "planted" not in said
        assert "secret" not in said


def test_budgets_in_the_address_move_the_answer(plant: Plant) -> None:
    plant()
    free = open_page(TRADE_OFFS, study="loops")
    assert "Best feasible: **R=3 · window 8 · gate learned**" in text(free)
    bound = open_page(TRADE_OFFS, study="loops", budgets="decode/ms_per_token:6.1")
    assert "Within these budgets: **R=2 · window 8 · gate learned**" in text(bound)
    assert "outside" in set(bound.dataframe[0].value["standing"])
    nothing = open_page(TRADE_OFFS, study="loops", budgets="decode/ms_per_token:0.5")
    assert "Nothing feasible lies within these budgets" in text(nothing)


def test_search_explains_and_loops_gain(plant: Plant) -> None:
    plant()
    app = open_page(SEARCH, study="loops", first="window", second="gate_mode")
    kinds = [trace["type"] for figure in charts(app) for trace in figure["data"]]
    assert {"bar", "parcoords", "scatter", "heatmap"} <= set(kinds)
    loops = open_page(LOOPS, study="loops")
    (gains,) = [table.value for table in loops.dataframe if "R" in table.value]
    assert list(gains["R"]) == [1, 2, 3]
    assert "loops: take R=3, window 8, gate_mode learned" in text(loops)
    assert "No trial of this study has loop diagnostics" in text(loops)


def test_loop_diagnostics_are_drawn_by_loop(plant: Plant) -> None:
    def measure(trial: TrialRecord) -> dict[str, float]:
        loops = range(1, int(trial.params["num_loops"]) + 1)
        return measured(trial) | {f"loops/{loop}/step_size": 1.0 / loop for loop in loops}

    plant(measure=measure)
    app = open_page(LOOPS, study="loops")
    assert "Step size" in text(app)
    drawn = charts(app)[1]["data"]
    assert [values(line["y"]) for line in drawn][-1] == pytest.approx([1.0, 1 / 2, 1 / 3])
    assert "By layer and head" not in text(app)


def test_the_gate_is_mapped_by_layer_and_head(plant: Plant, home: Home) -> None:
    study = plant(measure=lambda trial: measured(trial) | {"loops/1/step_size": 1.0})
    for one in group(study):
        table = [LoopValue("global_share", 2, layer, head, None, 0.25 * layer) for layer in (0, 1) for head in (0, 1)]
        path = home.loop_table("loops", one.trials[0].number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_csv(table))
    app = open_page(LOOPS, study="loops", heads="global_share")
    assert "By layer and head" in text(app)
    [*_, cells] = [trace for figure in charts(app) for trace in figure["data"] if trace["type"] == "heatmap"]
    assert np.array(values(cells["z"])).reshape(2, 2).tolist() == [[0.0, 0.0], [0.25, 0.25]]


def test_buttons_start_a_driver_once_and_say_what_came_of_it(
    plant: Plant, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(failing={2}, trials=5)
    started: list[tuple[str, ...]] = []

    def spawn(arguments: Sequence[str], output: Path, _environment: Mapping[str, str]) -> int:
        started.append(tuple(arguments[3:]))
        output.write_text("plt: cannot use a Ray cluster on this machine\n")
        return os.getpid()

    monkeypatch.setattr("orchestrator.driver_launch.spawn_detached", spawn)
    app = open_page(STUDY, study="loops")
    app.button(key="do-retry_failed-loops").click().run()
    app.button(key="do-retry_failed-loops").click().run()
    assert started == [("retry", "loops", "--failed", "--backend", "ray")]
    assert "started `plt retry loops --failed --backend ray`" in text(app)
    assert "cannot use a Ray cluster on this machine" in text(app)
    assert home.launch("loops").exists()


def test_read_only_refuses_even_what_no_button_offers(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    study = plant(trials=5, failing={2})
    app = open_page(STUDY, study="loops")
    monkeypatch.setenv("PLT_DASHBOARD_READ_ONLY", "1")
    app.button(key="do-retry_failed-loops").click().run()  # drawn before the server became read-only
    assert "this dashboard is read-only" in text(app)
    app = open_page(STUDY, study="loops")
    assert "This dashboard is read-only." in text(app)
    assert not [button for button in app.button if str(button.key).startswith("do-")]
    assert len(read_study(Home.from_environment(), study.name).trials) == 5


def test_the_form_writes_the_file_and_its_problems_have_lines(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []

    def spawn(arguments: Sequence[str], output: Path, _environment: Mapping[str, str]) -> int:
        started.append(arguments[4])
        output.write_text("")
        return os.getpid()

    monkeypatch.setattr("orchestrator.driver_launch.spawn_detached", spawn)
    app = open_page(SUBMIT)
    assert "The study file is valid." in text(app)
    assert "13 distinct" in text(app)
    app.text_input(key="form-train/tokens").set_value("many").run()
    assert "`study.yaml:" in text(app)
    assert "train.tokens" in text(app)
    app.text_input(key="form-train/tokens").set_value("64k").run()
    app.text_input(key="search-values-num_loops").set_value("1, 2").run()
    app.text_input(key="form-name").set_value("typed").run()
    assert "7 distinct" in text(app)
    start = next(button for button in app.button if button.label == "Start the study")
    start.click().run()
    assert started == ["typed"]
    spec, _ = read_spec(home, "typed")
    assert (spec.train.tokens, spec.search["num_loops"].every()) == (64_000, (1, 2))


def test_clone_and_edit_starts_from_the_study_under_a_free_name(plant: Plant) -> None:
    plant(trials=1)
    app = open_page(SUBMIT, **{"from": "loops"})
    assert app.text_input(key="form-name").value == "loops-2"
    assert app.text_input(key="search-when-window").value == "num_loops > 1"
    assert "The study file is valid." in text(app)


def test_the_cluster_page_names_the_machine_and_what_runs(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(trials=1)
    app = open_page(CLUSTER)
    assert "Nobody drives a study of this home now." in text(app)
    assert [metric.label for metric in app.metric][:2] == ["Cores", "CPU in use"]
    monkeypatch.setenv("PLT_RAY_DASHBOARD", "http://127.0.0.1:9")
    assert "cannot be read" in text(open_page(CLUSTER))


def test_an_address_bar_that_is_late_loses_nothing_and_one_that_is_turned_back_is_followed(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refresh may be asked for before the browser has heard of the address that the last choice made."""
    now = [100.0]
    monkeypatch.setattr(session, "monotonic", lambda: now[0])
    plant()
    app = open_page(TRADE_OFFS, study="loops")
    app.number_input(key="number-decode/ms_per_token").set_value(6.1).run()
    before = app.query_params["budgets"]
    app.number_input(key="number-kv/bytes_per_sequence").set_value(5.0).run()
    both = app.query_params["budgets"]
    assert before != both

    app.query_params["budgets"] = before
    app.run()
    assert app.query_params["budgets"] == both
    assert app.number_input(key="number-kv/bytes_per_sequence").value == 5.0

    now[0] += session.LATE_SECONDS
    app.query_params["budgets"] = before
    app.run()
    assert app.query_params["budgets"] == before
    assert [box.value for box in app.number_input if box.label == "At most"][-1] is None
