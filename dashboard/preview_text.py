"""What a study will do and cost, in words: pure."""

from orchestrator.formats import duration, number
from orchestrator.preview import Preview


def preview_markdown(seen: Preview) -> str:
    """A table of two columns."""
    rows = {
        "points": "too many to list" if seen.points is None else f"{seen.points:,} distinct",
        "known infeasible": "not counted" if seen.infeasible is None else f"{seen.infeasible:,}",
        "configurations to train": f"{seen.planned:,} at most",
        "trials": f"{seen.trials:,} at most ({seen.seeds} seed{'s' * (seen.seeds != 1)})",
        "tokens per trial": _range("train/tokens", *seen.tokens),
        "tokens in all": f"{number('train/tokens', seen.most_tokens)} at most",
        "compute per trial": f"{_range('train/flops', *seen.flops)} FLOP",
        "training time": _time(seen),
    }
    return "\n".join(["| this study | |", "|---|---|", *(f"| {what} | **{much}** |" for what, much in rows.items())])


def _range(metric: str, low: float, high: float) -> str:
    return number(metric, low) if low == high else f"{number(metric, low)} to {number(metric, high)}"


def _time(seen: Preview) -> str:
    if seen.device_seconds is None:
        return "unknown: no earlier trials here"
    return f"about {duration(seen.device_seconds)} on one device (from {seen.speed_from} trials)"
