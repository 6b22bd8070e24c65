"""`config.json` of every layout: written from a `ModelConfig`, and read back into one.

Reading is strict: a setting that is not known to leave the function unchanged is refused by name, as is every value
that this project's model has no equal for (biases, RoPE scaling, another activation). No torch is needed.
"""

from collections.abc import Mapping
from typing import Any

from workers.config import ModelConfig
from workers.interop.errors import InteropError
from workers.interop.layout import Layout, is_published

DTYPES = ("float32", "bfloat16", "float16", "float64")
"""Types of weights that can be read; float16 is only read to be converted."""
MOST_LOOPS = 64
"""More loops than any model was trained with: a larger count in a file is a mistake or worse."""

_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
    "rms_norm_eps",
    "tie_word_embeddings",
)
_FIXED: Mapping[str, Any] = {
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "attention_dropout": 0.0,
}
"""Settings with only one value here."""
_WITHOUT_EFFECT = frozenset(
    {
        "_name_or_path",
        "architectures",
        "auto_map",
        "bos_token_id",
        "dtype",
        "eos_token_id",
        "initializer_range",
        "layer_types",
        "model_type",
        "pad_token_id",
        "pretraining_tp",
        "torch_dtype",
        "transformers_version",
        "use_cache",
    }
)
_LOOP_KEYS = frozenset({"loop_num", "loop_window_size"})
_PLT_DEFAULTS: Mapping[str, Any] = {
    "plt_num_loops": 2,
    "plt_window_size": [64, 0],
    "plt_normalize_per_loop": True,
    "plt_emb_scale": None,
    "plt_hidden_scale": None,
    "plt_gate_use_hidden_states": False,
    "plt_clp": True,
    "plt_reinject": True,
    "plt_share_kv": True,
    "plt_local": True,
    "plt_fixed_gate": None,
}
"""What LoopCoder-v2's configuration class assumes where a file says nothing; ours are the last five."""
_OWN_KEYS: Mapping[Layout, frozenset[str]] = {
    Layout.LLAMA: frozenset(),
    Layout.LOOP: _LOOP_KEYS,
    Layout.PLT: frozenset(_PLT_DEFAULTS),
}
_CLASSES: Mapping[Layout, str] = {
    Layout.LLAMA: "LlamaForCausalLM",
    Layout.LOOP: "IQuestLoopCoderForCausalLM",
    Layout.PLT: "IQuestPLTCoderForCausalLM",
}
_VARIANT_CLASS = "LoopVariantForCausalLM"


def write_settings(config: ModelConfig, layout: Layout, dtype: str, end_token: int | None = None) -> dict[str, Any]:
    """The content of `config.json`; `end_token` is the id that ends a text, if there is one."""
    config = config.normalised()
    class_name = _CLASSES[layout]
    if layout is Layout.PLT and not is_published(config):
        class_name = _VARIANT_CLASS
    settings: dict[str, Any] = {"architectures": [class_name], "model_type": str(layout)}
    if layout is not Layout.LLAMA:
        settings["auto_map"] = {
            "AutoConfig": f"configuration_{layout}.{_CLASSES[layout].replace('ForCausalLM', 'Config')}",
            "AutoModelForCausalLM": f"modeling_{layout}.{class_name}",
        }
    settings |= {name: getattr(config, name) for name in _SIZES}
    settings |= {"head_dim": config.head_dim, "rope_theta": config.rope_theta, **_FIXED}
    settings |= {"bos_token_id": None, "eos_token_id": end_token, "pad_token_id": end_token}
    if layout is Layout.LOOP:
        settings |= {"loop_num": config.num_loops, "loop_window_size": config.window}
    elif layout is Layout.PLT:
        settings |= _plt_settings(config)
    return {**settings, "torch_dtype": dtype}


def read_settings(settings: Mapping[str, Any]) -> tuple[ModelConfig, Layout, str]:
    """The model, its layout and the type of its weights; an `InteropError` names the setting that does not fit."""
    layout = _layout_of(settings)
    _refuse_unknown(settings, layout)
    missing = [name for name in ("vocab_size", "hidden_size", "num_hidden_layers") if name not in settings]
    if missing:
        raise InteropError(f"{', '.join(missing)} is missing")
    sizes = {name: settings[name] for name in _SIZES if settings.get(name) is not None}
    if "num_attention_heads" in sizes:
        sizes.setdefault("num_key_value_heads", sizes["num_attention_heads"])
    loops: dict[str, Any] = {}
    if layout is Layout.LOOP:
        loops = _read_loop(settings)
    elif layout is Layout.PLT:
        loops = _read_plt(settings)
    try:
        config = ModelConfig(**sizes, rope_theta=_rope_theta(settings), **loops).normalised()
    except (TypeError, ValueError) as error:
        raise InteropError(str(error).replace("ModelConfig.__init__() ", "")) from None
    head_dim = settings.get("head_dim")
    if head_dim is not None and head_dim != config.head_dim:
        raise InteropError(
            f"head_dim is {head_dim!r}; it must be hidden_size / num_attention_heads ({config.head_dim})"
        )
    return config, layout, _dtype(settings)


def _layout_of(settings: Mapping[str, Any]) -> Layout:
    kind = settings.get("model_type")
    if kind not in list(Layout):
        raise InteropError(f"model_type is {kind!r}; it must be one of {', '.join(Layout)}")
    layout = Layout(kind)
    classes = settings.get("architectures") or [_CLASSES[layout]]
    allowed = [_CLASSES[layout], *([_VARIANT_CLASS] if layout is Layout.PLT else [])]
    if classes not in [[name] for name in allowed]:
        raise InteropError(f"architectures is {classes!r}; a {layout} has {' or '.join(allowed)}")
    return layout


def _refuse_unknown(settings: Mapping[str, Any], layout: Layout) -> None:
    known = _WITHOUT_EFFECT | set(_SIZES) | _OWN_KEYS[layout] | set(_FIXED)
    known |= {"head_dim", "rope_theta", "rope_parameters", "rope_scaling"}
    unknown = sorted(key for key in settings if key not in known)
    if unknown:
        raise InteropError(f"unknown settings {', '.join(unknown)}; take them out if they change nothing")
    for name, value in _FIXED.items():
        if settings.get(name, value) not in (value, None):
            raise InteropError(f"{name} is {settings[name]!r}; this project's models have {value!r} only")
    kinds = settings.get("layer_types")
    if kinds is not None and (not isinstance(kinds, list) or set(kinds) != {"full_attention"}):
        raise InteropError("layer_types has other layers than full_attention, which this project's models do not have")


def _rope_theta(settings: Mapping[str, Any]) -> float:
    """The base of the rotary frequencies, under its old name or its new one."""
    parameters = settings.get("rope_parameters")
    scaling = settings.get("rope_scaling")
    for name, found in (("rope_parameters", parameters), ("rope_scaling", scaling)):
        if found is None:
            continue
        kind = found.get("rope_type", found.get("type", "default")) if isinstance(found, Mapping) else found
        if kind != "default" or set(found) - {"rope_type", "type", "rope_theta"}:
            raise InteropError(f"{name} is {found!r}; this project's models have unscaled rotary positions only")
    old = settings.get("rope_theta")
    new = parameters.get("rope_theta") if parameters else None
    if old is not None and new is not None and old != new:
        raise InteropError(f"rope_theta is {old!r} and rope_parameters says {new!r}; one of them is wrong")
    theta = old if old is not None else new
    return 10000.0 if theta is None else theta


def _dtype(settings: Mapping[str, Any]) -> str:
    dtype = settings.get("torch_dtype") or settings.get("dtype") or "float32"
    if dtype not in DTYPES:
        raise InteropError(f"torch_dtype is {dtype!r}; it must be one of {', '.join(DTYPES)}")
    return str(dtype)


def _loops(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 2 <= value <= MOST_LOOPS:
        raise InteropError(f"{name} is {value!r}; a looped layout has from 2 to {MOST_LOOPS} loops")
    return value


def _read_loop(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "num_loops": _loops("loop_num", settings.get("loop_num", 2)),
        "kv_mode": "share_first",
        "local": "swa",
        "window": settings.get("loop_window_size", 64),
        "gate_input": "query",
        "gate_polarity": "global",
        "gate_mode": "learned",
    }


def _plt_settings(config: ModelConfig) -> dict[str, Any]:
    local = config.local == "swa"
    return {
        "plt_num_loops": config.num_loops,
        "plt_window_size": [(config.window or 1) - 1, 0],
        "plt_normalize_per_loop": config.norm_per_loop,
        "plt_emb_scale": None if config.emb_scale == 1.0 else config.emb_scale,
        "plt_hidden_scale": None if config.hidden_scale == 1.0 else config.hidden_scale,
        "plt_gate_use_hidden_states": config.gate_input == "hidden",
        "plt_clp": config.clp,
        "plt_reinject": config.reinject,
        "plt_share_kv": config.kv_mode == "share_first",
        "plt_local": local,
        "plt_fixed_gate": config.fixed_gate if local else None,
    }


def _read_plt(settings: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: settings.get(name, default) for name, default in _PLT_DEFAULTS.items()}
    for name in ("plt_normalize_per_loop", "plt_gate_use_hidden_states", "plt_clp", "plt_reinject", "plt_share_kv"):
        if not isinstance(found[name], bool):
            raise InteropError(f"{name} is {found[name]!r}; it must be true or false")
    window = found["plt_window_size"]
    if not (isinstance(window, list) and len(window) == 2 and isinstance(window[0], int) and window[1] == 0):
        raise InteropError(f"plt_window_size is {window!r}; it must be [tokens before the current one, 0]")
    loops: dict[str, Any] = {
        "num_loops": _loops("plt_num_loops", found["plt_num_loops"]),
        "norm_per_loop": found["plt_normalize_per_loop"],
        "emb_scale": 1.0 if found["plt_emb_scale"] is None else found["plt_emb_scale"],
        "hidden_scale": 1.0 if found["plt_hidden_scale"] is None else found["plt_hidden_scale"],
        "clp": found["plt_clp"],
        "reinject": found["plt_reinject"],
        "kv_mode": "share_first" if found["plt_share_kv"] else "per_loop",
    }
    if found["plt_local"]:
        loops |= {
            "local": "swa",
            "window": window[0] + 1,
            "gate_input": "hidden" if found["plt_gate_use_hidden_states"] else "query",
            "gate_polarity": "global",
            "gate_mode": "learned" if found["plt_fixed_gate"] is None else found["plt_fixed_gate"],
        }
    return loops
