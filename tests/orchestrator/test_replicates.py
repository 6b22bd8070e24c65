import pytest

from orchestrator.replicates import same_for_all_seeds


@pytest.mark.parametrize(
    ("metric", "same"),
    [
        ("decode/ms_per_token", True),
        ("b8/decode/latency_ratio", True),
        ("kv/bytes_per_sequence", True),
        ("prefill/ms", True),
        ("model/parameters", True),
        ("train/flops", True),
        ("train/loss", False),
        ("train/seconds", False),
        ("val/bits_per_byte", False),
        ("tasks/phop/accuracy", False),
    ],
)
def test_what_depends_on_shapes_alone_is_no_evidence_of_seeds(metric: str, same: bool) -> None:
    assert same_for_all_seeds(metric) is same
