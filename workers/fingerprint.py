"""Identity by content: the same plain data has the same short hash on every machine."""

import hashlib
import json
from typing import Any


def fingerprint(data: Any) -> str:
    """First 16 hex digits of the SHA-256 of the data as canonical JSON (sorted keys, no NaN)."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
