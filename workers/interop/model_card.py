"""The `README.md` of an exported folder: what the model is, where it comes from, how to run it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from workers.config import ModelConfig
from workers.config.counts import parameter_count
from workers.interop.layout import Layout

_LICENCES = {"PSF-2.0": "psf-2.0"}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a model comes from; everything that is not known is left out of the card."""

    study: str | None = None
    question: str = ""
    trial: int | None = None
    seed: int | None = None
    initial: str | None = None
    """The name of the checkpoint that its training started from."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    """`corpus`, `licence`, `corpus_fingerprint`, `vocab`."""


def write_card(title: str, config: ModelConfig, layout: Layout | None, origin: Origin, *, has_tokenizer: bool) -> str:
    """The card as Markdown with Hugging Face's YAML header; `layout` None is a GGUF file."""
    sections = [
        _header(layout, origin),
        f"# {title}\n\n{_what(config)}",
        _from(origin),
        _numbers(origin),
        _run(layout, config, has_tokenizer=has_tokenizer),
        _settings(config),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _header(layout: Layout | None, origin: Origin) -> str:
    licence = str(origin.data.get("licence") or "unknown")
    tags = ["plt-orchestrator", *(["looped-transformer"] if layout not in (None, Layout.LLAMA) else [])]
    lines = [
        f"license: {_LICENCES.get(licence, 'other')}",
        *([f"license_name: {json.dumps(licence)}"] if licence not in _LICENCES else []),
        f"library_name: {'transformers' if layout is not None else 'llama.cpp'}",
        "pipeline_tag: text-generation",
        f"tags: [{', '.join(tags)}]",
    ]
    return "\n".join(["---", *lines, "---"])


def _what(config: ModelConfig) -> str:
    size = f"{parameter_count(config):,} parameters in {config.num_hidden_layers} layers of width {config.hidden_size}"
    if config.num_loops == 1:
        return f"A plain decoder-only transformer (Llama): {size}."
    parts = [f"The same layers run {config.num_loops} times per token"]
    if config.clp:
        parts.append("each loop starts from the one before it at the slot before (cross-loop parallelism)")
    if config.kv_mode == "share_first":
        parts.append("later loops read the first loop's keys and values")
    if config.local == "swa":
        parts.append(f"a gate mixes in their own, through a window of {config.window} tokens")
    return f"A looped transformer: {size}. {'; '.join(parts)}."


def _from(origin: Origin) -> str:
    rows = {
        "study": origin.study,
        "question": origin.question,
        "trial": origin.trial,
        "seed": origin.seed,
        "fine-tuned from": origin.initial,
        "data": origin.data.get("corpus"),
        "data fingerprint": origin.data.get("corpus_fingerprint"),
        "licence of the data": origin.data.get("licence"),
        "vocabulary": origin.data.get("vocab"),
    }
    known = {name: value for name, value in rows.items() if value not in (None, "")}
    return _table("Where it comes from", known)


def _numbers(origin: Origin) -> str:
    return _table("Measured", {name: f"{value:.6g}" for name, value in sorted(origin.metrics.items())})


def _settings(config: ModelConfig) -> str:
    return f"## Settings\n\n```json\n{json.dumps(config.to_dict(), indent=2)}\n```"


def _table(title: str, rows: Mapping[str, Any]) -> str:
    if not rows:
        return ""
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines])


def _cell(value: object) -> str:
    return str(value).replace("|", "\\|").replace("\n", " ")


def _run(layout: Layout | None, config: ModelConfig, *, has_tokenizer: bool) -> str:
    if layout is None:
        return (
            "## How to run it\n\n```python\nfrom llama_cpp import Llama\n\nmodel = Llama('model.gguf', n_ctx=512)\n```"
        )
    trust = "" if layout is Layout.LLAMA else ", trust_remote_code=True"
    lines = ["from transformers import AutoModelForCausalLM, AutoTokenizer", ""]
    lines.append(f'model = AutoModelForCausalLM.from_pretrained("FOLDER"{trust})')
    if has_tokenizer:
        lines += [
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            'inputs = tokenizer("def main(", return_tensors="pt")',
            "print(tokenizer.decode(model.generate(**inputs, max_new_tokens=32)[0]))",
        ]
    else:
        lines[0] = "import torch\nfrom transformers import AutoModelForCausalLM"
        lines.append("print(model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=32))")
    return "\n".join(["## How to run it", "", "```python", *lines, "```", "", _engines(layout, config)])


def _engines(layout: Layout, config: ModelConfig) -> str:
    if layout is Layout.LLAMA:
        return "vLLM, SGLang, mlx-lm and every other engine for Llama models read it too."
    if layout is Layout.LOOP:
        mlx = "mlx-lm reads it too" if config.num_loops == 2 else "mlx-lm does not: it runs two loops only"
        return (
            f'vLLM reads it (`LLM("FOLDER", trust_remote_code=True)`; on the CPU a head width of 32 or more); {mlx}. '
            "The Python files in the folder are for transformers."
        )
    return (
        "The Python files in the folder compute it in transformers, for correctness and not for speed: its loops run "
        "one after another. For one pass per token use `workers.decoding` of the PLT orchestrator."
    )
