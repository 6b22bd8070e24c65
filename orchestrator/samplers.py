"""Which of Optuna's samplers proposes for a study, and what it cannot do there.

| name | takes part in | does not learn from |
|---|---|---|
| tpe | constraints, several objectives, conditional parameters | |
| nsga2 | the same | what was dropped before or during training |
| gp | constraints, several objectives; conditional parameters are left to tpe | the same |
| random, grid | | anything |

`auto` is grid when every configuration fits the budget, and otherwise tpe that looks back on the latest `HISTORY`
configurations. `benchmarks.sampler_choice` says why (one seed; twelve mixed parameters, two of them conditional). With
three objectives, 1,000 configurations of random, nsga2, tpe with that history, tpe with all of it reach a hypervolume
of 1.05, 1.58, 1.95 and 1.79, and an ask then costs 2, 3, 41 and 108 ms of processor time; after 10,000 it costs 6, 14,
40 and 2,160 ms. With one objective they reach 0.68, 0.16, 0.09 and 0.32 (less is better) at 2, 3, 11 and 27 ms, and
after 10,000 an ask costs 10, 13, 17 and 212 ms.
"""

from dataclasses import dataclass

from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from orchestrator.spec import StudySpec
from workers.config import variant_knobs
from workers.config.variants import VARIANTS

HISTORY = 500
"""Configurations that `auto` looks back on, or at least on the later half of them."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A sampler, and what it gets to see."""

    sampler: str
    window: int | None = None
    """Only about so many of the latest configurations; None: all."""


def choose(spec: StudySpec, size: int | None) -> Choice:
    """The sampler for a space of so many configurations; None when they cannot be listed."""
    if spec.sampler.name != "auto":
        return Choice(sampler=spec.sampler.name)
    if size is not None and size <= spec.budget.configurations:
        return Choice(sampler="grid")
    return Choice(sampler="tpe", window=HISTORY)


QUICK = Choice(sampler="tpe", window=200)
"""What stands in for gp; with three objectives and twelve parameters one ask takes about 20 ms."""


def make_sampler(name: str, spec: StudySpec, seed: int) -> BaseSampler:
    """A new sampler; the grid, which needs none, draws at random here."""
    if name == "tpe":
        return TPESampler(seed=seed)
    if name == "nsga2":
        population = min(50, max(4, spec.budget.configurations // 4))
        return NSGAIISampler(population_size=population, seed=seed)
    if name == "gp":
        others = TPESampler(seed=seed, multivariate=False)
        return GPSampler(seed=seed, independent_sampler=others, warn_independent_sampling=False)
    return RandomSampler(seed=seed)


def notice(name: str, spec: StudySpec) -> str | None:
    """What the person should know about this sampler on this study, in one line, or None."""
    conditional = conditional_parameters(spec)
    if name != "gp" or not conditional:
        return None
    return (
        f"gp models the parameters that every configuration has; {', '.join(conditional)} depend on others "
        "and are proposed by tpe"
    )


def conditional_parameters(spec: StudySpec) -> list[str]:
    """Searched parameters whose condition depends on another searched one, so that some configurations lack them."""
    implied = {knob for variant in VARIANTS for knob in variant_knobs(variant)} if "variant" in spec.search else set()
    decided = set(spec.search) | (implied - set(spec.fixed()))
    return [
        name
        for name, parameter in spec.search.items()
        if any(condition.knob in decided for condition in parameter.conditions)
    ]
