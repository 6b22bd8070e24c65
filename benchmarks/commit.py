"""Which code a benchmark ran."""

import subprocess
from pathlib import Path


def commit() -> str:
    """The checked-out commit, marked when files differ from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return described.stdout.strip() or "unknown"
