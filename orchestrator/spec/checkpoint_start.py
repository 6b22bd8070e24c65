"""`model: {from: FOLDER}`: what a checkpoint says stands in the study file as if its author had written it.

Sizes are the checkpoint's. Its loop knobs are, too, where the file neither names a variant nor says otherwise. Its
tokenizer cuts the text. So the study knows its whole question, and only the weights stay in the folder.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from orchestrator.configuration import LOOP_KNOBS, SIZES
from orchestrator.spec.problem import Problem
from orchestrator.spec.written import shown
from workers.config import DataConfig, ModelConfig
from workers.config.data_config import TokenizerFile
from workers.interop.description import describe
from workers.interop.errors import InteropError
from workers.interop.tokenizer_files import end_of_text

_FIXED: Mapping[str, str] = {
    **SIZES,
    "rope_theta": "rope_theta",
    "rms_norm_eps": "rms_norm_eps",
    "tie_embeddings": "tie_word_embeddings",
}
"""What the weights only make sense with, by the study file's name, to `ModelConfig`'s."""
_TASKS = ("phop",)


def with_checkpoint(data: Mapping[str, Any], beside: Path) -> tuple[dict[str, Any], list[Problem]]:
    """The study file's data with the checkpoint's settings in it, and what contradicts them.

    A relative folder is relative to `beside`. Without `from` the data comes back as it is.
    """
    model = data.get("model")
    if not isinstance(model, Mapping) or not isinstance(model.get("from"), str):
        return dict(data), []
    folder = (beside / Path(model["from"]).expanduser()).resolve()
    search, text = _mapping(data, "search"), _mapping(data, "data")
    try:
        config = describe(folder).config
        vocab, problems = _vocab(folder, config, model, text, search)
    except InteropError as error:
        return dict(data), [Problem(("model", "from"), f"from is {shown(model['from'])}: {error}")]
    problems = problems + list(_contradictions(config, model, search))
    filled = {
        **model,
        "from": str(folder),
        **{name: getattr(config, target) for name, target in _FIXED.items()},
        **_loop_knobs(config, model, search),
    }
    return {**data, "model": filled, **({"data": {**text, "vocab": vocab}} if vocab else {})}, problems


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    section = data.get(key)
    return section if isinstance(section, Mapping) else {}


def _loop_knobs(config: ModelConfig, model: Mapping[str, Any], search: Mapping[str, Any]) -> dict[str, Any]:
    if model.get("variant") is not None or "variant" in search:
        return {}
    free = [name for name in LOOP_KNOBS if model.get(name) is None and name not in search]
    return {name: getattr(config, name) for name in free if getattr(config, name) is not None}


def _contradictions(config: ModelConfig, model: Mapping[str, Any], search: Mapping[str, Any]) -> Iterator[Problem]:
    for name, target in _FIXED.items():
        value = getattr(config, target)
        if name in search:
            yield Problem(("search", name), f"{name} is searched, and the checkpoint has {shown(value)}; take it out")
        elif model.get(name) not in (None, value):
            written = shown(model[name])
            yield Problem(("model", name), f"{name} is {written}, and the checkpoint has {shown(value)}; leave it out")


def _vocab(
    folder: Path, config: ModelConfig, model: Mapping[str, Any], text: Mapping[str, Any], search: Mapping[str, Any]
) -> tuple[str | None, list[Problem]]:
    """The vocabulary to fill in, if any, and what is wrong with one that is written."""
    if text.get("corpus") in _TASKS or "corpus" in search:
        return None, []  # a task's alphabet is checked against the weights by whoever loads them
    place = next(
        (
            path
            for path, section in ((("search", "vocab"), search), (("model", "vocab"), model), (("data", "vocab"), text))
            if section.get("vocab") is not None
        ),
        None,
    )
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():
        if place is not None:
            return None, [Problem(place, "vocab is written, and the checkpoint has a tokenizer.json; leave vocab out")]
        digest = hashlib.sha256(tokenizer.read_bytes()).hexdigest()[:16]
        end, last = end_of_text(folder), config.vocab_size - 1
        return str(
            TokenizerFile(
                vocab_size=config.vocab_size, end=last if end is None else end, sha256=digest, path=str(tokenizer)
            )
        ), []
    bytes_size = DataConfig().vocab_size
    if config.vocab_size != bytes_size or place is not None:
        message = (
            f"the checkpoint has {config.vocab_size:,} token ids and no tokenizer.json, without which its text cannot "
            f"be cut; put it into {folder} ({bytes_size} ids are bytes and need none)"
        )
        return None, [Problem(place or ("model", "from"), message)]
    return "bytes", []
