"""Tasks, mixtures and code sets in a study file: what can be asked, and what is refused, where and why."""

from pathlib import Path

import pytest

from orchestrator.configuration import resolve
from orchestrator.corpora import refuse_missing_code_sets
from orchestrator.errors import ServiceError, SpecError
from orchestrator.home import Home
from orchestrator.spec import StudySpec, load_spec
from orchestrator.spec.points import enumerate_points
from workers.config import DataConfig

EXPERIMENTS = sorted((Path(__file__).parents[3] / "experiments").glob("*.yaml"))
STUDY = """\
name: tasks
model: {variant: plt, d_model: 32, num_layers: 1, num_heads: 2, num_kv_heads: 2, window: 8}
data: {corpus: addition, operands: 2-4, extrapolate: 2, seq_len: 64}
train: {tokens: 100k, batch_size: 4}
search:
  num_loops: {choices: [1, 2]}
objectives:
  - {metric: tasks/addition/accuracy, direction: maximize}
budget: {configurations: 2}
"""
DATA = "data: {corpus: addition, operands: 2-4, extrapolate: 2, seq_len: 64}"


def load(folder: Path, text: str) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text(text)
    return load_spec(path)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=[path.stem for path in EXPERIMENTS])
def test_every_kept_study_is_read_and_every_point_resolves(path: Path) -> None:
    spec = load_spec(path)
    points = enumerate_points(spec) or [{}]
    assert spec.budget.configurations <= max(1, len(points)) or enumerate_points(spec) is None
    for point in points:
        if point or not spec.search:
            resolve(spec, point)


@pytest.mark.parametrize(
    "metric",
    [
        "tasks/addition/majority",
        "tasks/addition/depth3/accuracy",
        "tasks/addition/depth8/majority",
        "tasks/addition/extrapolation/accuracy",
        "val/loss",
    ],
)
def test_accuracies_by_depth_can_be_objectives(tmp_path: Path, metric: str) -> None:
    load(tmp_path, STUDY.replace("tasks/addition/accuracy", metric))


BITS = "mbpp/bits_per_byte, direction: minimize"
WRONG = [
    (3, DATA.replace("addition", "additions"), "data.corpus is 'additions'; it must be stdlib, files:GLOB, a task ("),
    (3, DATA.replace("addition", "phop + phop"), "it must be different parts; give one a weight, such as 2*phop"),
    (3, DATA.replace("addition", "stdlib + files:a"), "it must be one text at most, beside tasks"),
    (3, DATA.replace("addition", "0*phop"), "data.corpus is '0*phop'; it must be stdlib"),
    (3, DATA.replace("2-4", "4-2"), "data.operands is '4-2'; it must be a whole number, a range such as 1-4"),
    (3, DATA.replace("2-4", "1.5"), "data.operands is 1.5; it must be a whole number, a range such as 1-4"),
    (3, DATA.replace("2-4", "true"), "data.operands is true; it must be a whole number, a range such as 1-4"),
    (3, DATA.replace("2-4", "1"), "operands is 1; it must be 2 or more"),
    (3, DATA.replace("64", "30"), "seq_len is 30; it must be at least 36 for addition with operands 2-4"),
    (3, DATA.replace("operands", "operand"), "did you mean operands?"),
    (3, "data: {corpus: mano, operators: 22, extrapolate: 2}", "operators is 22; it must be at most 22, extrapolation"),
    (3, "data: {corpus: tracking, group: d4}", "data.group is 'd4'; it must be z2 to z99, s3, s4, s5, a4 or a5"),
    (3, "data: {corpus: variables, copies: 20}", "copies is 20; it must be at most 15 with 16 assignments"),
    (
        3,
        "data: {corpus: addition, eval_sequences: 3}",
        "eval_sequences is 3; it must be at least 5, one for every depth",
    ),
    (3, "data: {corpus: addition, code_sets: mbpp}", "code_sets is 'mbpp'; it must be none without a text in corpus"),
    (8, "  - {metric: tasks/addition/depth9/accuracy, direction: maximize}", "nothing produces 'tasks/addition/dep"),
    (8, "  - {metric: tasks/mano/accuracy, direction: maximize}", "nothing produces 'tasks/mano/accuracy' with"),
    (8, "  - {metric: humaneval/bits_per_byte, direction: minimize}", "nothing produces 'humaneval/bits_per"),
    (8, "  - {metric: tasks/addition/accurracy, direction: maximize}", "did you mean tasks/addition/accuracy?"),
]


@pytest.mark.parametrize(("line", "text", "message"), WRONG)
def test_what_cannot_be_is_refused_at_its_line(tmp_path: Path, line: int, text: str, message: str) -> None:
    other = STUDY.replace("tasks/addition/accuracy, direction: maximize", "val/loss, direction: minimize")
    lines = (other if line == 3 else STUDY).splitlines()
    lines[line - 1] = text
    with pytest.raises(SpecError) as refused:
        load(tmp_path, "\n".join(lines))
    assert message in str(refused.value)
    assert "study.yaml:" in str(refused.value)


def test_difficulty_can_be_searched_and_equal_sets_are_equal_configurations(tmp_path: Path) -> None:
    search = "  operands: {choices: [2, '2-4', '2,3,4', 3]}\n  answer_delay: {choices: [0, 2]}\n"
    search += "  digits: {low: 1, high: 2}\n"
    spec = load(tmp_path, STUDY.replace("  num_loops: {choices: [1, 2]}\n", search.replace("'2,3,4', ", "")))
    points = enumerate_points(spec)
    assert points is not None
    assert len({resolve(spec, point).fingerprint for point in points}) == len(points) == 12
    with pytest.raises(SpecError, match="choices '2-4' and '2-4' are equal"):
        load(tmp_path, STUDY.replace("  num_loops: {choices: [1, 2]}\n", search))


def test_knobs_of_tasks_that_are_not_trained_on_change_nothing(tmp_path: Path) -> None:
    plain = resolve(load(tmp_path, STUDY), {"num_loops": 2})
    other = resolve(load(tmp_path, STUDY.replace(DATA, DATA.replace("}", ", hops: 7, group: z3}"))), {"num_loops": 2})
    assert plain.fingerprint == other.fingerprint
    assert plain.data.vocab_size == plain.model.vocab_size == 13


def test_configurations_of_before_keep_their_identity() -> None:
    """What was written down when p-hop was the only task still names the same data."""
    assert DataConfig(corpus="phop", hops=3, seq_len=64).normalised().to_dict() == {
        "corpus": "phop",
        "vocab": "bytes",
        "seq_len": 64,
        "eval_sequences": 64,
        "hops": 3,
        "alphabet": 4,
        "labels": "dense",
        "answer_delay": 0,
    }


def test_files_of_a_mixture_are_beside_the_study(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for index in range(20):
        (tmp_path / "texts" / f"{index}.txt").write_text("words and words\n" * 40)
    spec = load(tmp_path, STUDY.replace("corpus: addition", "corpus: 3*files:texts/*.txt + addition"))
    assert spec.data.corpus == f"3*files:{tmp_path}/texts/*.txt + addition"
    assert spec.data.corpus is not None
    with pytest.raises(SpecError, match=r"study.yaml:3: .*matches no file"):
        load(tmp_path, STUDY.replace("corpus: addition", "corpus: files:none/*.txt + addition"))


def test_code_that_was_not_fetched_is_said_before_anything_starts(tmp_path: Path) -> None:
    text = STUDY.replace(DATA, "data: {corpus: stdlib, code_sets: humaneval+mbpp}")
    spec = load(tmp_path, text.replace("tasks/addition/accuracy, direction: maximize", BITS))
    home = Home(tmp_path / "home")
    with pytest.raises(ServiceError, match="fetch with: plt data fetch humaneval mbpp"):
        refuse_missing_code_sets(spec, home)
    for name in ("humaneval", "mbpp"):
        path = home.data / "code" / f"{name}.jsonl.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    refuse_missing_code_sets(spec, home)
