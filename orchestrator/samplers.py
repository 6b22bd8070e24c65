"""Which of Optuna's samplers proposes for a study, and what it cannot do there.

| name | takes part in | does not learn from |
|---|---|---|
| tpe | constraints, several objectives, conditional parameters | |
| nsga2 | the same | what was dropped before or during training |
| gp | constraints, several objectives; conditional parameters are left to tpe | the same |
| random, grid | | anything |

`auto` is grid when every configuration fits the budget. Otherwise it is tpe, which finds the better configurations in a
small budget, until its cost counts: with three objectives and twelve parameters one ask takes 17 ms after 100
configurations, 89 ms after 1,000 and 590 ms after 5,000, where nsga2 stays near 10 ms. So from `TPE_BUDGET`
configurations on, `auto` is nsga2 for several objectives. For one objective tpe takes 19 ms after 1,000 and 190 ms
after 10,000, and stays.
"""

from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler

from orchestrator.spec import StudySpec
from workers.config import variant_knobs
from workers.config.variants import VARIANTS

TPE_BUDGET = 1_000
"""Most configurations for which `auto` is tpe when there are several objectives."""


def choose(spec: StudySpec, size: int | None) -> str:
    """The name of the sampler for a space of so many configurations; None when they cannot be listed."""
    if spec.sampler.name != "auto":
        return spec.sampler.name
    if size is not None and size <= spec.budget.configurations:
        return "grid"
    many = len(spec.objectives) > 1 and spec.budget.configurations > TPE_BUDGET
    return "nsga2" if many else "tpe"


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
