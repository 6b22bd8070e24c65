"""Rounds of the fault suite: how many, under which seed, and the table at the end.

PLT_FAULT_ROUNDS rounds (by default the short plan once) under PLT_FAULT_SEED (by default drawn), PLT_FAULT_JOBS of them
at once (by default 2).
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness.plan import SHORT, faults_of, in_database
from harness.round import Outcome
from harness.rounds import Rounds

from tests.services import have_postgres, programs

SEED = pytest.StashKey[int]()
OUTCOMES = pytest.StashKey[list[Outcome]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SEED] = int(os.environ.get("PLT_FAULT_SEED") or random.SystemRandom().randrange(10**6))
    config.stash[OUTCOMES] = []


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "round_number" in metafunc.fixturenames:
        faults = faults_of(int(os.environ.get("PLT_FAULT_ROUNDS") or len(SHORT)))
        ids = [f"{fault}-{number}" for number, fault in enumerate(faults)]
        metafunc.parametrize("round_number", range(len(faults)), ids=ids, scope="session")


@pytest.fixture(scope="session")
def rounds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rounds]:
    """Every round that was selected, under way."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    selected = sorted({call.params["round_number"] for call in calls if call and "round_number" in call.params})
    faults = faults_of(max(selected, default=-1) + 1)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("MLFLOW_TRACKING_URI", "PLT_STORAGE"):
            patch.delenv(name, raising=False)
        under_way = Rounds(
            {n: faults[n] for n in selected if have_postgres() or not in_database(faults[n])},
            request.config.stash[SEED],
            tmp_path_factory.mktemp("faults"),
            int(os.environ.get("PLT_FAULT_JOBS") or 2),
        )
        yield under_way
        under_way.close()


@pytest.fixture
def outcome(request: pytest.FixtureRequest, round_number: int, rounds: Rounds) -> Outcome:
    """The round's, noted for the table."""
    if in_database(faults_of(round_number + 1)[round_number]):
        programs()
    found = rounds.outcome(round_number)
    request.config.stash[OUTCOMES].append(found)
    return found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table of rounds."""
    outcomes = config.stash[OUTCOMES]
    if not outcomes:
        return
    terminalreporter.section(f"{len(outcomes)} faults under PLT_FAULT_SEED={config.stash[SEED]}")
    form = "{:>5}  {:<11}  {:<22}  {:<34}  {:>8}  {:>7}  {:>7}  {}"
    terminalreporter.line(form.format("round", "seed", "fault", "moment", "finished", "resumes", "seconds", "verdict"))
    for one in outcomes:
        verdict = one.problems[0].splitlines()[0][:80] if one.problems else "as unbroken"
        seconds = f"{one.seconds:.1f}"
        terminalreporter.line(
            form.format(one.number, one.seed, one.fault, one.moment, one.finished_before, one.resumes, seconds, verdict)
        )
