"""The form of a study file: the knobs that most studies set, each bound to its place in the text.

The text is the one truth: a field shows what stands there and writes back into it, comments kept, so that the form and
the YAML editor are two views of one file. What a field may hold is judged by the study file's own checks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from dashboard import formats, search_entry
from dashboard.bound_widgets import bound
from orchestrator.errors import SpecError
from orchestrator.spec.document import read_document
from orchestrator.spec.edited import edited
from orchestrator.spec.knobs import KNOBS
from orchestrator.spec.metrics import produced
from workers.config import BenchmarkConfig, DataConfig
from workers.config.variants import VARIANTS

FILE = Path("study.yaml")
"""How the text is called in messages; its folder is where the dashboard was started."""
TEXT = "spec-text"
"""Session state: the text of the study file."""
_LARGER_IS_BETTER = ("accuracy", "tokens_per_second", "roofline_fraction")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One place in the file that the form shows."""

    path: tuple[str, ...]
    label: str
    options: Sequence[str] = ()
    """What may be chosen; empty means that text is typed."""
    many: bool = False
    """A list, typed with commas."""
    help: str | None = None
    if_empty: str = "default"
    """What holds when nothing is written."""


_MODEL = (
    Field(path=("model", "variant"), label="Variant", options=tuple(VARIANTS), help=formats.TERMS["variant"]),
    Field(path=("model", "d_model"), label="Width (d_model)", help="Size of the hidden state."),
    Field(path=("model", "num_layers"), label="Layers", help="Layers that every loop runs."),
    Field(path=("model", "num_heads"), label="Heads"),
    Field(
        path=("model", "num_kv_heads"),
        label="KV heads",
        if_empty="as many as heads",
        help="Fewer than heads share keys and values (GQA).",
    ),
)
_TRAINING = (
    Field(path=("data", "corpus"), label="Corpus", help="`stdlib`, `files:GLOB` of your own text, or the task `phop`."),
    Field(path=("data", "seq_len"), label="Sequence length", help="Tokens per training sequence."),
    Field(path=("train", "tokens"), label="Tokens per trial", help="Such as 512k or 4M."),
    Field(path=("train", "batch_size"), label="Batch size", help="Sequences per optimizer step."),
    Field(path=("train", "lr"), label="Learning rate"),
)
_BUDGET = (
    Field(path=("budget", "configurations"), label="Configurations", help=formats.TERMS["budget"]),
    Field(path=("budget", "wall_clock"), label="Wall clock", if_empty="no limit", help="Such as 30m or 2h."),
    Field(path=("seeds",), label="Seeds", many=True, if_empty="0", help=formats.TERMS["seed"]),
    Field(
        path=("sampler", "name"),
        label="Sampler",
        options=("auto", "grid", "tpe", "nsga2", "gp", "random"),
        help="Who proposes configurations; auto is grid when every point fits the budget, else tpe.",
    ),
    Field(
        path=("pruner", "name"),
        label="Pruner",
        options=("none", "median", "moasha"),
        help="Who stops weak trials early.",
    ),
)
_BENCHMARK = (
    Field(
        path=("benchmark", "model", "d_model"),
        label="Width when decoding",
        if_empty="as trained",
        help="Deployment size.",
    ),
    Field(path=("benchmark", "model", "num_layers"), label="Layers when decoding", if_empty="as trained"),
    Field(path=("benchmark", "context"), label="Context", help="Tokens in the cache when latency is measured."),
)

_CONSTRAINTS = Field(
    path=("constraints",),
    label="Constraints",
    many=True,
    if_empty="decode/ms_per_token <= 12, kv/bytes_per_sequence <= 4MiB",
    help=formats.TERMS["infeasible"],
)


def said(text: str) -> dict[str, Any] | None:
    """What a text says, checked or not; None when it is no YAML."""
    try:
        return read_document(FILE, text=text).data
    except SpecError:
        return None


def draw(plain: Mapping[str, Any]) -> None:
    """Draw the form for what the text says."""
    left, right = st.columns([1, 2])
    with left:
        _field(Field(path=("name",), label="Name", help="Letters, digits, dots, dashes and underscores."), plain)
    with right:
        _field(Field(path=("question",), label="Question", help="What the study is to find out, for people."), plain)
    _section("Model", _MODEL, plain)
    _section("Data and training", _TRAINING, plain)
    _search(plain)
    _objectives(plain)
    _section("Budget", _BUDGET, plain)
    if "benchmark" in plain:
        _section("Decode benchmark", _BENCHMARK, plain)


def _section(title: str, fields: Sequence[Field], plain: Mapping[str, Any]) -> None:
    st.markdown(f"**{title}**")
    for column, field in zip(st.columns(len(fields)), fields, strict=True):
        with column:
            _field(field, plain)


def _field(field: Field, plain: Mapping[str, Any]) -> None:
    name, value = "form-" + "/".join(field.path), _value(plain, field.path)
    if field.options:
        shown = str(value) if value is not None else field.options[0]
        options = list(dict.fromkeys((*field.options, shown)))
        how = bound(name, shown, lambda typed: _write(field, typed))
        st.selectbox(field.label, options, options.index(shown), help=field.help, **how)
        return
    _text(field, name, value)


def _text(field: Field, name: str, value: Any) -> None:
    """A line of text that shows the value of a place, and writes there."""
    how = bound(name, _typed(value), lambda typed: _write(field, typed))
    st.text_input(field.label, _typed(value), help=field.help, placeholder=field.if_empty, **how)


def _typed(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(str(one) for one in value)
    return "" if value is None else str(value)


def _value(plain: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = plain
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _write(field: Field, typed: str) -> None:
    typed = typed.strip()
    value: Any = [search_entry.scalar(one) for one in typed.split(",") if one.strip()] if field.many else None
    if not field.many:
        value = typed if field.path in (("name",), ("question",)) else search_entry.scalar(typed)
    put(field.path, value if typed else None)


def put(path: Sequence[str], value: Any) -> None:
    """Write one place of the text."""
    try:
        st.session_state[TEXT] = edited(st.session_state[TEXT], path, value)
    except SpecError as error:
        st.toast(str(error), icon=":material/error:")


def _search(plain: Mapping[str, Any]) -> None:
    st.markdown(
        "**Search space**",
        help="`1, 2, 3` are choices; `0.001 to 0.01 log` is a range. A condition such as `num_loops > 1` keeps a "
        "parameter out of points where it cannot matter.",
    )
    search = plain.get("search")
    search = search if isinstance(search, Mapping) else {}
    for name, written in search.items():
        columns = st.columns([2, 4, 3, 1], vertical_alignment="bottom")
        columns[0].text_input("Knob", name, disabled=True, key=f"knob-{name}", help=formats.TERMS.get(name))
        values, when = search_entry.values_text(written), search_entry.when_text(written)
        how = bound(f"search-values-{name}", values, partial(_write_search, name, "values"))
        columns[1].text_input("Values", values, **how)
        how = bound(f"search-when-{name}", when, partial(_write_search, name, "when"))
        columns[2].text_input("Only when", when, **how)
        columns[3].button(
            "",
            icon=":material/delete:",
            key=f"remove-{name}",
            on_click=put,
            args=(("search", name), None),
            help=f"Search {name} no more",
            type="tertiary",
        )
    _add_knob([name for name in KNOBS if name not in search])


def _add_knob(names: Sequence[str]) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen = st.selectbox("Add a knob", names, index=None, placeholder="search another knob", key="add-knob")
        st.button("Add", icon=":material/add:", disabled=chosen is None, on_click=_add)


def _add() -> None:
    """A first entry that the checks accept as far as a knob's kind tells."""
    name: str | None = st.session_state["add-knob"]
    if name is not None:
        choices = [1, 2] if KNOBS[name].numeric else ["plt", "loop"] if name == "variant" else []
        put(("search", name), {"choices": choices})


def _write_search(name: str, kind: Literal["values", "when"], typed: str) -> None:
    """One half of an entry; the other half stays as the text has it now."""
    written = _value(said(st.session_state[TEXT]) or {}, ("search", name))
    values = typed if kind == "values" else search_entry.values_text(written)
    when = typed if kind == "when" else search_entry.when_text(written)
    put(("search", name), search_entry.entry(values, when))


def _data(plain: Mapping[str, Any]) -> DataConfig:
    """What is trained on; the default while the file says something that cannot be."""
    data = plain.get("data")
    try:
        return DataConfig(**data) if isinstance(data, Mapping) else DataConfig()
    except (TypeError, ValueError):
        return DataConfig()


def _objectives(plain: Mapping[str, Any]) -> None:
    st.markdown("**Objectives and constraints**")
    written = plain.get("objectives")
    objectives = {
        str(one["metric"]): one.get("direction")
        for one in (written if isinstance(written, list) else [])
        if isinstance(one, Mapping) and "metric" in one
    }
    known = produced([_data(plain)], BenchmarkConfig() if "benchmark" in plain else None)
    chosen = list(objectives)
    left, right = st.columns(2)
    left.multiselect(
        "Objectives",
        list(dict.fromkeys((*known, *objectives))),
        chosen,
        format_func=formats.title,
        **bound("form-objectives", chosen, lambda metrics: _write_objectives(objectives, metrics)),
        help="What is traded off. Accuracy and speed are maximised, everything else is minimised; the YAML can say "
        "otherwise.",
    )
    constraints = plain.get("constraints")
    with right:
        _text(_CONSTRAINTS, "form-constraints", constraints if isinstance(constraints, list) else None)


def _write_objectives(before: Mapping[str, Any], metrics: Sequence[str]) -> None:
    put(("objectives",), [{"metric": one, "direction": before.get(one) or _direction(one)} for one in metrics])


def _direction(metric: str) -> str:
    return "maximize" if metric.rsplit("/", 1)[-1].startswith(_LARGER_IS_BETTER) else "minimize"
