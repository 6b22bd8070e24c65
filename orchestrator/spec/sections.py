"""The sections of a study file, and with them its whole vocabulary: which keys there are and what they may hold.

The sections `model`, `data` and `train` hold knobs. A key that is left out is None here and gets its value later: from
the search, the variant or the default. What a knob means is said where it takes effect: `workers.config`.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from orchestrator.quantity import seconds, tokens
from workers.config import BenchmarkConfig
from workers.config.model_config import GateInput, GatePolarity, KvMode, LocalBranch
from workers.config.train_config import Compile, Precision
from workers.config.variants import VARIANTS

Count = Annotated[int, Field(ge=1)]
Tokens = Annotated[int, BeforeValidator(tokens)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(gt=0)]


class Section(BaseModel):
    """Frozen, of exact types, with unknown keys and numbers that are not finite refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _known_variant(name: str) -> str:
    if name not in VARIANTS:
        raise ValueError(f"must be one of {', '.join(VARIANTS)}")
    return name


class ModelSection(Section):
    """Sizes, then the variant and the loop knobs that differ from it."""

    d_model: Count | None = None
    num_layers: Count | None = None
    num_heads: Count | None = None
    num_kv_heads: Count | None = None
    d_ff: Count | None = None
    rope_theta: float | None = None
    tie_embeddings: bool | None = None
    embedding_init_std: float | None = None
    variant: Annotated[str, AfterValidator(_known_variant)] | None = None
    num_loops: Count | None = None
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
    if name not in ("stdlib", "phop") and not (name.startswith("files:") and name != "files:"):
        raise ValueError("must be stdlib, files:GLOB or the task phop")
    return name


class DataSection(Section):
    """The corpus or the generated task; the glob of `files:GLOB` is relative to the study file."""

    corpus: Annotated[str, AfterValidator(_known_corpus)] | None = None
    vocab: str | None = None
    seq_len: int | None = None
    eval_sequences: int | None = None
    hops: int | None = None
    alphabet: int | None = None
    labels: Literal["dense", "last"] | None = None
    answer_delay: int | None = None


class TrainSection(Section):
    """Budget, optimizer and precision."""

    tokens: Tokens | None = None
    batch_size: int | None = None
    micro_batch_size: int | None = None
    lr: float | None = None
    min_lr_ratio: float | None = None
    warmup_ratio: float | None = None
    weight_decay: float | None = None
    beta1: float | None = None
    beta2: float | None = None
    grad_clip: float | None = None
    precision: Precision | None = None
    compile: Compile | None = None
    evaluations: int | None = None


class SamplerSection(Section):
    """Who proposes parameters; `auto` is grid when every point fits the budget, else tpe."""

    name: Literal["auto", "tpe", "nsga2", "random", "grid"] = "auto"
    seed: Annotated[int, Field(ge=0)] = 0


class PrunerSection(Section):
    """Who stops weak trials early."""

    name: Literal["none"] = "none"


class BudgetSection(Section):
    """When the study ends."""

    configurations: Count
    """Distinct configurations over the study's whole life."""
    wall_clock: Seconds | None = None
    """Seconds that one `plt run` may take."""
    max_failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.2
    """Failed over finished trials at which the study stops."""


class Share(Section):
    """What one attempt reserves."""

    gpus: Annotated[float, Field(ge=0)] | None = None
    """Fractions share a GPU. None: one GPU where the cluster has any, else none; 0 trains on the CPU."""
    cpus: Annotated[float, Field(gt=0)] = 1.0

    @property
    def threads(self) -> int:
        """CPU threads of the attempt's process: whole CPUs, at least one."""
        return max(1, int(self.cpus))


class BenchmarkShare(Section):
    """What a decode benchmark computes with while it has the device to itself."""

    cpus: Annotated[float, Field(gt=0)] | None = None
    """None: every core that the worker may use."""

    @property
    def threads(self) -> int | None:
        """CPU threads of the measurement, or None for every core."""
        return None if self.cpus is None else max(1, int(self.cpus))


class ResourcesSection(Section):
    """Reservations by kind of attempt."""

    train: Share = Share()
    benchmark: BenchmarkShare = BenchmarkShare()


class BenchmarkSizes(Section):
    """Sizes at which decoding is measured; what is left out is as in training."""

    d_model: Count | None = None
    num_layers: Count | None = None
    num_heads: Count | None = None
    num_kv_heads: Count | None = None
    d_ff: Count | None = None
    vocab_size: Count | None = None


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


class RetrySection(Section):
    """What happens to an attempt that failed for a passing reason."""

    max_attempts: Count = 3
