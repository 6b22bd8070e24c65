"""Runs in the environment of an engine: `list`, or `run NAME FOLDER IN OUT`."""

import importlib.metadata
import importlib.util
import json
import sys
from pathlib import Path

import numpy as np

from workers.interop.engines.registry import ENGINES


def main(arguments: list[str]) -> None:
    """One of the two."""
    if arguments == ["list"]:
        print(
            json.dumps(
                {name: _version(engine.distribution) for name, engine in ENGINES.items() if _has(engine.package)}
            )
        )
        return
    _, name, folder, source, target = arguments
    with np.load(source) as given:
        ids, log_probs = ENGINES[name].run(Path(folder), given["ids"], int(given["prefill"]))
    np.savez(target, ids=ids, log_probs=log_probs)


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:  # built under another name
        return "unknown version"


if __name__ == "__main__":
    main(sys.argv[1:])
