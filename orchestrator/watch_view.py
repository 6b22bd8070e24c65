"""How a watched study is shown: one block that is redrawn on a terminal, one line per change elsewhere."""

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from orchestrator.configurations import group
from orchestrator.formats import duration
from orchestrator.records import StudyState, TrialRecord, TrialState
from orchestrator.snapshot import Snapshot
from orchestrator.tables import front_table, params_text, print_study, standing, verdict


class WatchView:
    """Shows snapshots of one study in order."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._front: RenderableType = Text()
        self._finished = -1

    def show(self, snapshots: Iterator[Snapshot]) -> None:
        """Show every snapshot, and the last one whole, with how to go on."""
        last = self._redraw(snapshots) if self._console.is_terminal else self._print_changes(snapshots)
        print_study(self._console, last.study)
        if last.study.state is not StudyState.COMPLETE:
            self._say(f"nobody drives {last.study.name} now; to continue: plt resume {last.study.name}")

    def _redraw(self, snapshots: Iterator[Snapshot]) -> Snapshot:
        last = next(snapshots)
        with Live(self._view(last), console=self._console, auto_refresh=False, transient=True) as live:
            for last in snapshots:
                live.update(self._view(last), refresh=True)
        return last

    def _print_changes(self, snapshots: Iterator[Snapshot]) -> Snapshot:
        before: Snapshot | None = None
        for snapshot in snapshots:
            for line in changes(before, snapshot):
                self._say(line)
            before = snapshot
        assert before is not None
        return before

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _view(self, snapshot: Snapshot) -> RenderableType:
        parts: list[RenderableType] = [*standing(snapshot.study), Text(f"{duration(snapshot.seconds)} so far")]
        if snapshot.queued_because is not None:
            parts.append(Text(f"waiting: {snapshot.queued_because}"))
        return Group(*parts, self._bars(snapshot), self._best(snapshot))

    def _bars(self, snapshot: Snapshot) -> RenderableType:
        bars = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[latest]}"),
            console=self._console,
        )
        for trial, live in snapshot.running():
            loss = None if live is None else live.metrics.get("train/loss")
            bars.add_task(
                _title(trial),
                total=None if live is None else live.steps,
                completed=0 if live is None else live.step,
                latest="" if loss is None else f"loss {loss:.3f}",
            )
        return bars

    def _best(self, snapshot: Snapshot) -> RenderableType:
        """The front so far, worked out again only when another trial has finished."""
        finished = sum(trial.state.finished for trial in snapshot.study.trials)
        if finished != self._finished:
            self._finished = finished
            found = any(configuration.on_front for configuration in group(snapshot.study))
            self._front = front_table(snapshot.study, title="best so far") if found else Text()
        return self._front


def changes(before: Snapshot | None, after: Snapshot) -> Iterator[str]:
    """What happened between two snapshots, a line each; of the first, only what is going on.

    How the study stands when nobody drives it any more is left to whoever shows it whole.
    """
    known = {} if before is None else {trial.number: trial for trial in before.study.trials}
    if after.driven and (before is None or before.study.state is not after.study.state):
        yield f"{after.study.name}: {after.study.state.value}"
    if after.queued_because not in (None, before and before.queued_because):
        yield f"waiting: {after.queued_because}"
    for trial in after.study.trials:
        old = known.get(trial.number)
        if trial.state.finished and before is not None and not (old is not None and old.state.finished):
            yield f"trial {trial.number} {verdict(trial, after.study.objectives)}"
        elif trial.state is TrialState.RUNNING and (old is None or len(old.attempts) < len(trial.attempts)):
            yield f"{_title(trial)}: running"


def _title(trial: TrialRecord) -> str:
    again = f", attempt {len(trial.attempts)}" if len(trial.attempts) > 1 else ""
    return f"trial {trial.number} (seed {trial.seed}{again}) {params_text(trial.params)}"
