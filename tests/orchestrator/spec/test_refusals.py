"""The study file with the whole vocabulary is read; one wrong line in it is refused there, with value and remedy."""

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec import StudySpec, load_spec
from workers.config import DataConfig
from workers.data import DataError, prepare

MODEL = "model: {variant: plt, d_model: 256, num_layers: 4, num_heads: 4, num_kv_heads: 2, vocab: bytes}"

WRONG = [
    # names
    (1, "name: plt/loops", "name is 'plt/loops'; it must be letters, digits, dots, dashes and underscores"),
    (1, "name: ../plt", "name is '../plt'; it must be letters"),
    (1, "name: ''", "name is ''; it must be letters"),
    (1, "name: 'a@b'", "name is 'a@b'; it must be letters"),
    (1, f"name: {'x' * 251}", "at most 100, the first no sign"),
    # unknown keys
    (1, "nme: plt", "nme is not a known key; known are name, question"),
    (1, "nme: plt", "did you mean name?"),
    (1, "lr: 3e-3", "; lr belongs under train"),
    (3, MODEL.replace("vocab: bytes", "batch_size: 4"), "model.batch_size is not a known key"),
    (3, MODEL.replace("vocab: bytes", "batch_size: 4"), "; batch_size belongs under train"),
    (3, MODEL.replace("d_model", "d_modle"), "; did you mean d_model?"),
    (18, "pruner: {name: moasha, min_token: 200k}", "; did you mean min_tokens?"),
    (20, "resources: {benchmark: {exklusive: true}}", "; did you mean exclusive?"),
    (22, "retry: {trial_timeouts: 30m}", "; did you mean trial_timeout?"),
    # nothing behind a key
    (3, "model:", "model has no value (null); give it one, or leave it out"),
    (5, "train: {lr: null}", "train.lr has no value (null)"),
    (11, "seeds: [0, ~]", "seeds[1] has no value (null)"),
    (21, "benchmark:", "without it nothing is measured; {} measures with the defaults"),
    # choices and ranges
    (7, "  num_loops: {choices: []}", "search.num_loops.choices is []; it must be a list of at least one"),
    (7, "  num_loops: {choices: [1, 2, 1]}", "choices 1 and 1 are equal; list every value once"),
    (7, "  num_loops: {choices: [true, 1]}", "choices[0] is true; it must be a whole number"),
    (7, "  clp: {choices: [true, 1]}", "choices[1] is 1; it must be true or false"),
    (9, "  gate_mode: {choices: [1, 1.0]}", "are equal; list every value once"),
    (9, "  gate_mode: {choices: [learned, learned]}", "choices 'learned' and 'learned' are equal"),
    (10, "  lr: {low: 1e-2, high: 1e-3}", "low is 0.01 and high is 0.001; low must be at most high"),
    (10, "  lr: {low: 0, high: 1e-3, log: true}", "low is 0.0; it must be positive when log is true"),
    (10, "  lr: {low: -1, high: 1e-3, log: true}", "low is -1.0; it must be positive when log is true"),
    (10, "  lr: {low: 0, high: 1e300, step: 1e-10}", "step is 1e-10; it must be positive and lead from low (0.0)"),
    (10, "  lr: {low: 1, high: .inf}", "search.lr.high is .inf; a study file holds finite numbers only"),
    (8, "  window: {choices: [512]}", "window is 512; it must be at most seq_len (256)"),
    (8, "  window: {low: 300, high: 400}", "window is 300; it must be at most seq_len (256)"),
    # objectives and constraints
    (13, "  - {metric: val/bits_per_bite, direction: minimize}", "did you mean val/bits_per_byte?"),
    (13, "  - {metric: tasks/phop/accuracy, direction: maximize}", "nothing produces 'tasks/phop/accuracy' with this"),
    (13, "  - {metric: b4/decode/ms_per_token, direction: minimize}", "nothing produces a metric 'b4/decode/ms_per_"),
    (16, "constraints: ['kv/bytes <= 4MB']", "did you mean kv/bytes_per_sequence?"),
    (16, "constraints: ['kv/bytes_per_sequence <= 4MB']", "no point meets 'kv/bytes_per_sequence <= 4MB'"),
    (16, "constraints: ['kv/bytes_per_sequence <= 4MB']", "lies from 8,388,608 to 11,534,336; move the bound"),
    (16, "constraints: ['model/parameters <= 1M']", "no point meets 'model/parameters <= 1M': model/parameters lies"),
    (16, "constraints: ['val/accuracy >= 1.5']", "val/accuracy is always from 0 to 1"),
    (16, "constraints: ['decode/ms_per_token <= 0']", "decode/ms_per_token is always above 0"),
    (16, "constraints: ['decode/ms_per_token <= 4MB']", "must compare with a plain number in the metric's own unit"),
    (16, "constraints: ['val/loss <= 1', 'val/loss >= 2']", "no value meets both 'val/loss >= 2' and 'val/loss <= 1'"),
    (16, "constraints: ['val/loss < 1', 'val/loss > 1']", "no value meets both 'val/loss > 1' and 'val/loss < 1'"),
    (16, "constraints: ['val/loss <= 1', 'val/loss <= 1.0']", "'val/loss <= 1.0' is there twice; leave one out"),
    (16, "constraints: ['kv/bytes_per_sequence <= 1e400']", "must compare with a finite number"),
    # sampler and pruner
    (17, "sampler: {name: grid}", "sampler.name is 'grid', but lr cannot be listed"),
    (17, "sampler: {name: gpx}", "sampler.name is 'gpx'; it must be 'auto', 'tpe', 'nsga2', 'gp', 'random' or 'grid'"),
    (18, "pruner: {name: none, min_tokens: 200k}", "min_tokens is 200000 and has no effect with pruner none"),
    (18, "pruner: {name: none, min_tokens: 200k}", "leave it out, or use median or moasha"),
    (18, "pruner: {reduction_factor: 3}", "reduction_factor is 3.0 and has no effect with pruner none"),
    (18, "pruner: {name: median, brackets: 2}", "brackets is 2 and has no effect with pruner median"),
    (18, "pruner: {name: median, brackets: 2}", "leave it out, or use moasha"),
    (18, "pruner: {name: moasha, reduction_factor: 1}", "reduction_factor is 1; it must be greater than 1"),
    (18, "pruner: {name: moasha, min_tokens: 0}", "min_tokens is 0; it must be greater than or equal to 1"),
    (18, "pruner: {name: moasha, min_tokens: 4M}", "pruner.min_tokens is 4,000,000, and no point trains longer than"),
    (18, "pruner: {name: moasha, min_tokens: 4M}", "3,997,696 tokens, so none is ever judged; lower it"),
    # sizes
    (
        3,
        MODEL.replace("256", "1000000000000"),
        "d_model is 1000000000000; it must be at most 10,000,000: no layer is",
    ),
    (3, MODEL.replace("256", "4000000"), "more than any machine holds (1,000,000,000,000); lower its sizes"),
    (4, "data: {corpus: stdlib, seq_len: 100000000000}", "data.seq_len is 100000000000; it must be at most"),
    (5, "train: {tokens: 4000T, batch_size: 16}", "train.tokens is '4000T'; it must be at most 1,000,000,000,000,000"),
    (5, "train: {tokens: 1e99999k}", "it must be a number of tokens, such as 200k, 4M or 1B, and not be so large"),
    (5, "train: {tokens: 1k, batch_size: 16}", "tokens is 1,000; it must be at least 4,096, which one step"),
    (5, "train: {tokens: 4000T, batch_size: 900M}", "train.batch_size is '900M'; it must be a whole number"),
    (5, "train: {tokens: 900T, batch_size: 900000000}", "slots, more than 1,000,000,000; lower batch_size or seq_len"),
    (19, "budget: {configurations: 1e12}", "budget.configurations is 1000000000000.0; it must be a whole number"),
    (19, "budget: {configurations: 1000000000000}", "it must be at most 1,000,000,000: no study counts further"),
    (19, "budget: {configurations: 1, wall_clock: 9999d}", "it must be at most 315,360,000: that is ten years"),
    (19, "budget: {configurations: 1, device_hours: 0}", "device_hours is 0; it must be greater than 0"),
    (21, "benchmark: {context: 900000000, batch_sizes: [900000]}", "more than any machine holds"),
    # resources and retries
    (20, "resources: {benchmark: {gpus: 2}}", "gpus is 2; it must be 1, because a benchmark measures on one whole"),
    (20, "resources: {benchmark: {gpus: 0.5}}", "gpus is 0.5; it must be 1"),
    (20, "resources: {benchmark: {exclusive: false}}", "exclusive is false; it must be true, because latency measured"),
    (20, "resources: {workers_per_trial: 0}", "workers_per_trial is 0; it must be greater than or equal to 1"),
    (22, "retry: {trial_timeout: 0}", "retry.trial_timeout is 0; it must be greater than 0"),
    (22, "retry: {max_attempts: 0}", "retry.max_attempts is 0; it must be greater than or equal to 1"),
    # model
    (
        3,
        MODEL.replace("vocab: bytes", "vocab: words"),
        "model.vocab is 'words'; it must be bytes, or bpe:N with N",
    ),
    (3, MODEL.replace("256", "100"), "d_model / num_heads is 25; it must be even"),
    (
        21,
        "benchmark: {model: {num_heads: 3}}",
        "benchmark.model.d_model is 256; it must be a multiple of num_heads",
    ),
]


def read(folder: Path, lines: list[str]) -> StudySpec:
    path = folder / "study.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    return load_spec(path)


def refusal(folder: Path, lines: list[str]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read(folder, lines)
    return str(caught.value).replace(f"{folder}/", "").splitlines()


def test_the_whole_vocabulary_is_read(tmp_path: Path, example: str) -> None:
    spec = read(tmp_path, example.splitlines())
    assert spec.model.vocab == "bytes"
    assert (spec.pruner.name, spec.pruner.reduction_factor, spec.pruner.min_tokens) == ("moasha", 3, 200_000)
    assert (spec.budget.wall_clock, spec.budget.device_hours) == (7200, 8)
    assert (spec.resources.benchmark.gpus, spec.resources.benchmark.exclusive) == (1, True)
    assert (spec.resources.workers_per_trial, spec.retry.trial_timeout) == (1, 1800)
    assert StudySpec.from_plain(spec.to_plain()) == spec


@pytest.mark.parametrize("pruner", [{}, {"name": "median", "reduction_factor": 2}, {"name": "moasha", "brackets": 2}])
def test_plain_data_has_the_settings_that_have_an_effect(
    tmp_path: Path, example: str, pruner: dict[str, object]
) -> None:
    plain = {**read(tmp_path, example.splitlines()).to_plain(), "pruner": pruner}
    spec = StudySpec.from_plain(plain)
    assert StudySpec.from_plain(spec.to_plain()) == spec
    assert set(spec.to_plain()["pruner"]) >= set(pruner)


@pytest.mark.parametrize(("line", "text", "expected"), WRONG)
def test_one_wrong_line_is_named(tmp_path: Path, example: str, line: int, text: str, expected: str) -> None:
    lines = example.splitlines()
    found = refusal(tmp_path, [*lines[: line - 1], text, *lines[line:]])
    assert any(one.startswith(f"study.yaml:{line}: ") and expected in one for one in found), found


def test_a_refusal_names_the_line_of_the_key_and_not_of_its_section(tmp_path: Path, example: str) -> None:
    spread = [
        (18, ["pruner:", "  name: none", "  reduction_factor: 2"], 20),
        (10, ["  lr:", "    high: 1e-3", "    log: true", "    low: 0"], 13),
        (10, ["  lr:", "    low: 1e-3", "    high: 1e-2", "    step: 0.7"], 13),
        (7, ["  num_loops:", "    choices:", "    - 1", "    - 1"], 8),
        (21, ["benchmark:", "  context: 8", "  model:", "    num_layers: 8", "    num_kv_heads: 3"], 25),
        (21, ["benchmark:", "  context: 8", "  model:", "    d_model: 10000000", "    num_layers: 9"], 23),
    ]
    lines = example.splitlines()
    for line, texts, expected in spread:
        found = refusal(tmp_path, [*lines[: line - 1], *texts, *lines[line:]])
        assert [one.split(": ")[0] for one in found] == [f"study.yaml:{expected}"], found


def test_what_is_wrong_over_several_lines_is_named_where_it_begins(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    assert refusal(tmp_path, [*lines[:5], "search: [num_loops]", *lines[10:]])[0].startswith(
        "study.yaml:6: search is ['num_loops']; write one line per knob"
    )
    assert refusal(tmp_path, example.replace("seq_len: 256", "vocab: bytes").splitlines()) == [
        "study.yaml:3: vocab stands under model and under data; leave one out"
    ]


def test_an_empty_entry_is_one_problem_beside_the_others(tmp_path: Path, example: str) -> None:
    lines = (
        example.replace("[0, 1, 2]  ", "[0, ~]  ").replace("name: plt-loop-count", "name:").replace("lr: 3e-3", "l: 3")
    )
    assert [one.split(": ")[0] for one in refusal(tmp_path, lines.splitlines())] == [
        f"study.yaml:{line}" for line in (1, 11, 5)
    ]


def test_low_may_equal_high(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    lines[6:10] = ["  num_loops: {low: 2, high: 2}", "  lr: {low: 1e-3, high: 1e-3, log: true}"]
    lines[lines.index("sampler:    {name: auto, seed: 0}     # auto | tpe | nsga2 | gp | random | grid")] = (
        "sampler: {name: grid}"
    )
    spec = read(tmp_path, lines)
    assert [list(parameter.every() or ()) for parameter in spec.search.values()] == [[2], [0.001]]


def test_a_window_may_be_as_long_as_the_sequence(tmp_path: Path, example: str) -> None:
    assert read(tmp_path, example.replace("[8, 16, 64]", "[256]").replace("10MB", "40MB").splitlines()).search["window"]


def test_the_points_that_cannot_be_are_counted(tmp_path: Path, example: str) -> None:
    found = refusal(tmp_path, example.replace("[8, 16, 64]", "[8, 300, 400]").splitlines())
    assert len(found) == 1
    assert "window is 300" in found[0]
    assert "(at num_loops=2, window=300, gate_mode='learned', lr=0.001, and 23 more of 38 points)" in found[0]


def test_a_pruner_needs_an_objective_that_training_shows(tmp_path: Path, example: str) -> None:
    lines = [line for line in example.splitlines() if "val/" not in line]
    assert refusal(tmp_path, lines) == [
        "study.yaml:17: pruner.name is 'moasha', but no objective is known during training (decode/ms_per_token, "
        "kv/bytes_per_sequence); add a held-out metric such as val/loss, or use none"
    ]
    assert read(tmp_path, [line.replace("decode/ms_per_token, d", "train/loss, d") for line in lines])


def test_a_pruner_brings_its_own_evaluations(tmp_path: Path, example: str) -> None:
    assert read(tmp_path, example.replace("compile: auto", "compile: auto, evaluations: 1").splitlines())
    assert read(tmp_path, example.replace("min_tokens: 200k", "min_tokens: 3.5M").splitlines())


def test_a_trial_is_not_judged_at_its_end(tmp_path: Path, example: str) -> None:
    lines = example.replace("val/bits_per_byte", "train/loss").replace("min_tokens: 200k", "min_tokens: 3997696")
    assert "and no point trains longer than 3,997,696 tokens" in refusal(tmp_path, lines.splitlines())[0]
    assert read(tmp_path, lines.replace("3997696", "3997695").splitlines())


def test_bounds_from_both_sides_may_leave_room(tmp_path: Path, example: str) -> None:
    for bounds in ("['val/loss >= 1', 'val/loss <= 2']", "['val/loss >= 1', 'val/loss <= 1']"):
        lines = [*example.splitlines()[:15], f"constraints: {bounds}", *example.splitlines()[16:]]
        assert len(read(tmp_path, lines).constraints) == 2


def test_points_that_train_for_less_than_min_tokens_are_no_mistake(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    lines[9] = "  tokens: {choices: [100k, 4M]}"
    assert read(tmp_path, lines).pruner.min_tokens == 200_000


def test_constraints_are_judged_together_where_every_point_is_known(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    lines[6:10] = ["  d_model: {choices: [64, 256]}", "  num_kv_heads: {choices: [1, 4]}"]
    lines[
        lines.index(
            "benchmark:  {model: {d_model: 1024, num_layers: 8}, batch_sizes: [1, 8], context: 512, generate: 128}"
        )
    ] = "benchmark: {context: 128}"
    place = next(index for index, line in enumerate(lines) if line.startswith("constraints"))
    lines[place] = "constraints: ['model/parameters <= 500k', 'kv/bytes_per_sequence >= 300kB']"
    found = refusal(tmp_path, lines)
    assert len(found) == 1
    assert "no point meets 'model/parameters <= 500k' and 'kv/bytes_per_sequence >= 300kB' together" in found[0]


def test_a_constraint_is_judged_in_a_space_of_many_training_settings(tmp_path: Path, example: str) -> None:
    knobs = ("beta1", "beta2", "weight_decay", "grad_clip", "warmup_ratio", "min_lr_ratio", "hidden_scale")
    lines = [
        *example.splitlines()[:10],
        *(f"  {knob}: {{low: 0.1, high: 0.5}}" for knob in knobs),
        *example.replace("10MB", "4MB").splitlines()[10:],
    ]
    assert refusal(tmp_path, lines)[0].startswith("study.yaml:23: no point meets 'kv/bytes_per_sequence <= 4MB'")


def test_absurd_sizes_are_refused_without_computing_with_them(tmp_path: Path, example: str) -> None:
    for absurd in ("1000000000000", "9" * 300, "1" + "0" * 4000, "0x" + "f" * 5000):
        found = refusal(tmp_path, example.replace("d_model: 256", f"d_model: {absurd}").splitlines())
        assert found[0].startswith("study.yaml:3: model.d_model is ")
        assert len(found[0]) < 500


def test_a_corpus_is_looked_at_where_it_lies(tmp_path: Path, example: str) -> None:
    lines = example.replace("corpus: stdlib", "corpus: 'files:texts/*.txt'").splitlines()
    found = refusal(tmp_path, lines)
    assert found[0].startswith("study.yaml:4: corpus is 'files:")
    assert "matches no file" in found[0]
    assert load_spec(tmp_path / "study.yaml", files_here=False).data.seq_len == 256


@pytest.mark.parametrize("size", [1, 2, 600, 1020, 1022, 5000, 5100, 5110, 6000])
@pytest.mark.parametrize("files", [1, 2])
def test_a_corpus_is_refused_where_no_data_set_could_be_made_of_it(
    tmp_path: Path, example: str, size: int, files: int
) -> None:
    (tmp_path / "texts").mkdir()
    for index in range(files):
        (tmp_path / "texts" / f"{index}.txt").write_bytes(b"x" * (size // files))
    lines = example.replace("corpus: stdlib", "corpus: 'files:texts/*.txt'").splitlines()
    data = DataConfig(corpus=f"files:{tmp_path}/texts/*.txt", seq_len=256)
    try:
        prepare(data, tmp_path / "shards")
    except DataError:
        assert refusal(tmp_path, lines)[0].startswith("study.yaml:4: ")
    else:
        assert read(tmp_path, lines).data.corpus == data.corpus


def test_a_searched_corpus_is_named_by_its_own_line(tmp_path: Path, example: str) -> None:
    lines = example.splitlines()
    lines[9:10] = ["  corpus:", "    choices:", "    - stdlib", "    - files:nothing/*"]
    assert [one.split(": ")[0] for one in refusal(tmp_path, lines)] == ["study.yaml:13"]


def test_a_base_may_be_freed_of_a_key_but_not_of_one_it_lacks(tmp_path: Path, example: str) -> None:
    (tmp_path / "base.yaml").write_text(example, encoding="utf-8")
    free = ["base: base.yaml", "pruner: null", "search: {window: null}"]
    assert list(read(tmp_path, free).search) == ["num_loops", "gate_mode", "lr"]
    found = refusal(tmp_path, [*free, "data: {vocab: null}"])
    assert [one.split(":")[1] for one in found] == ["4"]


def test_a_condition_may_name_a_size_that_is_left_to_its_default(tmp_path: Path, example: str) -> None:
    spec = read(tmp_path, example.replace('{num_loops: ">1", local: swa}}     #', "{d_ff: 64}}  #").splitlines())
    assert not spec.search["window"].applies({})
