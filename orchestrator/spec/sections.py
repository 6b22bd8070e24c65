"""The sections of a study file, and with them its whole vocabulary: which keys there are and what they may hold.

The sections `model`, `data` and `train` hold knobs. A key that is left out is None here and gets its value later: from
the search, the variant or the default. What a knob means is said where it takes effect: `workers.config`.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from orchestrator.backends.placement import Strategy
from orchestrator.spec.limits import Count, Depth, Hours, Memory, PlainName, Seconds, Seed, Tokens, Whole, Width
from orchestrator.spec.written import EntryError, shown
from workers.config import BenchmarkConfig
from workers.config.data_config import CodeSets
from workers.config.depths import parse_depths, write_depths
from workers.config.mixture import parse_corpus, write_corpus
from workers.config.model_config import GateInput, GatePolarity, KvMode, LocalBranch
from workers.config.task_shapes import group_order
from workers.config.train_config import Compile, Precision
from workers.config.variants import VARIANTS
from workers.protocol import Parallel

_BPE = re.compile(r"bpe:([0-9]{3,5})")
_TOKENIZER = re.compile(r"tokenizer:[0-9]{1,8}:[0-9]{1,8}:[0-9a-f]{16}:.+")


class Section(BaseModel):
    """Frozen, of exact types, with unknown keys and numbers that are not finite refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _known_vocab(vocab: str) -> str:
    sized = _BPE.fullmatch(vocab)
    if _TOKENIZER.fullmatch(vocab):  # what `model: {from: FOLDER}` stands for
        return vocab
    if vocab != "bytes" and not (sized and 257 <= int(sized[1]) <= 65536):
        raise ValueError("must be bytes, or bpe:N with N from 257 to 65536")
    return vocab


Vocab = Annotated[str, AfterValidator(_known_vocab)]


def _known_variant(name: str) -> str:
    if name not in VARIANTS:
        raise ValueError(f"must be one of {', '.join(VARIANTS)}")
    return name


class ModelSection(Section):
    """Sizes, then the variant and the loop knobs that differ from it."""

    from_folder: str | None = Field(default=None, alias="from")
    """A checkpoint folder to start from: its sizes, its loop knobs where nothing else is said, its weights."""
    vocab: Vocab | None = None
    """May stand here, where it sizes the embedding, or under `data`, whose text it cuts; not in both."""
    d_model: Width | None = None
    num_layers: Depth | None = None
    num_heads: Width | None = None
    num_kv_heads: Width | None = None
    d_ff: Width | None = None
    rope_theta: float | None = None
    rms_norm_eps: float | None = None
    tie_embeddings: bool | None = None
    embedding_init_std: float | None = None
    variant: Annotated[str, AfterValidator(_known_variant)] | None = None
    num_loops: Depth | None = None
    clp: bool | None = None
    reinject: bool | None = None
    emb_scale: float | None = None
    hidden_scale: float | None = None
    norm_per_loop: bool | None = None
    kv_mode: KvMode | None = None
    local: LocalBranch | None = None
    window: Count | None = None
    gate_input: GateInput | None = None
    gate_polarity: GatePolarity | None = None
    gate_mode: float | Literal["learned"] | None = None
    gate_bias_init: float | None = None


def _known_corpus(name: str) -> str:
    return write_corpus(parse_corpus(name))


def _known_group(name: str) -> str:
    group_order(name)
    return name


def _known_depths(written: object) -> object:
    return write_depths(parse_depths(written))  # type: ignore[arg-type]  # whatever it is, it is refused in these words


DepthsKnob = Annotated[int | str, BeforeValidator(_known_depths)]
"""One depth of a task, or a range or list of them as text."""


class DataSection(Section):
    """Corpora and generated tasks; the glob of `files:GLOB` is relative to the study file."""

    corpus: Annotated[str, AfterValidator(_known_corpus)] | None = None
    vocab: Vocab | None = None
    seq_len: Whole | None = None
    eval_sequences: Whole | None = None
    hops: DepthsKnob | None = None
    alphabet: Whole | None = None
    labels: Literal["dense", "last"] | None = None
    answer_delay: Whole | None = None
    extrapolate: Whole | None = None
    operands: DepthsKnob | None = None
    digits: Whole | None = None
    operations: DepthsKnob | None = None
    statements: Whole | None = None
    copies: DepthsKnob | None = None
    assignments: Whole | None = None
    products: DepthsKnob | None = None
    group: Annotated[str, AfterValidator(_known_group)] | None = None
    operators: DepthsKnob | None = None
    successors: DepthsKnob | None = None
    nodes: Whole | None = None
    name_tokens: Whole | None = None
    code_sets: CodeSets | None = None


class TrainSection(Section):
    """Budget, optimizer and precision."""

    tokens: Tokens | None = None
    batch_size: Whole | None = None
    micro_batch_size: Whole | None = None
    lr: float | None = None
    min_lr_ratio: float | None = None
    warmup_ratio: float | None = None
    weight_decay: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    grad_clip: float | None = None
    precision: Precision | None = None
    compile: Compile | None = None
    evaluations: Whole | None = None


class SamplerSection(Section):
    """Who proposes parameters; `auto` is grid when every point fits the budget, else tpe."""

    name: Literal["auto", "tpe", "nsga2", "gp", "random", "grid"] = "auto"
    seed: Seed = 0


_RUNGS: Mapping[str, tuple[str, ...]] = {
    "none": (),
    "median": ("reduction_factor", "min_tokens"),
    "moasha": ("reduction_factor", "min_tokens", "brackets"),
}
"""Pruners, and the settings that have an effect on each."""


class PrunerSection(Section):
    """Who stops weak trials early, at rungs of `min_tokens * reduction_factor^k` trained tokens.

    A setting without effect on the named pruner is refused, and left out of plain data.
    """

    name: Literal["none", "median", "moasha"] = "none"
    reduction_factor: Annotated[float, Field(gt=1)] = 3.0
    """From one rung to the next; `moasha` lets one in so many go on."""
    min_tokens: Tokens | None = None
    """The first rung; None leaves it to the pruner. A trial of at most so many tokens is never judged."""
    brackets: Count = 1
    """First rungs that trials are spread over, so that slow starters are judged later too."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        idle = sorted(self.model_fields_set - {"name", *_RUNGS[self.name]})
        if idle:
            users = " or ".join(name for name, used in _RUNGS.items() if idle[0] in used)
            value = shown(getattr(self, idle[0]))
            message = f"{idle[0]} is {value} and has no effect with pruner {self.name}; leave it out, or use {users}"
            raise EntryError(idle[0], message)
        return self

    @model_serializer(mode="wrap")
    def _with_effect(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in plain(self).items() if name in ("name", *_RUNGS[self.name])}


class BudgetSection(Section):
    """When the study ends."""

    configurations: Count
    """Distinct configurations over the study's whole life."""
    wall_clock: Seconds | None = None
    """Seconds that one `plt run` may take."""
    device_hours: Hours | None = None
    """Hours of attempts over the study's whole life: a fraction of a GPU counts as that fraction, a worker on the
    CPU as one device."""
    max_failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Failed over finished trials at which the study stops."""


class Needs(Section):
    """What a worker's machine must have besides CPUs and GPUs. Only Ray looks for it, not `--backend local`."""

    memory: Memory | None = None
    """Reserved, not enforced."""
    accelerator: PlainName | None = None
    """Type of the device by Ray's name: `H100`, `A100`, `L4`, ... ."""
    labels: dict[PlainName, PlainName] | None = None
    """Labels of the node, each with its value."""
    resources: dict[PlainName, Annotated[float, Field(gt=0)]] | None = None
    """Further resources that the cluster's owner gave its nodes, each with its amount."""

    @property
    def elsewhere(self) -> bool:
        """Whether anything is asked for."""
        return any(value is not None for value in (self.memory, self.accelerator, self.labels, self.resources))


class Share(Needs):
    """What one worker of a training attempt reserves."""

    gpus: Annotated[float, Field(ge=0)] | None = None
    """Fractions share a GPU. None: one GPU where the cluster has any, else none; 0 trains on the CPU."""
    cpus: Annotated[float, Field(gt=0)] = 1.0

    @property
    def threads(self) -> int:
        """CPU threads of the attempt's process: whole CPUs, at least one."""
        return max(1, int(self.cpus))


def _whole_device(gpus: object) -> object:
    if gpus is not None and (isinstance(gpus, bool) or gpus != 1):
        raise ValueError("must be 1, because a benchmark measures on one whole device")
    return gpus


def _alone(exclusive: object) -> object:
    if exclusive is not True:
        raise ValueError("must be true, because latency measured beside other work is no latency")
    return exclusive


class BenchmarkShare(Needs):
    """What a decode benchmark computes with while it has the device to itself.

    It runs where a trial trains, unless something that `Needs` lists is asked for: then on machines that have it.
    """

    gpus: Annotated[int | None, BeforeValidator(_whole_device)] = None
    """1, or None: where a trial of the study trains, GPU or CPU."""
    cpus: Annotated[float, Field(gt=0)] | None = None
    """None: every core that the worker may use."""
    exclusive: Annotated[bool, BeforeValidator(_alone)] = True
    """Always true; to be written where a reader should know."""

    @property
    def threads(self) -> int | None:
        """CPU threads of the measurement, or None for every core."""
        return None if self.cpus is None else max(1, int(self.cpus))


class ResourcesSection(Section):
    """Reservations by kind of attempt."""

    train: Share = Share()
    benchmark: BenchmarkShare = BenchmarkShare()
    workers_per_trial: Count = 1
    """Processes that train one trial together, each with what `train` reserves, all of them at once or none."""
    parallel: Parallel | None = None
    """How several share a model: `ddp` (the default), each has all of it; `fsdp`, each a part."""
    placement: Strategy | None = None
    """How several are placed on nodes; the default is `pack`."""
    placement_timeout: Seconds | None = None
    """Seconds for which an attempt may wait for its place before it has failed; the default is an hour. When no node
    has had room for so long, the study is interrupted."""


class BenchmarkSizes(Section):
    """Sizes at which decoding is measured; what is left out is as in training."""

    d_model: Width | None = None
    num_layers: Depth | None = None
    num_heads: Width | None = None
    num_kv_heads: Width | None = None
    d_ff: Width | None = None
    vocab_size: Width | None = None


_GRID = BenchmarkConfig()


class BenchmarkSection(Section):
    """The decode benchmark; a study without this section measures no decoding."""

    model: BenchmarkSizes = BenchmarkSizes()
    batch_sizes: Annotated[tuple[Count, ...], Field(min_length=1, strict=False)] = _GRID.batch_sizes
    context: Count = _GRID.context
    generate: Count = _GRID.generate
    repeats: Count = _GRID.repeats
    precision: Literal["bfloat16", "float32"] = _GRID.precision

    def sizes(self) -> dict[str, int]:
        """The overridden sizes by name."""
        sizes: dict[str, int] = self.model.model_dump(exclude_none=True)
        return sizes

    def config(self) -> BenchmarkConfig:
        """What the worker is asked to measure."""
        return BenchmarkConfig(
            batch_sizes=self.batch_sizes,
            context=self.context,
            generate=self.generate,
            repeats=self.repeats,
            precision=self.precision,
        )


class DiagnosticsSection(Section):
    """What each loop does and costs, measured once on every trained model: `loops/<r>/<name>` and a table."""

    sequences: Whole = 32
    """Held-out sequences that are looked at, the same ones for every trial; 0 leaves the diagnostics out."""


class RetrySection(Section):
    """What happens to an attempt that failed for a passing reason."""

    max_attempts: Count = 3
    trial_timeout: Seconds = 1800.0
    """Seconds without any report after which an attempt counts as hung."""
    worker_lease: Seconds = 60.0
    """Seconds without any sign of life after which a worker counts as lost, frozen or cut off."""
