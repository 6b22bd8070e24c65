"""Everything that a report is made of, read once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.configurations import ConfigurationRecord, group
from orchestrator.home import Home
from orchestrator.loop_table import mean_by_item, read_table
from orchestrator.membership import Standing, memberships
from orchestrator.paired import by_item
from orchestrator.recommendation import Recommendation, recommend
from orchestrator.records import StudyRecord, TrialState
from orchestrator.statistics import Interval
from workers.protocol import LoopValue


@dataclass(frozen=True, kw_only=True)
class Material:
    """A study, what follows from it, and the loop tables of the configurations that the report shows."""

    study: StudyRecord
    configurations: tuple[ConfigurationRecord, ...]
    found: Recommendation
    standings: Mapping[str, Standing]
    """By fingerprint."""
    tables: Mapping[str, Sequence[Sequence[LoopValue]]] = field(default_factory=dict)
    """By fingerprint: the loop table of each COMPLETE trial that has one."""

    def item_gains(self) -> dict[tuple[int, int], Interval]:
        """Loss by evaluation item that is saved from one loop count's best configuration to a larger one's."""
        items = {
            loops: mean_by_item(self.tables.get(one.fingerprint, ()), "lens_loss")
            for loops, one in self.found.best.items()
        }
        gains = {
            (step.from_loops, step.to_loops): by_item(items[step.from_loops], items[step.to_loops])
            for step in self.found.steps
        }
        return {steps: gain for steps, gain in gains.items() if gain is not None}


def gather(home: Home, study: StudyRecord, *, where: Sequence[str] = (), worth: float | None = None) -> Material:
    """Recommend, judge the front, and read the loop tables; a `StudyError` as `recommend` raises it."""
    found = recommend(study, where=where, worth=worth)
    tables = {
        one.fingerprint: [
            table
            for trial in one.trials
            if trial.state is TrialState.COMPLETE and (table := read_table(home.loop_table(study.name, trial.number)))
        ]
        for one in found.best.values()
    }
    return Material(
        study=study,
        configurations=tuple(group(study)),
        found=found,
        standings=memberships(study),
        tables=tables,
    )
