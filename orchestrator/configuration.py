"""From one point of the search space to everything that a trial needs to know: `resolve(spec, params)`.

A knob has one flat name (`num_loops`, `window`, `seq_len`, `lr`, ...), whichever section of the study file it stands
in. Its value is the searched one, else the one that the file fixes, else the variant's preset, else the default. Two
points that resolve to the same normalised model, data and training are one configuration: their fingerprints are equal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from workers.config import BenchmarkConfig, DataConfig, ModelConfig, TrainConfig, variant_knobs
from workers.config.counts import carry_bytes_per_sequence, kv_bytes_per_sequence, parameter_count
from workers.fingerprint import fingerprint

if TYPE_CHECKING:
    from orchestrator.spec.study_spec import StudySpec

IDENTITY = 1
"""Raised when the same configuration would train or decode to other results than before."""

SIZES: Mapping[str, str] = {
    "d_model": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "d_ff": "intermediate_size",
}
"""Sizes by the study file's name, to the name in `ModelConfig`; `benchmark.model` may override them."""

LOOP_KNOBS = (
    "num_loops",
    "clp",
    "reinject",
    "emb_scale",
    "hidden_scale",
    "norm_per_loop",
    "kv_mode",
    "local",
    "window",
    "gate_input",
    "gate_polarity",
    "gate_mode",
    "gate_bias_init",
)
"""What a variant presets."""

_MODEL_FIELDS: Mapping[str, str] = {
    **SIZES,
    "rope_theta": "rope_theta",
    "rms_norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
    "embedding_init_std": "embedding_init_std",
    **{name: name for name in LOOP_KNOBS},
}
_DEFAULTS: Mapping[str, Any] = {
    **{field.name: field.default for config in (DataConfig, TrainConfig) for field in fields(config)},
    **{
        name: field.default
        for name, target in _MODEL_FIELDS.items()
        for field in fields(ModelConfig)
        if field.name == target and name not in SIZES
    },
}
_BYTES: Mapping[str, int] = {"bfloat16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """One distinct configuration of a study, without its seed."""

    params: Mapping[str, Any]
    """The searched parameters that led here."""
    model: ModelConfig
    """Normalised: knobs that cannot matter are at their defaults."""
    data: DataConfig
    """Normalised."""
    train: TrainConfig
    initial: str | None
    """The checkpoint folder whose weights training starts from, or None for initial weights from the seed."""
    benchmark_model: ModelConfig | None
    """This point's loop knobs at the benchmark's sizes, normalised; None when the study has no benchmark."""
    benchmark: BenchmarkConfig | None
    """The decode grid of the study, or None."""
    fingerprint: str
    """Of model, data and training; replicates share it."""
    architecture: str | None
    """Of what the decode benchmark depends on; points that differ only in training or initial values share it."""
    knobs: Mapping[str, Any]
    """Every knob by its flat name, as resolved, for display."""

    def metrics_beforehand(self) -> dict[str, float]:
        """The metrics that follow from the configuration alone, so that no step is trained to learn them."""
        metrics: dict[str, float] = {"model/parameters": parameter_count(self.model)}
        if self.benchmark_model is not None and self.benchmark is not None:
            length = self.benchmark.context
            width = _BYTES[self.benchmark.precision]
            size = kv_bytes_per_sequence(self.benchmark_model, length, width)
            twin = kv_bytes_per_sequence(replace(self.benchmark_model, num_loops=1), length, width)
            metrics |= {
                "kv/bytes_per_sequence": size,
                "kv/carry_bytes_per_sequence": carry_bytes_per_sequence(self.benchmark_model, width),
                "kv/ratio": size / twin,
            }
        return metrics


def resolve(spec: "StudySpec", params: Mapping[str, Any]) -> Configuration:
    """The configuration at one point; a `ValueError` in the study file's words when there is none."""
    knobs, initial = written_knobs(spec, params), spec.model.from_folder
    try:
        data = DataConfig(**_of(DataConfig, knobs)).normalised()
        train = TrainConfig(**_of(TrainConfig, knobs))
        model = _model(knobs, vocab_size=data.vocab_size, length=data.seq_len)
    except ValueError as error:
        raise ValueError(_in_spec_words(str(error))) from error
    grid, deployed = None, None
    if spec.benchmark is not None:
        grid = spec.benchmark.config()
        try:
            deployed = _deployed(knobs, spec.benchmark.sizes(), data, grid)
        except ValueError as error:
            raise ValueError(f"benchmark.model.{_in_spec_words(str(error))}") from error
    if model.window is not None and model.window > data.seq_len:
        raise ValueError(
            f"window is {model.window}; it must be at most seq_len ({data.seq_len}), or it sees everything"
        )
    return Configuration(
        params=dict(params),
        model=model,
        data=data,
        train=train,
        benchmark_model=deployed,
        benchmark=grid,
        initial=initial,
        fingerprint=fingerprint(
            [IDENTITY, model.to_dict(), data.to_dict(), train.to_dict(), *([] if initial is None else [initial])]
        ),
        architecture=None if deployed is None or grid is None else _architecture(deployed, grid),
        knobs={
            **({} if initial is None else {"from": initial}),
            "variant": knobs["variant"],
            **{name: getattr(model, target) for name, target in _MODEL_FIELDS.items()},
            **data.to_dict(),
            **train.to_dict(),
        },
    )


def written_knobs(spec: "StudySpec", params: Mapping[str, Any]) -> dict[str, Any]:
    """Every knob by its flat name before normalisation: defaults, then the variant, then fixed, then searched values.

    With part of the parameters this is what is known so far, which is what the conditions of the next ones are judged
    by.
    """
    fixed = spec.fixed()
    variant = params.get("variant", fixed.get("variant"))
    preset = {} if variant is None else variant_knobs(variant)
    return {"variant": variant, **_DEFAULTS, **preset, **fixed, **params}


def _of(config: type[DataConfig] | type[TrainConfig], knobs: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: knobs[field.name] for field in fields(config)}


def _model(knobs: Mapping[str, Any], *, vocab_size: int, length: int) -> ModelConfig:
    for name in ("d_model", "num_layers", "num_heads"):
        if knobs.get(name) is None:
            raise ValueError(f"{name} is missing; give it under model or search")
    sizes = {
        **knobs,
        "num_kv_heads": knobs.get("num_kv_heads") or knobs["num_heads"],
        "d_ff": knobs.get("d_ff") or default_d_ff(knobs["d_model"]),
    }
    values = {target: sizes[name] for name, target in _MODEL_FIELDS.items()}
    return ModelConfig(vocab_size=vocab_size, max_position_embeddings=length, **values).normalised()


def default_d_ff(d_model: int) -> int:
    """Width of the SwiGLU MLP when the file names none: 8/3 of the model's, to the nearest multiple of 8."""
    return max(8, 8 * round(d_model / 3))


def _deployed(
    knobs: Mapping[str, Any], sizes: Mapping[str, int], data: DataConfig, grid: BenchmarkConfig
) -> ModelConfig:
    """The benchmark's model: a width given without `d_ff` takes the default `d_ff` of that width."""
    own = {**knobs, **({"d_ff": None} if "d_model" in sizes else {}), **sizes}
    return _model(own, vocab_size=sizes.get("vocab_size", data.vocab_size), length=grid.context + grid.generate)


def _architecture(model: ModelConfig, grid: BenchmarkConfig) -> str:
    timed = replace(model, embedding_init_std=1.0, gate_bias_init=0.0 if model.has_gate else model.gate_bias_init)
    return fingerprint([IDENTITY, timed.to_dict(), grid.to_dict()])


_SPEC_WORDS: Mapping[str, str] = {
    "head_dim": "d_model / num_heads",
    **{target: name for name, target in _MODEL_FIELDS.items() if target != name},
}
_MODEL_WORD = re.compile(r"\b(" + "|".join(_SPEC_WORDS) + r")\b")


def _in_spec_words(message: str) -> str:
    return _MODEL_WORD.sub(lambda match: _SPEC_WORDS[match[0]], message)
