"""The fetched problems: `make code-sets` puts them under `.code-sets/`; `PLT_CODE_SETS` names another home."""

import os
from pathlib import Path

import pytest

from workers.code.wheel import code_file

FOLDER = Path(os.environ.get("PLT_CODE_SETS") or Path(__file__).parents[3] / ".code-sets") / "data"


@pytest.fixture(scope="session")
def fetched() -> Path:
    """The data folder with both code sets; tests that need them are skipped without."""
    missing = [name for name in ("humaneval", "mbpp") if not code_file(FOLDER, name).exists()]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not fetched: make code-sets")
    return FOLDER
