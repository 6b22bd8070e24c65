"""What a study gives when nothing happens to it: the truth that every broken and continued one is compared with."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.driver import Driver
from harness.outside import Place, Replicate, Truth
from harness.studies import Scenario

NAME = "unbroken"


@dataclass(frozen=True, kw_only=True)
class Unbroken:
    """One study, run once from its beginning to its end."""

    scenario: Scenario
    place: Place
    truth: Mapping[Replicate, Truth]
    start_seconds: float
    """From the start of its process to the start of its first trial."""
    reports: int
    """Of all trials together."""


def run_unbroken(scenario: Scenario, folder: Path, template: Path) -> Unbroken:
    """Run the study on the local backend, in a new home like `template`."""
    home = folder / "home"
    shutil.copytree(template, home)
    place = Place.of(home, NAME)
    arguments = ["run", str(scenario.write(folder, NAME)), "--backend=local"]
    driver = Driver(arguments, {"PLT_HOME": str(home)}, folder / "plt.txt")
    if driver.wait() != 0:
        raise RuntimeError(f"a study to which nothing happens does not end well: {driver.said()}")
    begun = min(trial.attempts[0].started for trial in place.record().trials)
    return Unbroken(
        scenario=scenario,
        place=place,
        truth=place.truth(),
        start_seconds=begun.timestamp() - driver.began,
        reports=place.reports(),
    )
