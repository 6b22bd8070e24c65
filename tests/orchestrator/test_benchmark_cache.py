from pathlib import Path

from orchestrator.benchmark_cache import BenchmarkCache, Measurement


def test_a_measurement_is_found_again_only_for_its_architecture_and_hardware(tmp_path: Path) -> None:
    measured = Measurement(metrics={"decode/ms_per_token": 7.25}, info={"device": "a"})
    cache = BenchmarkCache(tmp_path / "benchmarks", {"device": "a"}, threads=2)
    assert cache.get("arch") is None
    cache.put("arch", measured)
    assert BenchmarkCache(tmp_path / "benchmarks", {"device": "a"}, threads=2).get("arch") == measured
    assert cache.get("other") is None
    assert BenchmarkCache(tmp_path / "benchmarks", {"device": "b"}, threads=2).get("arch") is None
    assert BenchmarkCache(tmp_path / "benchmarks", {"device": "a"}, threads=1).get("arch") is None
