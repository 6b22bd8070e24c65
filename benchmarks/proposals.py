"""Who proposes the next configuration of a replayed study: random order, or an Optuna sampler over the same space."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import optuna

from benchmarks.recording import Costs, Recording
from orchestrator.configuration import written_knobs
from workers.fingerprint import fingerprint

MOST_OFFERS = 5
"""Offers of known points after which an Optuna sampler's next configuration is drawn at random."""


class RandomProposals:
    """All configurations in an order drawn by the seed."""

    def __init__(self, recording: Recording, seed: int) -> None:
        self._order = [int(index) for index in np.random.default_rng(seed).permutation(len(recording.curves))]

    def ask(self) -> int | None:
        """The next one."""
        return self._order.pop(0) if self._order else None

    def tell(self, index: int, costs: Costs | None) -> None:
        """Nothing is learned."""


class OptunaProposals:
    """A sampler with ask and tell; a point that was given before is told as failed and another one asked."""

    def __init__(self, recording: Recording, sampler: optuna.samplers.BaseSampler, seed: int) -> None:
        self._spec, self._rest = recording.spec, RandomProposals(recording, seed)
        self._index = {fingerprint(curve["params"]): index for index, curve in enumerate(recording.curves)}
        self._study = optuna.create_study(directions=["minimize"] * (1 + len(recording.known[0])), sampler=sampler)
        self._trials: dict[int, optuna.Trial] = {}

    def ask(self) -> int | None:
        """A configuration that was not given before."""
        if len(self._trials) == len(self._index):
            return None
        for _ in range(MOST_OFFERS):
            trial = self._study.ask()
            index = self._index[fingerprint(self._suggest(trial))]
            if index not in self._trials:
                self._trials[index] = trial
                return index
            self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return self._at_random()

    def tell(self, index: int, costs: Costs | None) -> None:
        """Its values, or that it was stopped."""
        if costs is None:
            self._study.tell(self._trials[index], state=optuna.trial.TrialState.PRUNED)
        else:
            self._study.tell(self._trials[index], costs)

    def _suggest(self, trial: optuna.Trial) -> Mapping[str, Any]:
        params: dict[str, Any] = {}
        for name, parameter in self._spec.search.items():
            if parameter.applies(written_knobs(self._spec, params)):
                params[name] = trial.suggest_categorical(name, parameter.every())
        return params

    def _at_random(self) -> int:
        index = self._rest.ask()
        while index is None or index in self._trials:
            index = self._rest.ask()
        trial = self._study.ask()
        self._suggest(trial)
        self._trials[index] = trial
        return index
