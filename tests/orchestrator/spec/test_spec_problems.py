"""A wrong study file is refused with file, line, value and remedy; everything that is wrong is said at once."""

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import load_spec

LINES = [
    "name: small",
    "model: {variant: plt, d_model: 64, num_layers: 2, num_heads: 4}",
    "data: {seq_len: 128}",
    "train: {tokens: 1M}",
    "search:",
    "  num_loops: {choices: [1, 2, 3]}",
    "  window: {choices: [8, 16], when: {num_loops: '>1'}}",
    "objectives: [{metric: val/loss, direction: minimize}]",
    "constraints: []",
    "budget: {configurations: 5}",
    "sampler: {name: auto}",
    "benchmark: {}",
]

WRONG = [
    (1, "nme: small", "nme is not a known key; known are name, question"),
    (1, "nme: small", "did you mean name?"),
    (1, "name: a b", "name is 'a b'; it must be letters, digits"),
    (1, "name: 2024-01-01", "name is 2024-01-01, of a kind that no study file holds; write text in quotes"),
    (2, "model: {variant: plt, d_model: 64, num_layer: 2, num_heads: 4}", "did you mean num_layers?"),
    (2, "model: {variant: plt, d_model: 64, num_layers: 2}", "num_heads is missing; give it under model or search"),
    (2, "model: {variant: ptl, d_model: 64, num_layers: 2, num_heads: 4}", "model.variant is 'ptl'; it must be one of"),
    (
        2,
        "model: {variant: plt, d_model: 64.5, num_layers: 2, num_heads: 4}",
        "model.d_model is 64.5; it must be a whole",
    ),
    (
        2,
        "model: {variant: plt, d_model: true, num_layers: 2, num_heads: 4}",
        "model.d_model is true; it must be a whole",
    ),
    (
        2,
        "model: {variant: plt, d_model: 62, num_layers: 2, num_heads: 4}",
        "d_model is 62; it must be a multiple of num_heads",
    ),
    (
        2,
        "model: {variant: plt, d_model: 64, num_layers: 2, num_heads: 4, gate_mode: 1.5}",
        "gate_mode is 1.5; it must be",
    ),
    (
        2,
        "model: {variant: plt, d_model: 64, num_layers: 2, num_heads: 4, gate_mode: off}",
        "it must be a number or 'learned'",
    ),
    (2, "model: 7", "model is 7; it must be keys and values"),
    (3, "data: {seq_len: 1}", "seq_len is 1; it must be 2 or more slots"),
    (
        3,
        "data: {corpus: wikipedia}",
        "data.corpus is 'wikipedia'; it must be stdlib, files:GLOB, a task (phop, addition, igsm, variables",
    ),
    (4, "train: {tokens: 1Q}", "train.tokens is '1Q'; it must be a number of tokens, such as 200k, 4M or 1B"),
    (4, "train: {lr: '1e-3'}", "train.lr is '1e-3'; it must be a number"),
    (4, "train: {lr: .inf}", "train.lr is .inf; a study file holds finite numbers only"),
    (4, "train: {lr: .nan}", "train.lr is .nan; a study file holds finite numbers only"),
    (4, "train: {lr: 0}", "lr is 0.0; it must be positive"),
    (4, "train: {compile: yes}", "train.compile is 'yes'; it must be 'auto', 'on' or 'off'"),
    (4, "train: !!python/name:os.system {}", "train has the tag tag:yaml.org,2002:python/name:os.system"),
    (6, "  num_lops: {choices: [1, 2, 3]}", "'num_lops' is no knob that can be searched; did you mean num_loops?"),
    (6, "  num_loops: {choices: []}", "search.num_loops.choices is []; it must be a list of at least one"),
    (6, "  num_loops: {choices: [1, 2, 1]}", "search.num_loops: choices 1 and 1 are equal; list every value once"),
    (6, "  gate_mode: {choices: [1, 1.0]}", "are equal; list every value once"),
    (6, "  num_loops: {choices: [true, 2]}", "search.num_loops.choices[0] is true; it must be a whole number"),
    (6, "  num_loops: {choices: [0, 1]}", "search.num_loops.choices[0] is 0; it must be greater than or equal to 1"),
    (6, "  num_loops: {low: 3, high: 1}", "search.num_loops: low is 3 and high is 1; low must be at most high"),
    (6, "  num_loops: {low: 1.5, high: 3}", "search.num_loops.low is 1.5; it must be a whole number"),
    (6, "  num_loops: {low: 1, high: 4, step: 2}", "step is 2; it must be positive and lead from low (1) to high (4)"),
    (6, "  num_loops: {low: 1}", "search.num_loops.high is missing"),
    (6, "  num_loops: {low: 1, high: 3, base: 2}", "search.num_loops.base is not a known key; known are when, low"),
    (6, "  num_loops: 3", "num_loops is 3; write {choices: [...]} or {low: ..., high: ...}"),
    (6, "  lr: {low: 0, high: 1, log: true}", "search.lr: low is 0.0; it must be positive when log is true"),
    (6, "  lr: {low: 1e-3, high: 1, log: true, step: 1e-3}", "log and step cannot be used together"),
    (6, "  clp: {low: 0, high: 1}", "clp takes no numbers; write {choices: [...]}"),
    (6, "  gate_mode: {low: learned, high: 1}", "low is 'learned'; a range needs numbers, use choices instead"),
    (6, "  d_model: {choices: [64, 66]}", "d_model is 66; it must be a multiple of num_heads (4) (at d_model=66"),
    (6, "  d_model: {low: 64, high: 72, step: 2}", "d_model is 66; it must be a multiple of num_heads (4)"),
    (7, "  window: {choices: [8, 256]}", "window is 256; it must be at most seq_len (128)"),
    (7, "  window: {low: 8, high: 129, log: true}", "window is 129; it must be at most seq_len (128)"),
    (7, "  window: {choices: [8], when: {loops: '>1'}}", "names 'loops', which is no knob; did you mean num_loops?"),
    (7, "  window: {choices: [8], when: {local: swe}}", "local cannot be 'swe'; it must be 'none' or 'swa'"),
    (7, "  window: {choices: [8], when: {local: '>swa'}}", "compares local with 'swa', which is no number"),
    (7, "  window: {choices: [8], when: {num_loops: []}}", "allows no value of num_loops"),
    (7, "  window: {choices: [8], when: {window: 8}}", "the condition of window depends on window"),
    (8, "objectives: []", "objectives is []; it must be a list of at least one"),
    (8, "objectives: [{metric: val/los, direction: minimize}]", "did you mean val/loss?"),
    (
        8,
        "objectives: [{metric: tasks/phop/accuracy, direction: maximize}]",
        "with this data; choose from val/bits_per_byte",
    ),
    (
        8,
        "objectives: [{metric: val/loss, direction: down}]",
        "objectives[0].direction is 'down'; it must be 'minimize' or",
    ),
    (8, "objectives: [{metric: b8/decode/ms_per_token, direction: minimize}]", "nothing produces a metric 'b8/decode"),
    (9, "constraints: ['val/loss == 3']", "constraint 'val/loss == 3' must be METRIC, then one of <=, <, >=, >"),
    (
        9,
        "constraints: ['kv/bytes_per_sequence <= 4mb']",
        "must be an amount of memory, such as 4MB (4,000,000 bytes)",
    ),
    (9, "constraints: ['val/los <= 3']", "did you mean val/loss?"),
    (9, "constraints: ['kv/bytes_per_sequence <= 1kB']", "no point meets 'kv/bytes_per_sequence <= 1kB'"),
    (10, "budget: {configurations: 0}", "budget.configurations is 0; it must be greater than or equal to 1"),
    (10, "budget: {}", "budget.configurations is missing"),
    (10, "budget: {configurations: 1, wall_clock: 3 weeks}", "it must be a duration, such as 45s, 30m, 2h or 1d"),
    (11, "sampler: {name: cmaes}", "sampler.name is 'cmaes'; it must be 'auto', 'tpe', 'nsga2', 'gp', 'random' or"),
    (12, "benchmark: {batch_sizes: []}", "benchmark.batch_sizes is []; it must be a list of at least one"),
    (12, "benchmark: {model: {window: 4}}", "benchmark.model.window is not a known key; known are d_model"),
]


def refusal(folder: Path, lines: list[str]) -> list[str]:
    """The lines of the error, without the folder."""
    path = folder / "study.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


@pytest.mark.parametrize(("line", "text", "expected"), WRONG)
def test_each_fault_is_named_with_its_line(tmp_path: Path, line: int, text: str, expected: str) -> None:
    found = refusal(tmp_path, [*LINES[: line - 1], text, *LINES[line:]])
    assert any(one.startswith(f"study.yaml:{line}: ") and expected in one for one in found), found


def test_the_unchanged_study_is_right(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("\n".join(LINES), encoding="utf-8")
    assert load_spec(path).name == "small"


def test_all_faults_are_named_at_once(tmp_path: Path) -> None:
    wrong = {4: "train: {lr: fast}", 6: "  num_loops: {low: 3, high: 1}", 10: "budget: {}", 12: "benchmark: {x: 1}"}
    found = refusal(tmp_path, [wrong.get(number, text) for number, text in enumerate(LINES, start=1)])
    assert {one.split(": ")[0] for one in found} == {f"study.yaml:{number}" for number in wrong}


def test_a_decode_metric_needs_a_benchmark(tmp_path: Path) -> None:
    lines = [*LINES[:7], "objectives: [{metric: decode/ms_per_token, direction: minimize}]", *LINES[8:11]]
    assert refusal(tmp_path, lines) == [
        "study.yaml:8: nothing measures 'decode/ms_per_token': the study has no benchmark; add a benchmark section "
        "({} will do)"
    ]


def test_a_grid_needs_points_that_can_be_listed(tmp_path: Path) -> None:
    lines = [*LINES[:5], "  lr: {low: 1e-3, high: 1e-2}", *LINES[6:10], "sampler: {name: grid}"]
    assert refusal(tmp_path, lines)[0].startswith(
        "study.yaml:11: sampler.name is 'grid', but lr cannot be listed; give every range whole numbers or a step"
    )


def test_a_condition_on_a_later_knob_says_which_to_move(tmp_path: Path) -> None:
    lines = [*LINES[:5], LINES[6], LINES[5], *LINES[7:]]
    assert refusal(tmp_path, lines) == [
        "study.yaml:6: the condition of window depends on num_loops, which must be searched before it; "
        "move num_loops up"
    ]


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 'found duplicate key "a"'),
        ("a: [1\nb: 2\n", 2, "expected ',' or ']'"),
        ("- 1\n", 1, "a study file is keys and values"),
        ("", 1, "a study file is keys and values"),
        ("a: " + "[" * 30 + "]" * 30, 1, "20 levels"),
        ("1: x\nname: y\n", 1, "key 1 in the file is no word"),
        ("a: &a [" + "1," * 99 + "1]\nb: &b [" + "*a," * 99 + "*a]\nc: [*b, *b]\n", 1, "more than 10,000 values"),
    ],
)
def test_bad_yaml_is_one_line(tmp_path: Path, text: str, line: int, expected: str) -> None:
    found = refusal(tmp_path, [text])
    assert len(found) == 1
    assert found[0].startswith(f"study.yaml:{line}: ")
    assert expected in found[0]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for path, expected in [
        (tmp_path / "none.yaml", "cannot be read (No such file or directory)"),
        (tmp_path, "cannot be read (Is a directory)"),
        (tmp_path / "latin.yaml", "is not UTF-8 text"),
    ]:
        with pytest.raises(SpecError, match=r".") as caught:
            load_spec(path)
        assert expected in str(caught.value)
        assert "\n" not in str(caught.value)


def test_bases(tmp_path: Path) -> None:
    assert refusal(tmp_path, ["base: none.yaml"])[0].startswith("study.yaml:1: base is 'none.yaml', and ")
    assert refusal(tmp_path, ["name: x", "base: 3"])[0].startswith("study.yaml:2: base is 3; it must be the path")
    assert "based on each other" in refusal(tmp_path, ["base: study.yaml"])[0]
    (tmp_path / "base.yaml").write_text("\n".join([*LINES[:3], "train: {lr: fast}", *LINES[4:]]), encoding="utf-8")
    assert refusal(tmp_path, ["base: base.yaml", "data: {seq_len: long}"]) == [
        "study.yaml:2: data.seq_len is 'long'; it must be a whole number",
        "base.yaml:4: train.lr is 'fast'; it must be a number",
    ]
