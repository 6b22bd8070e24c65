"""A cluster that is started here leaves nothing behind that changes what Ray does later, and its room is counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.backends.placement import Placement

STARTED = """
import os
from orchestrator.backends.placement import Placement
from orchestrator.backends.ray_backend import RayBackend

backend = RayBackend(train=Placement(gpus=0))
assert backend.slots >= 1
print(os.environ["RAY_AUTH_MODE"])
backend.close()
print([name for name in os.environ if name.startswith("RAY_AUTH")])
"""


def test_a_started_cluster_asks_for_a_token_that_is_kept_nowhere(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", STARTED],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.splitlines() == ["token", "[]"], ran.stderr
    assert not (tmp_path / ".ray").exists()


@pytest.mark.parametrize(
    ("have", "need", "fit"),
    [
        ({"CPU": 8}, (1, 0), 8),
        ({"CPU": 8}, (3, 0), 2),
        ({"CPU": 0.3}, (0.1, 0), 3),
        ({"CPU": 8, "GPU": 2}, (1, 0.25), 8),
        ({"CPU": 8, "GPU": 2}, (0.1, 0.1), 20),
        ({"CPU": 8, "GPU": 2}, (1, 0.4), 4),  # two on each GPU; a fifth would need parts of both
        ({"CPU": 8, "GPU": 3}, (1, 2), 1),
        ({"CPU": 8}, (1, 1), 0),
        ({}, (1, 0), 0),
    ],
)
def test_attempts_are_counted_as_ray_places_them(have: dict[str, float], need: tuple[float, float], fit: int) -> None:
    assert Placement(cpus=need[0], gpus=need[1]).slots([(have, {})]) == fit
