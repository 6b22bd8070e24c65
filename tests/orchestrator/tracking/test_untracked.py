"""What waits to be tracked, said in one line without MLflow."""

import subprocess
import sys
from pathlib import Path

from orchestrator.home import Home
from orchestrator.tracking.entry import Reported, RunUpdate, encode
from orchestrator.tracking.spool import Spool
from orchestrator.tracking.tracked_run import RunStatus
from orchestrator.tracking.untracked import untracked
from workers.protocol import MetricReport

REMEDY = "are not in MLflow yet; `plt resume loops` delivers them when MLflow works"


def report(number: int) -> bytes:
    made = MetricReport(step=1, tokens=1, metrics={"loss": 1.0, "other": 2.0}, seconds=0.0)
    return encode(Reported(number=number, time=1, report=made))


def update(number: int | None) -> bytes:
    return encode(RunUpdate(number=number, time=1, status=RunStatus.RUNNING, name="x", started=1))


def test_nothing_is_said_of_a_study_that_is_tracked_and_nothing_is_made(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert untracked(home, "loops") is None
    assert list(tmp_path.iterdir()) == []
    Spool(home.spool("loops"))
    assert untracked(home, "loops") is None


def test_what_waits_is_counted_behind_the_cursor(tmp_path: Path) -> None:
    home = Home(tmp_path)
    spool = Spool(home.spool("loops"))
    for line in (update(None), update(4), report(4), report(4), report(5), b"\0 damaged\n"):
        spool.append(line)
    assert untracked(home, "loops") == f"3 reports and 2 changes of state of 2 trials {REMEDY}"
    lines, position = spool.read(4)
    spool.delivered(position, len(lines))
    assert untracked(home, "loops") == f"1 report and 0 changes of state of 1 trial {REMEDY}"


def test_a_study_whose_end_alone_is_missing_is_said(tmp_path: Path) -> None:
    home = Home(tmp_path)
    Spool(home.spool("loops")).append(update(None))
    assert untracked(home, "loops") == f"0 reports and 1 change of state of 0 trials {REMEDY}"


def test_it_imports_no_mlflow(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from orchestrator.home import Home\n"
        "from orchestrator.tracking.untracked import untracked\n"
        "untracked(Home(Path(sys.argv[1])), 'loops')\n"
        "print([name for name in ('mlflow', 'torch', 'ray', 'optuna') if name in sys.modules])\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip() == "[]"
