"""Studies that are evaluated by a formula, for the tests of proposals."""

import math
from collections.abc import Callable, Iterator
from typing import Any

from orchestrator.configuration import Configuration
from orchestrator.proposer import Evaluation, Proposal, Proposer
from orchestrator.search_space import SearchSpace
from orchestrator.spec import StudySpec

MakeSpec = Callable[..., StudySpec]
SAMPLERS = ["tpe", "nsga2", "random", "grid"]
CONTINUOUS = {"num_loops": {"choices": [1, 2, 3]}, "lr": {"low": 1e-4, "high": 1e-1, "log": True}}
CONDITIONAL = {
    "num_loops": {"choices": [1, 2, 3]},
    "window": {"choices": [8, 16, 32], "when": {"num_loops": ">1"}},
    "hidden_scale": {"low": 0.1, "high": 1.0, "when": {"num_loops": ">1"}},
    "batch_size": {"low": 8, "high": 8},
    "lr": {"low": 1e-4, "high": 1e-1, "log": True},
}
SLIDING = {"choices": [8, 16], "when": {"local": "swa"}}
LOSS = {"metric": "val/loss", "direction": "minimize"}
GENERATION = "NSGAIISampler:generation"
ACCURACY = {"metric": "val/accuracy", "direction": "maximize"}


def evaluated(proposal: Proposal, **changes: Any) -> Evaluation:
    """Best with three loops and a learning rate of 3e-3."""
    configuration = proposal.configuration
    loops, rate = configuration.model.num_loops, configuration.train.lr
    outcome: dict[str, Any] = {
        "values": (1 / loops + abs(math.log10(rate / 3e-3)), loops / 4),
        "violations": {},
        "running": False,
    }
    return Evaluation(
        fingerprint=configuration.fingerprint,
        params=configuration.params,
        sampler_state=proposal.sampler_state,
        **{**outcome, **changes},
    )


def drive(proposer: Proposer, known: list[Evaluation]) -> Iterator[Configuration]:
    """Evaluate one proposal after the other until there are none."""
    while (proposal := proposer.propose(known)) is not None:
        known.append(evaluated(proposal))
        yield proposal.configuration


def new_proposer(spec: StudySpec) -> Proposer:
    return Proposer(spec, SearchSpace(spec))
