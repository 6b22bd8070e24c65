"""Checkpoints of the Hugging Face hub, by name. Needs the package `huggingface_hub`.

Only configuration, safetensors and tokenizer files are fetched: never code, never a pickle. `HF_ENDPOINT`, `HF_HOME`,
`HF_TOKEN` and `HF_HUB_OFFLINE` are the library's own.
"""

import re
from pathlib import Path

from workers.interop.errors import InteropError
from workers.interop.tokenizer_files import TOKENIZER_FILES

PREFIX = "hf:"
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
_WANTED = ["config.json", "*.safetensors", "model.safetensors.index.json", *TOKENIZER_FILES]


def fetch(name: str) -> Path:
    """The folder, in the library's cache, of `OWNER/MODEL`; an `InteropError` when it cannot be had."""
    if _NAME.fullmatch(name) is None or ".." in name:
        raise InteropError(f"{PREFIX}{name} is no name of the hub; write {PREFIX}OWNER/MODEL")
    try:
        from huggingface_hub import snapshot_download
    except ModuleNotFoundError:
        raise InteropError(
            f"huggingface_hub is not installed, which {PREFIX}{name} needs; pip install huggingface_hub"
        ) from None
    try:
        return Path(snapshot_download(name, allow_patterns=_WANTED))
    except (OSError, ValueError, RuntimeError) as error:  # every error of the library is one of these
        complaint = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InteropError(f"{PREFIX}{name} cannot be fetched: {complaint}") from error
