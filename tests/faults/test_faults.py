"""Whatever happens to a study's processes, files and services, it ends as it would have ended without."""

import pytest
from harness.round import Outcome


@pytest.mark.timeout(900)
def test_a_broken_study_ends_as_an_unbroken_one(outcome: Outcome) -> None:
    assert not outcome.problems, "\n".join(outcome.problems)
