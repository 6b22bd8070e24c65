"""Published variants as named presets of the loop knobs.

The first five are the rows of the PLT paper's Table 2 (arXiv 2510.24824); `loopcoder-v2` is arXiv 2606.18023 with the
scales of its released configuration; `iquest-loop` is IQuest-Coder-V1-Loop. Any knob set beside `variant` wins over the
preset.
"""

from typing import Any

_CLP: dict[str, Any] = {"clp": True, "reinject": True}
_QUERY_GATE: dict[str, Any] = {"local": "swa", "gate_input": "query", "gate_mode": "learned"}

VARIANTS: dict[str, dict[str, Any]] = {
    "vanilla": {"num_loops": 1},
    "loop": {"num_loops": 2, "kv_mode": "per_loop"},
    "loop+clp": {"num_loops": 2, **_CLP, "kv_mode": "per_loop"},
    "loop+clp+share": {"num_loops": 2, **_CLP, "kv_mode": "share_first"},
    "plt": {
        "num_loops": 2,
        **_CLP,
        "kv_mode": "share_first",
        **_QUERY_GATE,
        "window": 64,
        "gate_polarity": "local",
        "gate_bias_init": 0.0,
    },
    "loopcoder-v2": {
        "num_loops": 2,
        **_CLP,
        "emb_scale": 0.707,
        "hidden_scale": 0.053,
        "norm_per_loop": True,
        "kv_mode": "share_first",
        "local": "swa",
        "window": 65,
        "gate_input": "hidden",
        "gate_polarity": "global",
        "gate_mode": "learned",
        "gate_bias_init": 0.0,
    },
    "iquest-loop": {
        "num_loops": 2,
        "kv_mode": "share_first",
        **_QUERY_GATE,
        "window": 64,
        "gate_polarity": "global",
        "gate_bias_init": 2.0,
    },
}


def variant_knobs(name: str) -> dict[str, Any]:
    """The loop knobs of a preset; a `ValueError` names the known ones."""
    if name not in VARIANTS:
        raise ValueError(f"variant is {name!r}; known variants are {', '.join(VARIANTS)}")
    return dict(VARIANTS[name])
