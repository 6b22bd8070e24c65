"""How numbers are written for people: every metric with its unit, every mean with its interval."""

from orchestrator.statistics import Interval

_UNITS = {
    "ms_per_token": "ms/token",
    "ms_per_token_p95": "ms/token",
    "prefill/ms": "ms",
    "bits_per_byte": "bits/byte",
    "loss": "nats/token",
    "lens_loss": "nats/token",
    "lens_entropy": "nats",
    "lens_kl": "nats",
    "attention_entropy": "nats",
    "attention_kl": "nats",
    "tokens_per_second": "tokens/s",
    "seconds": "s",
    "tokens": "tokens",
    "flops": "FLOP",
    "parameters": "parameters",
    "latency_ratio": "x",
    "ratio": "x",
}
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB")
_DECIMAL = ("", "k", "M", "G", "T", "P", "E")


def unit(metric: str) -> str:
    """The unit of a metric, empty when it is a plain fraction; byte counts are written with their own prefix."""
    if "bytes_per_sequence" in metric:
        return "bytes"
    tail = metric.rsplit("/", 1)[-1]
    return next((text for key, text in _UNITS.items() if metric.endswith(key) and tail == key.rsplit("/", 1)[-1]), "")


def number(metric: str, value: float) -> str:
    """The value with a sensible number of digits, without its unit (byte counts keep theirs)."""
    if unit(metric) == "bytes":
        return byte_count(value)
    if unit(metric) in ("tokens", "FLOP", "parameters", "tokens/s"):
        return _scaled(value, 1000, _DECIMAL)
    if metric.endswith("seconds"):
        return f"{value:.1f}"
    if unit(metric) in ("ms", "ms/token"):
        return f"{value:.2f}"
    if "per_byte" in metric or "loss" in metric:
        return f"{value:.4f}"
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.01 else f"{value:.3g}"


def byte_count(value: float) -> str:
    """Bytes in binary units: 4194304 is `4.00 MiB`."""
    return _scaled(value, 1024, _BINARY)


def with_unit(metric: str, value: float) -> str:
    """Value and unit."""
    text = number(metric, value)
    suffix = unit(metric)
    return text if suffix in ("", "bytes") else f"{text} {suffix}"


def with_interval(metric: str, interval: Interval) -> str:
    """Mean and half-width of the 95 % interval when there is more than one value: `1.234 ± 0.012`."""
    mean = number(metric, interval.mean)
    if interval.low is None or interval.high is None or interval.high == interval.low:
        return mean
    return f"{mean} ± {number(metric, (interval.high - interval.low) / 2)}"


def duration(seconds: float) -> str:
    """`42 s`, `3 min 05 s`, `2 h 07 min`."""
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def _scaled(value: float, base: int, names: tuple[str, ...]) -> str:
    scaled, index = float(value), 0
    while abs(scaled) >= base and index < len(names) - 1:
        scaled /= base
        index += 1
    digits = f"{scaled:.0f}" if index == 0 and scaled == int(scaled) else f"{scaled:.2f}"
    return f"{digits} {names[index]}".strip()


def knob(value: object) -> str:
    """A knob's value: drawn numbers have 17 digits, of which four tell points apart."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
