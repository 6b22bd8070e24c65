"""A tally that follows gives what counting anew gives."""

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.proposer import Evaluation
from orchestrator.tally import Tally


def evaluation(name: int, value: int | None) -> Evaluation:
    return Evaluation(
        fingerprint=f"c{name}",
        params={},
        values=None if value is None else (float(value),),
        violations={},
        running=value is None,
        sampler_state={},
    )


KNOWN = st.lists(st.tuples(st.integers(0, 8), st.none() | st.integers(0, 1)), unique_by=lambda pair: pair[0])


@given(st.lists(KNOWN, max_size=8))
def test_however_what_is_known_changes(steps: list[list[tuple[int, int | None]]]) -> None:
    objects: dict[tuple[int, int | None], Evaluation] = {}
    tally = Tally()
    for step in steps:
        tally.follow([objects.setdefault(pair, evaluation(*pair)) for pair in step])

        assert tally.fingerprints == {f"c{name}" for name, _ in step}
        assert tally.results == sum(value is not None for _, value in step)
