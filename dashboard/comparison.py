"""Configurations beside each other: the parameters that differ, metrics with intervals, differences from a baseline.

A difference is paired: the two configurations are subtracted seed by seed, and the interval is that of the
differences, so that what a seed does to both cancels (`orchestrator.paired`).
"""

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from dashboard import formats, frames
from orchestrator.configurations import ConfigurationRecord
from orchestrator.paired import by_seed as difference
from orchestrator.statistics import Interval


def chosen(configurations: Sequence[ConfigurationRecord], fingerprints: Sequence[str]) -> list[ConfigurationRecord]:
    """The configurations of these fingerprints, in that order; unknown ones are left out."""
    known = {one.fingerprint: one for one in configurations}
    return [known[fingerprint] for fingerprint in fingerprints if fingerprint in known]


def labels(configurations: Sequence[ConfigurationRecord]) -> list[str]:
    """One distinct label per configuration."""
    texts = [formats.configuration_label(one.params) for one in configurations]
    return distinct(texts, [one.fingerprint for one in configurations])


def distinct(labels: Sequence[str], fingerprints: Sequence[str]) -> list[str]:
    """The labels, equal ones told apart by their fingerprint's first digits."""
    times = Counter(labels)
    return [
        label if times[label] == 1 else f"{label} ({fingerprint[:6]})"
        for label, fingerprint in zip(labels, fingerprints, strict=True)
    ]


def knobs_frame(configurations: Sequence[ConfigurationRecord]) -> pd.DataFrame:
    """One row per knob, a column per configuration; first those that differ, as the column `differs` says."""
    columns = [{**one.knobs, **one.params} for one in configurations]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = []
    for name in names:
        values = ["-" if column.get(name) is None else str(column[name]) for column in columns]
        rows.append([name, len(set(values)) > 1, *values])
    frame = pd.DataFrame(rows, columns=["knob", "differs", *labels(configurations)])
    return frame.sort_values("differs", ascending=False, kind="stable", ignore_index=True)


def difference_text(metric: str, gap: Interval | None, base: float) -> str:
    """`+0.012 ± 0.004 (+1.3 %)`; a tilde before it where the interval holds zero, so that it may be chance."""
    if gap is None:
        return "-"
    sign = "+" if gap.mean > 0 else ""
    undecided = "~ " if gap.low is not None and gap.high is not None and gap.low <= 0.0 <= gap.high else ""
    share = f" ({100 * gap.mean / base:+.1f} %)" if base else ""
    return f"{undecided}{sign}{frames.interval_text(metric, gap)}{share}" if gap.mean else "0"


def metrics_frame(configurations: Sequence[ConfigurationRecord], baseline: ConfigurationRecord) -> pd.DataFrame:
    """One row per metric; a column per configuration, and one with the difference for all but the baseline."""
    names = labels(configurations)
    rows = []
    metrics = {metric for one in configurations for metric in one.metrics}
    for metric in sorted(metrics, key=lambda metric: (metric.startswith("loops/"), metric)):
        row = {"metric": metric}
        for name, one in zip(names, configurations, strict=True):
            row[name] = frames.interval_text(metric, one.metrics[metric]) if metric in one.metrics else "-"
            if one.fingerprint != baseline.fingerprint:
                base = baseline.metrics[metric].mean if metric in baseline.metrics else 0.0
                row[f"Δ {name}"] = difference_text(metric, difference(one, baseline, metric), base)
        rows.append(row)
    return pd.DataFrame(rows)


def to_markdown(study: str, configurations: Sequence[ConfigurationRecord], baseline: ConfigurationRecord) -> str:
    """The comparison as Markdown tables, to paste into an issue or a lab log."""
    knobs = knobs_frame(configurations)
    differing = knobs[knobs["differs"]].drop(columns="differs")
    base = labels([baseline])[0]
    seeds = ", ".join(str(len(one.trials)) for one in configurations)
    return "\n\n".join(
        [
            f"**{study}**: {len(configurations)} configurations, baseline {base}, seeds {seeds}; "
            "mean ± half-width of the 95 % interval; ~ where the difference may be chance.",
            _table(differing),
            _table(metrics_frame(configurations, baseline)),
        ]
    )


def _table(frame: pd.DataFrame) -> str:
    rows = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in row) + " |" for row in rows)
