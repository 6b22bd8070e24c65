"""Which metrics have one value per configuration, however many seeds it was trained with.

Decode latency and KV memory depend on shapes and are measured once per architecture; every replicate carries a copy.
Copies are not evidence, so such a metric has no interval over seeds.
"""

import re

_BATCH_PREFIX = re.compile(r"b\d+/")
_FAMILIES = ("decode", "prefill", "kv", "model")
_COUNTS = ("train/flops", "train/tokens", "train/lr")


def same_for_all_seeds(metric: str) -> bool:
    """Whether replicates share this metric's value."""
    name = _BATCH_PREFIX.sub("", metric, count=1)
    return name.partition("/")[0] in _FAMILIES or name in _COUNTS
