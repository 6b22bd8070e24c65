"""Live progress in the terminal: a bar per running trial, counts, time left, the best configurations so far.

On a terminal one live block is redrawn; elsewhere (a file, CI) one line is printed per event.
"""

import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from orchestrator.configurations import group
from orchestrator.formats import duration
from orchestrator.records import StudyRecord, TrialRecord, TrialState
from orchestrator.tables import front_table, params_text, verdict
from workers.protocol import MetricReport

_REDRAW_SECONDS = 0.25
"""Reports may come faster than anyone reads."""


class Progress:
    """Draws what the runner does."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._bars = Bars(
            TextColumn("{task.description}", justify="left", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[latest]}"),
            console=console,
        )
        self._tasks: dict[int, TaskID] = {}
        self._live: Live | None = None
        self._study: StudyRecord | None = None
        self._trials: dict[int, TrialRecord] = {}
        self._front: RenderableType | None = None
        self._began = clock()
        self._drawn = self._began - _REDRAW_SECONDS
        self._done_before = 0
        self._finished_now = 0

    def study_started(self, study: StudyRecord) -> None:
        """Print the head line and start drawing."""
        self._study = study
        self._trials = {trial.number: trial for trial in study.trials}
        self._done_before = sum(trial.state.finished for trial in study.trials)
        again = f", {self._done_before} trials already finished" if self._done_before else ""
        seeds = f"{len(study.seeds)} seed{'s' if len(study.seeds) > 1 else ''}"
        self._console.print(f"[bold]{study.name}[/]: {study.budget} configurations x {seeds}{again}")
        if study.question:
            self._console.print(Text(study.question, style="italic"), soft_wrap=True)
        if self._console.is_terminal:
            self._live = Live(self._view(study), console=self._console, refresh_per_second=4, transient=True)
            self._live.start()

    def benchmark_started(self, trial: TrialRecord) -> None:
        """Say that an architecture is being measured."""
        self._say(f"trial {trial.number}: measuring decode latency and KV memory of {params_text(trial.params)}")

    def trial_started(self, trial: TrialRecord, attempt: int, steps: int) -> None:
        """Add a bar."""
        self._trials[trial.number] = trial
        again = f", attempt {attempt}" if attempt > 1 else ""
        name = f"trial {trial.number} (seed {trial.seed}{again}) {params_text(trial.params)}"
        self._drop_bar(trial.number)
        self._tasks[trial.number] = self._bars.add_task(name, total=steps, latest="")
        self._say(f"{name}: training, {steps} steps", live=False)

    def trial_reported(self, trial: TrialRecord, report: MetricReport) -> None:
        """Move the bar."""
        task = self._tasks.get(trial.number)
        loss = report.metrics.get("train/loss")
        if task is not None:
            self._bars.update(task, completed=report.step, latest="" if loss is None else f"loss {loss:.3f}")
        self._refresh()

    def trial_retried(self, trial: TrialRecord, message: str) -> None:
        """Say why an attempt is repeated."""
        self._say(f"trial {trial.number}: attempt failed ({message}); trying again")

    def trial_ended(self, trial: TrialRecord) -> None:
        """Drop the bar and say what came of it."""
        self._trials[trial.number] = trial
        self._finished_now += 1
        self._front = None
        self._drop_bar(trial.number)
        objectives = self._study.objectives if self._study is not None else ()
        self._say(f"trial {trial.number} {verdict(trial, objectives)}")

    def notice(self, text: str) -> None:
        """Say it."""
        self._say(text)

    def study_ended(self, study: StudyRecord) -> None:
        """Stop drawing."""
        self._study = study
        if self._live is not None:
            self._live.stop()
            self._live = None
        took = duration(self._clock() - self._began)
        self._console.print(
            f"{study.state.value.lower()} after {took}" + (f": {study.message}" if study.message else ""),
            soft_wrap=True,
        )

    def _drop_bar(self, number: int) -> None:
        task = self._tasks.pop(number, None)
        if task is not None:
            self._bars.remove_task(task)

    def _say(self, text: str, live: bool = True) -> None:
        if self._live is None or live:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
        self._refresh()

    def _refresh(self) -> None:
        if self._live is not None and self._study is not None and self._clock() - self._drawn >= _REDRAW_SECONDS:
            self._drawn = self._clock()
            self._live.update(self._view(self._study))

    def _view(self, study: StudyRecord) -> RenderableType:
        parts: list[RenderableType] = [self._head(study), self._bars]
        if self._front is None:
            now = replace(study, trials=tuple(self._trials.values()))
            found = any(configuration.on_front for configuration in group(now))
            self._front = front_table(now, title="best so far") if found else Text()
        return Group(*parts, self._front)

    def _head(self, study: StudyRecord) -> Text:
        expected, done = study.budget * len(study.seeds), self._done_before + self._finished_now
        took, fresh = self._clock() - self._began, self._finished_now
        left = f", about {duration(took / fresh * (expected - done))} left" if fresh and done < expected else ""
        failed = sum(trial.state is TrialState.FAIL for trial in self._trials.values())
        trouble = f", {failed} failed" if failed else ""
        return Text(f"{done} of at most {expected} trials finished{trouble}, {duration(took)} so far{left}")
