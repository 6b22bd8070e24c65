"""From a study's record to its recommendation; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.configurations import ConfigurationRecord
from orchestrator.contrasts import Contrasts
from orchestrator.errors import StudyError
from orchestrator.latency_devices import mixed_devices
from orchestrator.paired import values_by_seed
from orchestrator.recommendation.answer import Recommendation, Step
from orchestrator.recommendation.candidates import (
    MOST_CANDIDATES,
    STOPPED,
    Candidates,
    candidates,
    cheapest,
    costs_of,
    loops_of,
    quality_objective,
)
from orchestrator.recommendation.rule import LoopGains
from orchestrator.records import Objective, StudyRecord

_WORTH_OF_A_SHARE = 0.01
"""One point of an accuracy."""
_WORTH_OF_A_LOSS = 0.01
"""One percent of what the smallest loop count reaches."""


def recommend(
    study: StudyRecord,
    *,
    where: Sequence[str] = (),
    worth: float | None = None,
    level: float = 0.95,
    look_ahead: bool = True,
) -> Recommendation:
    """The smallest loop count from which no larger one pays, among configurations that break no constraint.

    `where` holds constraints beside the study's own; `worth` is the least gain, in the objective's unit, that makes
    one more loop worthwhile (by default one point of an accuracy, else one percent of what the smallest loop count
    reaches). Without `look_ahead` neither `confidence` nor `further_seeds` is worked out, which cost most.

    Raises a `StudyError` for a constraint that cannot be read, a negative `worth`, a `level` outside (0, 1).
    """
    if worth is not None and not worth >= 0:
        raise StudyError(f"worth is {worth!r}; it must be 0 or more, in the objective's unit")
    if not 0 < level < 1:
        raise StudyError(f"level is {level!r}; it must be between 0 and 1, such as 0.95")
    objective = quality_objective(study)
    nothing = Recommendation(
        study=study.name,
        question=study.question,
        objective=objective,
        worth=worth or 0.0,
        level=level,
        where=tuple(where),
    )
    if objective is None:
        said = "no objective of the study depends on training, so more loops can gain nothing; add one, such as"
        return replace(nothing, caveats=(f"{said} val/bits_per_byte",))
    found = candidates(study, objective, where)
    nothing = replace(
        nothing,
        left_out=found.left_out,
        unknown=tuple(found.unknown.values()),
        caveats=(*_about_left_out(study, found), *_about_devices(study)),
    )
    return _among(found, objective, nothing, worth, look_ahead) if found.kept else nothing


def _among(
    found: Candidates, objective: Objective, empty: Recommendation, worth: float | None, look_ahead: bool
) -> Recommendation:
    sign = 1.0 if objective.direction == "maximize" else -1.0
    able = sorted(found.kept, key=lambda one: -sign * one.metrics[objective.metric].mean)[:MOST_CANDIDATES]
    contrasts = Contrasts([values_by_seed(one, objective.metric) for one in able])
    loops = [loops_of(one) for one in able]
    least = _default_worth(objective.metric, able, loops) if worth is None else worth
    gains = LoopGains.of(loops, contrasts, sign, least)
    answer, alpha = gains.answer(), 1 - empty.level
    best = {count: _pick(gains, able, count, least) for count in gains.counts}
    as_good = [able[index] for index in gains.not_worse(answer, alpha, least)]
    comparable = len(gains.counts) > 1 and not found.unknown  # what was cut short could change any answer
    sure = comparable and gains.certain(answer, alpha)
    unsettled = [] if sure else gains.unsettled(answer, alpha)
    known = contrasts.design.freedom > 0
    open_seeds = look_ahead and known and bool(unsettled)
    return replace(
        empty,
        worth=least,
        loops=answer,
        configuration=best[answer],
        as_good=tuple(one for one in as_good if one is not best[answer]),
        sure=sure,
        confidence=gains.confidence(answer) if look_ahead and comparable else 0.0,
        further_seeds=gains.further_seeds(contrasts.design, answer, alpha, unsettled) if open_seeds else None,
        unsettled=tuple(able[index] for index in unsettled),
        best=best,
        costs={count: costs_of(one) for count, one in best.items()},
        steps=tuple(_steps(gains, alpha)),
        noise=contrasts.deviation if known else None,
        paired=contrasts.design.paired,
        caveats=(*empty.caveats, *_about_the_answer(gains, found, known)),
    )


def _pick(gains: LoopGains, able: Sequence[ConfigurationRecord], count: int, worth: float) -> ConfigurationRecord:
    """Among those of a loop count whose estimate is within `worth` of the best, the cheapest."""
    return cheapest([able[index] for index in gains.not_worse(count, 1.0, worth)])


def _steps(gains: LoopGains, alpha: float) -> list[Step]:
    counts = gains.counts
    return [
        Step(
            from_loops=few,
            to_loops=many,
            gain=gains.gain(few, many, alpha),
            worth=gains.needed(few, many),
            verdict=gains.verdict(few, many, alpha),
        )
        for position, few in enumerate(counts)
        for many in counts[position + 1 :]
    ]


def _default_worth(metric: str, able: Sequence[ConfigurationRecord], loops: Sequence[int]) -> float:
    if metric.endswith("accuracy"):
        return _WORTH_OF_A_SHARE
    smallest = next(one for one, count in zip(able, loops, strict=True) if count == min(loops))
    return _WORTH_OF_A_LOSS * abs(smallest.metrics[metric].mean)


def _about_left_out(study: StudyRecord, found: Candidates) -> list[str]:
    if not study.trials:
        return [f"the study has no trial yet; `plt resume {study.name}` runs it"]
    said = [f"R={loops} is not part of the answer: {reason}" for loops, reason in found.loops_left_out.items()]
    return [f"no configuration can be recommended: {_counted(found.left_out)}"] if not found.kept else said


def _about_devices(study: StudyRecord) -> list[str]:
    mixed = mixed_devices(study)
    return [] if mixed is None else [mixed]


def _about_the_answer(gains: LoopGains, found: Candidates, known: bool) -> list[str]:
    said = []
    stopped = found.left_out.get(STOPPED, 0)
    if stopped:
        were = "1 configuration was" if stopped == 1 else f"{stopped} configurations were"
        said.append(f"{were} stopped early by the pruner; the certainty is about those that were trained to the end")
    if len(found.kept) > MOST_CANDIDATES:
        said.append(f"only the {MOST_CANDIDATES} configurations with the best means were compared")
    if len(gains.counts) == 1:
        said.append(f"only R={gains.counts[0]} has results, so nothing is known of other loop counts")
    elif not known:
        said.append("no configuration has a second seed, so nothing is known of the noise: at least one further seed")
        said[-1] += " of the configurations below is needed before anything is certain"
    return said


def _counted(reasons: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {reason}" for reason, count in reasons.items())
