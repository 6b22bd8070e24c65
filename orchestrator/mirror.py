"""A sampler's view of a study: Optuna's storage interface over trials that are replaced in place.

It holds one study. `put` sets the trial at a position, whatever was there, and `cut` forgets the trials from a position
on, so that following a real study costs only what has changed, and an offer that was turned down leaves no trace. A
trial's number and id are its position.

It is no place to keep anything: nothing is copied on the way in or out, and it belongs to one thread.
"""
# ruff: noqa: ARG002  Optuna's interface names a study; here there is only one

from collections.abc import Collection, Container, Sequence
from copy import deepcopy as copied
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial


class Mirror(BaseStorage):
    """Storage of one study in memory, whose trials can be replaced and cut."""

    def __init__(self) -> None:
        self._name = ""
        self._directions: list[StudyDirection] = []
        self._user_attrs: dict[str, Any] = {}
        self._system_attrs: dict[str, Any] = {}
        self._trials: list[FrozenTrial] = []

    def __len__(self) -> int:
        return len(self._trials)

    def put(self, position: int, trial: FrozenTrial) -> None:
        """Set the trial at a position, which is at most the next one; whoever puts it no longer changes it."""
        trial.number = trial._trial_id = position
        self._trials[position : position + 1] = [trial]

    def cut(self, length: int) -> None:
        """Forget all but the first so many trials."""
        del self._trials[length:]

    def forget_study_system_attrs(self, names: Collection[str]) -> None:
        """Drop what a sampler keeps with the study under these names."""
        for name in names:
            self._system_attrs.pop(name, None)

    def create_new_study(self, directions: Sequence[StudyDirection], study_name: str | None = None) -> int:
        """The only study."""
        self._name, self._directions = study_name or "mirror", list(directions)
        return 0

    def delete_study(self, study_id: int) -> None:
        """Forget everything."""
        self.cut(0)
        self._user_attrs, self._system_attrs = {}, {}

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Keep a value with the study."""
        self._user_attrs[key] = value

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> None:
        """Keep a sampler's value with the study."""
        self._system_attrs[key] = value

    def get_study_id_from_name(self, study_name: str) -> int:
        """There is only one."""
        return 0

    def get_study_name_from_id(self, study_id: int) -> str:
        """As it was created."""
        return self._name

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        """One per objective."""
        return self._directions

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """All of them."""
        return self._user_attrs

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        """All of them."""
        return self._system_attrs

    def get_all_studies(self) -> Any:
        """Nobody lists the studies of a mirror."""
        raise NotImplementedError("a mirror holds one study and lists none; use the study's journal")

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """The next trial, RUNNING when there is no template."""
        position = len(self._trials)
        self.put(position, template_trial or create_trial(state=TrialState.RUNNING))
        return position

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Keep a suggested parameter."""
        trial = self._trials[trial_id]
        trial.params[param_name] = distribution.to_external_repr(param_value_internal)
        trial.distributions[param_name] = distribution

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """They are the same."""
        return trial_number

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: Sequence[float] | None = None) -> bool:
        """Tell a trial."""
        trial = self._trials[trial_id]
        self.check_trial_is_updatable(trial_id, trial.state)
        trial.state = state
        trial.values = values
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Keep a report."""
        self._trials[trial_id].intermediate_values[step] = intermediate_value

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep a value with a trial."""
        self._trials[trial_id].user_attrs[key] = value

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Keep a sampler's value with a trial."""
        self._trials[trial_id].system_attrs[key] = value

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """The trial itself, no copy."""
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Trials by number, those in certain states if any are named."""
        trials = [trial for trial in self._trials if states is None or trial.state in states]
        return copied(trials) if deepcopy else trials
