"""What the folder of one attempt holds. Every path in it is named here and nowhere else.

<attempt>/
  checkpoint/    the final model, readable by `load_pretrained`
  best/          weights of the best evaluation, only where it was not the last one
  state/         what training needs to go on; gone once the attempt has succeeded or a later one has its own
  meeting        where rank 0 of several workers is, while they gather
  output.log     what the attempt printed and logged, a line per report, and the traceback of a failure
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

_STEP = "step-"


@dataclass(frozen=True)
class AttemptFolder:
    """The names inside one attempt's own folder; making one touches no file."""

    path: Path | str

    @property
    def model(self) -> Path:
        """The final model."""
        return Path(self.path) / "checkpoint"

    @property
    def best(self) -> Path:
        """The model of the best evaluation."""
        return Path(self.path) / "best"

    @property
    def state(self) -> Path:
        """Resumable training state."""
        return Path(self.path) / "state"

    @property
    def output(self) -> Path:
        """The attempt's output, a text file."""
        return Path(self.path) / "output.log"

    @property
    def meeting(self) -> Path:
        """Host and port of rank 0, a text file (`workers.parallel.meeting`)."""
        return Path(self.path) / "meeting"

    def state_at(self, step: int) -> Path:
        """The state saved after so many steps."""
        return self.state / self.state_name(step)

    @staticmethod
    def state_name(step: int) -> str:
        """What a state saved after so many steps is called."""
        return f"{_STEP}{step:09d}"

    @staticmethod
    def is_state(name: str) -> bool:
        """Whether a state may be called so."""
        return re.fullmatch(rf"{_STEP}[0-9]{{9,12}}", name) is not None

    def states(self) -> list[Path]:
        """Saved states, newest first."""
        return sorted(self.state.glob(f"{_STEP}*"), reverse=True)

    def keep_only(self, state: Path) -> None:
        """Delete every other state, and what a killed process left half written."""
        for path in self.state.iterdir():
            if path != state:
                shutil.rmtree(path, ignore_errors=True)

    def discard_state(self) -> None:
        """Delete what only a continuation would need; the final model and the output stay."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.meeting.unlink(missing_ok=True)
        for half_written in Path(self.path).glob(".*"):
            shutil.rmtree(half_written, ignore_errors=True)
