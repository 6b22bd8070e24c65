"""Keeps what a trial has reached: a state to go on from, the best model, the final model.

A state is saved at the first report, then whenever saving takes at most one part in `SAVING_SHARE` of the time: at
reports, and in long stretches without one between two steps. An earlier attempt's state goes once this one has its own.
Nothing that goes wrong here ends training: it is printed and said in the outcome's info, and training goes on without.
Of several workers every one has a keeper, and they do everything together as rank 0 says; rank 0 alone writes.
Where the request names a store, what is saved is copied there too (`workers.stored_copies`): that counts as saving.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from workers.attempt_folder import AttemptFolder
from workers.known import Known
from workers.models import CheckpointError, LoopedTransformer, save_pretrained
from workers.parallel import ALONE, Ranks
from workers.protocol import MetricReport, TrialRequest
from workers.stored_copies import BEST, MODEL, STATE, StoredCopies
from workers.training import Trainer

SAVING_SHARE = 20
"""Saving may take one part in so many of the time."""
QUIET_SECONDS = 60.0
"""Between two reports a state is saved at most this often."""


class Keeper:
    """Saves and restores for one attempt. Whatever it has to say it says in `known.info` and prints."""

    def __init__(
        self, request: TrialRequest, trainer: Trainer, known: Known, clock: Callable[[], float], ranks: Ranks = ALONE
    ) -> None:
        self._ranks = ranks
        self._request, self._trainer, self._known, self._clock = request, trainer, known, clock
        self._folder = AttemptFolder(request.folder)
        self._earlier = [AttemptFolder(path) for path in request.resume_from]
        self.reports: list[MetricReport] = []
        """What was reported so far, by earlier attempts too as far as this one goes on from them."""
        self._best: tuple[int, float] | None = None
        self._saved_at, self._cost = clock(), 0.0
        self._copies = StoredCopies(request, known)

    def resume(self) -> bool:
        """Go on from the newest usable state of earlier attempts; False when there is none.

        Rank 0 finds it; where another worker cannot read it, too, a `CheckpointError` or `StoreError` is raised there.
        """
        if self._ranks.rank == 0:
            found = self._restore()
            return self._ranks.first(found and str(found)) is not None
        state = self._ranks.first(None)
        if state is not None:
            with self._copies.at_hand(Path(state)) as folder:
                self._trainer.restore(folder)
        return state is not None

    def _restore(self) -> Path | None:
        """The state that training goes on from."""
        for folder in self._earlier:
            for state in self._copies.states(folder):
                try:
                    notes = self._trainer.restore(state)
                except CheckpointError as error:
                    self._known.info.setdefault("skipped_states", []).append(str(error))
                    print(f"skipped a state: {error}")
                else:
                    self._take_over(folder, notes)
                    return state
        return None

    def at_report(self, report: MetricReport) -> None:
        """Keep the best model, and save a state if one is due."""
        self.reports.append(report)
        best = self._is_best(report)
        best, due = self._ranks.any_of(best, not best and self._is_due())
        if best:
            self._save_best()
        if best or due:
            self.save_state()

    def is_overdue(self) -> bool:
        """Whether the last state is so long ago that one should be saved between two steps."""
        return self._is_due() and self._clock() - self._saved_at >= QUIET_SECONDS

    def finish(self, model: LoopedTransformer) -> None:
        """Save the final model, if need be in the room that the state took, and delete what nobody needs any more."""
        for room_made in (False, True):
            with self._unless_it_fails("checkpoint"):
                save_pretrained(model, self._folder.model)
            if "checkpoint" not in self._known.info or room_made:
                break
            self._discard_states()
        self._discard_states()
        if self._best is not None and self._best[0] == self._trainer.steps:
            shutil.rmtree(self._folder.best, ignore_errors=True)
            self._copies.drop(BEST)
        self._copies.drop(STATE)
        self._copies.keep(MODEL, self._folder.model, self._trainer.steps)
        self._copies.settle(patiently=True)

    def _is_due(self) -> bool:
        if self._ranks.rank > 0:
            return False  # rank 0 says when
        finished = self._trainer.steps_done == self._trainer.steps
        return not finished and self._clock() - self._saved_at >= SAVING_SHARE * self._cost

    def _is_best(self, report: MetricReport) -> bool:
        """Whether the report's model is at least as good as every one before; remembers it if so."""
        if self._request.best_by is None or self._request.best_by[0] not in report.metrics:
            return False
        metric, direction = self._request.best_by
        value = report.metrics[metric]
        if self._best is not None and (value > self._best[1] if direction == "minimize" else value < self._best[1]):
            return False
        self._best = (report.step, value)
        return report.step < self._trainer.steps

    def _save_best(self) -> None:
        model = self._trainer.whole_model()
        if model is not None:
            with self._unless_it_fails("best"):
                save_pretrained(model, self._folder.best)
                self._copies.keep(BEST, self._folder.best, self._trainer.steps_done)

    def save_state(self) -> None:
        """Save what a later attempt goes on from."""
        started = self._clock()
        state = self._folder.state_at(self._trainer.steps_done)
        with self._unless_it_fails("state"):
            self._trainer.save(state, self._notes())
            if self._ranks.rank == 0:
                self._folder.keep_only(state)
                self._discard_earlier()
                self._copies.keep(STATE, state, self._trainer.steps_done)
        if self._ranks.rank == 0:
            self._copies.settle()
        self._saved_at = self._clock()
        self._cost = self._saved_at - started

    def _notes(self) -> dict[str, Any]:
        """What a continuation must know besides the trainer's own state."""
        best = self._best and {"by": self._request.best_by, "step": self._best[0], "value": self._best[1]}
        return {"metrics": self._known.metrics, "best": best, "reports": [asdict(report) for report in self.reports]}

    def _take_over(self, folder: AttemptFolder, notes: dict[str, Any]) -> None:
        """Go on with what an earlier attempt knew."""
        step = self._trainer.steps_done
        self._known.metrics |= notes["metrics"]
        self.reports = [MetricReport(**report) for report in notes["reports"]]
        self._known.info["resumed"] = {"step": step, "from": Path(folder.path).name}
        print(f"resumed at step {step} from {folder.path}")
        best, by = notes["best"], self._request.best_by
        if not (best and by and tuple(best["by"]) == by):
            return
        self._copies.have_best(folder, best["step"])
        if folder.best.is_dir():
            with self._unless_it_fails("best"):
                shutil.copytree(folder.best, self._folder.best, dirs_exist_ok=True)
                self._best = (best["step"], best["value"])
                self._copies.keep(BEST, self._folder.best, best["step"])

    def _discard_states(self) -> None:
        self._folder.discard_state()
        self._discard_earlier()

    def _discard_earlier(self) -> None:
        """Earlier attempts are superseded: nothing of theirs is needed but what they printed."""
        for folder in self._earlier:
            folder.discard_state()
            shutil.rmtree(folder.best, ignore_errors=True)

    @contextmanager
    def _unless_it_fails(self, what: str) -> Iterator[None]:
        """Carry out a save; a failed one is said in `info[what]` until one succeeds."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            complaint = f"not saved: {_plain(error)}"
            self._known.info[what] = complaint
            print(f"{what} {complaint}")
        else:
            self._known.info.pop(what, None)


def _plain(error: Exception) -> str:
    """The error in one line, by the system's own words where it has any."""
    return (getattr(error, "strerror", None) or str(error)).splitlines()[0]
