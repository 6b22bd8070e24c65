"""Search and loop figures hold the table's numbers; a form's texts and a study file say the same."""

from collections.abc import Callable

import pytest

from dashboard import frames, loop_charts, search_charts
from dashboard.charts import smoothed
from dashboard.search_entry import entry, values_text, when_text
from dashboard.study_view import StudyViews
from orchestrator.configurations import group
from orchestrator.importance import Importance
from orchestrator.records import StudyRecord
from workers.protocol import LoopValue

MakeRecord = Callable[..., StudyRecord]
COST, SCORE = "decode/ms_per_token", "val/accuracy"


@pytest.fixture
def study(make_record: MakeRecord) -> StudyRecord:
    rows = [
        ({"num_loops": loops, "window": window}, [{SCORE: 0.1 * loops + window / 1000, COST: 4.0 + loops}])
        for loops in (1, 2, 3)
        for window in (8, 64)
    ]
    return make_record(*rows, ({"num_loops": 9}, []), constraints=("decode/ms_per_token <= 6.5",))


def test_slices_and_lines_are_the_complete_configurations(study: StudyRecord) -> None:
    frame = frames.configurations_frame(study, group(study))
    figure = search_charts.slice_figure(frame, "window", SCORE)
    assert [trace.name for trace in figure.data] == ["1 loop", "2 loops", "3 loops"]
    assert list(figure.data[1].y) == pytest.approx([0.208, 0.264])
    assert set(figure.data[2].marker.symbol) == {"circle-open"}  # infeasible
    [lines] = search_charts.parallel_figure(frame, ["num_loops", "window"], [SCORE, COST]).data
    assert [dimension.label for dimension in lines.dimensions][:2] == ["num_loops", "window"]
    assert list(lines.dimensions[2]["values"]) == pytest.approx(list(frame[SCORE].dropna()))


def test_the_map_has_the_best_feasible_mean_of_each_pair(study: StudyRecord) -> None:
    frame = frames.configurations_frame(study, group(study))
    figure = search_charts.map_figure(frame, "num_loops", "window", SCORE, "maximize")
    assert figure is not None
    [cells] = figure.data
    assert (list(cells.x), list(cells.y)) == (["1", "2"], ["8", "64"])
    assert [list(row) for row in cells.z] == [pytest.approx([0.108, 0.208]), pytest.approx([0.164, 0.264])]
    assert search_charts.map_figure(frame.head(0), "num_loops", "window", SCORE, "maximize") is None


def test_many_numbers_of_a_map_are_cut_into_tenths(make_record: MakeRecord) -> None:
    rows = [({"num_loops": 2, "window": window}, [{SCORE: window / 100, COST: 1.0}]) for window in range(1, 51)]
    frame = frames.configurations_frame(study := make_record(*rows), group(study))
    figure = search_charts.map_figure(frame, "window", "num_loops", SCORE, "maximize")
    assert figure is not None
    assert len(figure.data[0].x) <= 10
    assert max(figure.data[0].z[0]) == 0.5


def test_importance_bars_tell_conditional_ones_apart() -> None:
    found = [
        Importance(param="lr", share=0.8, trials=9, always=True),
        Importance(param="window", share=0.1, trials=4, always=False),
    ]
    [bars] = search_charts.importance_figure(found).data
    assert list(bars.y) == ["window (where it applies)", "lr"]
    assert list(bars.x) == [0.1, 0.8]


def test_gains_are_differences_between_the_best_of_each_loop_count(study: StudyRecord) -> None:
    frame = frames.configurations_frame(study, group(study))
    rows = loop_charts.gains_frame(frame, SCORE, [COST], "maximize")
    assert list(rows["num_loops"]) == [1, 2]  # three loops are infeasible
    assert list(rows[SCORE]) == pytest.approx([0.164, 0.264])
    assert rows["gain"].iloc[1] == pytest.approx(0.1)
    assert rows[f"{COST} more"].iloc[1] == pytest.approx(1.0)


def test_diagnostics_are_read_by_loop_whatever_they_are_called(make_record: MakeRecord) -> None:
    metrics = {"loops/2/step_size": 0.5, "loops/1/step_size": 1.0, "loops/1/own": 3.0, SCORE: 0.5, COST: 1.0}
    [one] = group(make_record(({"num_loops": 2}, [metrics, {**metrics, "loops/2/step_size": 0.7}])))
    assert loop_charts.diagnostics([one]) == ["step_size", "own"]
    rows = loop_charts.by_loop(one, "step_size")
    assert list(rows["loop"]) == [1, 2]
    assert list(rows["value"]) == pytest.approx([1.0, 0.6])
    [line] = loop_charts.diagnostic_figure({"R=2": one}, "step_size").data
    assert line.error_y.array[1] == pytest.approx(rows["value high"][1] - rows["value"][1])


@pytest.mark.parametrize(
    ("values", "when", "written"),
    [
        ("1, 2, 3", "", {"choices": [1, 2, 3]}),
        ("learned, 0.5", "num_loops > 1", {"choices": ["learned", 0.5], "when": {"num_loops": ">1"}}),
        ("0.001 to 0.01 log", "", {"low": 0.001, "high": 0.01, "log": True}),
        (
            "1 to 9 step 2",
            "variant = plt | loop",
            {"low": 1, "high": 9, "step": 2, "when": {"variant": ["plt", "loop"]}},
        ),
        ("true, false", "local = swa", {"choices": [True, False], "when": {"local": "swa"}}),
    ],
)
def test_a_searched_knob_as_two_texts(values: str, when: str, written: dict[str, object]) -> None:
    assert entry(values, when) == written
    assert (values_text(written), when_text(written)) == (values, when)


def test_smoothing_averages_what_is_finite_and_keeps_gaps() -> None:
    nan = float("nan")
    assert smoothed([1.0, 3.0, 5.0], 1) == [1.0, 3.0, 5.0]
    result = smoothed([1.0, 3.0, nan, 8.0], 2)
    assert result[:2] == [1.0, 2.0]
    assert result[2] != result[2]
    assert result[3] == 8.0


def test_a_view_is_kept_while_the_record_is_and_reuses_what_did_not_change(study: StudyRecord) -> None:
    views = StudyViews(most=1)
    first = views.of(study)
    assert views.of(study) is first
    again = StudyRecord(**{**vars(study), "question": "another?"})
    second = views.of(again)
    assert second is not first
    assert all(a is b for a, b in zip(first.configurations, second.configurations, strict=True))
    assert second.frame.equals(first.frame)
    calls: list[int] = []
    for _ in range(2):
        second.derived("key", lambda: calls.append(1))
    assert calls == [1]


def head_values(name: str, loop: int, first: float) -> list[LoopValue]:
    return [
        LoopValue(name, loop, layer, head, None, first + layer / 10 + head / 100)
        for layer in (0, 1)
        for head in (0, 1, 2)
    ]


def test_maps_by_layer_and_head_are_means_over_seeds() -> None:
    whole = LoopValue("step_size", 1, None, None, None, 3.0)
    tables = [
        [whole, *head_values("attention_entropy", 1, 0.0), *head_values("global_share", 2, seed)] for seed in (0.2, 0.4)
    ]
    assert loop_charts.by_head([head_values("new", 1, 0.0), *tables])[-1] == "new"
    assert loop_charts.by_head(tables) == ["global_share", "attention_entropy"]
    maps = loop_charts.head_maps(tables, "global_share")
    assert list(maps) == [2]
    assert maps[2].tolist() == [pytest.approx([0.3, 0.31, 0.32]), pytest.approx([0.4, 0.41, 0.42])]
    figure = loop_charts.heads_figure({2: maps[2], 3: maps[2] / 2}, "global_share")
    assert [trace.z[1][2] for trace in figure.data] == pytest.approx([0.42, 0.21])
    assert (figure.layout.coloraxis.cmin, figure.layout.coloraxis.cmax) == (0, 1)
    assert loop_charts.head_maps(tables, "head_rank") == {}
