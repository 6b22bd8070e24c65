"""What the loop diagnostics of a study say beside the gains: LoopCoder-v2's signs that a loop does little.

They are evidence for a reader and take no part in the rule.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.configurations import ConfigurationRecord
from orchestrator.recommendation.answer import Recommendation

_OSCILLATES = -0.5
"""Cosine between two updates from which the second is said to undo the first."""


@dataclass(frozen=True, kw_only=True)
class LoopRow:
    """One loop of one configuration, means over seeds; None where a measure does not apply or was not taken."""

    loop: int
    step_size: float | None
    update_cosine: float | None
    effective_rank: float | None
    fixed_point_gap: float | None
    offset: float | None
    offset_over_step: float | None
    attention_entropy: float | None
    attention_kl: float | None
    head_rank: float | None
    head_cosine: float | None
    global_share: float | None
    lens_loss: float | None
    true_rank: float | None
    lens_entropy: float | None
    lens_kl: float | None
    peak_share: float | None


MEASURES = tuple(name for name in LoopRow.__dataclass_fields__ if name != "loop")
"""Names of what is diagnosed, as in `loops/<r>/<name>`."""


def loop_rows(one: ConfigurationRecord) -> list[LoopRow]:
    """A configuration's diagnostics by loop; empty when it has none."""
    loops = range(1, int(one.knobs.get("num_loops") or 1) + 1)
    rows = [LoopRow(loop=loop, **{name: _mean(one, f"loops/{loop}/{name}") for name in MEASURES}) for loop in loops]
    return [row for row in rows if row.step_size is not None]


def _mean(one: ConfigurationRecord, metric: str) -> float | None:
    return one.metrics[metric].mean if metric in one.metrics else None


def signs(found: Recommendation) -> Iterator[str]:
    """Sentences on the last loop of every loop count's best configuration, R >= 2."""
    for loops, one in found.best.items():
        rows = loop_rows(one)
        if len(rows) < 2:
            continue
        said = list(_of_last_loop(rows[-2], rows[-1]))
        if said:
            yield f"R={loops}, loop {rows[-1].loop}: " + ", ".join(said)


def _of_last_loop(before: LoopRow, last: LoopRow) -> Iterator[str]:
    if before.effective_rank is not None and last.effective_rank is not None:
        way = "falls" if last.effective_rank < before.effective_rank else "rises"
        yield f"effective rank {way} from {before.effective_rank:.1f} to {last.effective_rank:.1f}"
    if last.offset_over_step is not None:
        yield f"offset {last.offset_over_step:.2f} of its step"
    if before.lens_loss is not None and last.lens_loss is not None:
        yield f"loss by the logit lens {last.lens_loss - before.lens_loss:+.3f} nats"
    if last.update_cosine is not None and last.update_cosine < _OSCILLATES:
        yield f"undoes part of loop {before.loop} (cosine {last.update_cosine:.2f})"
    if last.peak_share is not None and last.loop > 2:
        yield f"{100 * last.peak_share:.0f} % of tokens change most here"
