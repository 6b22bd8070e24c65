"""What to take within a budget, and how sure that is, in words: pure.

The best mean alone is no answer: a configuration whose difference from it may be chance, or of which only one seed has
run, is named beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dashboard import comparison, formats, frames
from dashboard.charts import cell_text
from orchestrator.configurations import ConfigurationRecord
from orchestrator.paired import by_seed
from orchestrator.replicates import same_for_all_seeds

_MOST_RIVALS, _NAMED = 50, 3
"""Rivals that are looked at, and that are named."""


@dataclass(frozen=True)
class Advice:
    """The best configuration within the budgets."""

    fingerprint: str
    text: str
    """Markdown."""


def advise(
    frame: pd.DataFrame,
    configurations: Mapping[str, ConfigurationRecord],
    metric: str,
    costs: Sequence[str],
    direction: frames.Direction,
) -> Advice | None:
    """The best by one metric with its costs, and who may be as good; None when nothing is left.

    `frame` has the standing `outside` where a budget is broken (`frames.within`).
    """
    ranked = frames.best_first(frame, metric, direction)
    if ranked.empty:
        return None
    row = ranked.iloc[0].to_dict()
    best = configurations[row["fingerprint"]]
    what = f"**{row['label']}**: {formats.title(metric)} {cell_text(row, metric)}"
    prices = [f"{formats.title(cost)} {cell_text(row, cost)}" for cost in costs if pd.notna(row.get(cost))]
    text = ", ".join([what, *prices]) + ". "
    return Advice(best.fingerprint, text + _doubt(ranked, best, configurations, metric))


def _doubt(
    ranked: pd.DataFrame, best: ConfigurationRecord, configurations: Mapping[str, ConfigurationRecord], metric: str
) -> str:
    if len(ranked) == 1:
        return "It is the only one."
    rivals = [configurations[fingerprint] for fingerprint in ranked["fingerprint"].iloc[1 : _MOST_RIVALS + 1]]
    if same_for_all_seeds(metric):
        return f"{formats.title(metric)} is measured once per architecture, so seeds say nothing about its spread."
    unsure = [one for one in rivals if not _decided(one, best, metric)]
    if not unsure:
        others = "every other one" if len(ranked) <= _MOST_RIVALS else f"the {_MOST_RIVALS} next best"
        return f"The difference from {others} is beyond chance (95 %)."
    names = ", ".join(formats.configuration_label(one.params) for one in unsure[:_NAMED])
    more = f" and {len(unsure) - _NAMED} more" if len(unsure) > _NAMED else ""
    single = all(_seeds(one) < 2 for one in (best, *unsure))
    why = "one seed each, so chance cannot be told apart" if single else "the difference may be chance"
    return f"Not decided against {names}{more}: {why}."


def _decided(one: ConfigurationRecord, best: ConfigurationRecord, metric: str) -> bool:
    gap = by_seed(one, best, metric)
    return gap is not None and gap.low is not None and gap.high is not None and not gap.low <= 0.0 <= gap.high


def _seeds(one: ConfigurationRecord) -> int:
    return one.metrics[next(iter(one.metrics))].n if one.metrics else 0


def verdicts(
    chosen: Sequence[ConfigurationRecord],
    baseline: ConfigurationRecord,
    metrics: Sequence[str],
    directions: Mapping[str, frames.Direction],
) -> list[str]:
    """For each other configuration and metric, whether it beats the baseline for sure: Markdown lines."""
    names = dict(zip((one.fingerprint for one in chosen), comparison.labels(chosen), strict=True))
    base = names[baseline.fingerprint]
    return [
        _verdict(one, names[one.fingerprint], baseline, base, metric, directions[metric])
        for one in chosen
        if one.fingerprint != baseline.fingerprint
        for metric in metrics
        if metric in one.metrics and metric in baseline.metrics
    ]


def _verdict(
    one: ConfigurationRecord,
    name: str,
    baseline: ConfigurationRecord,
    base: str,
    metric: str,
    direction: frames.Direction,
) -> str:
    gap = by_seed(one, baseline, metric)
    assert gap is not None, "both have the metric"
    better = gap.mean < 0 if direction == "minimize" else gap.mean > 0
    word = "better" if better else "worse"
    text = f"**{name}** against **{base}**, {formats.title(metric)}: "
    shown = comparison.difference_text(metric, gap, baseline.metrics[metric].mean).removeprefix("~ ")
    if gap.mean == 0:
        return text + "equal."
    if same_for_all_seeds(metric):
        return text + f"{word} by measurement, {shown}."
    if gap.low is None or gap.high is None:
        return text + f"{word}, {shown}; **not sure**: too few common seeds for an interval."
    if gap.low <= 0.0 <= gap.high:
        return text + f"{word}, {shown}; **not sure**: the 95 % interval holds zero."
    return text + f"**{word} for sure**, {shown}; 95 % interval over {gap.n} seeds."
