"""Whether other engines compute an exported folder as we do.

Each installed engine runs two sequences in float32, a prompt longer than the window and then one token at a time far
past it, and gives the log probability of every token of the vocabulary after every slot. They are compared with our
training form, recomputed in float64 from the very tokens that the engine ran.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from workers.interop.description import Description, describe
from workers.interop.engines.registry import ENGINES
from workers.interop.errors import InteropError
from workers.interop.gguf_file import GGUF_FILE, write_gguf
from workers.interop.reading import load_model
from workers.models import LoopedTransformer

_SEQUENCES, _PREFILL, _STEPS = 2, 24, 24
_LONGEST = 512
_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """What one engine said."""

    engine: str
    version: str
    difference: float | None = None
    """Largest difference of a log probability over all slots and tokens; None when the engine did not run."""
    same_choice: float | None = None
    """Share of the slots at which both give the same likeliest token."""
    limit: float = 0.0
    note: str = ""
    """Why it did not run."""
    failed: bool = False
    """Whether it should have run."""

    @property
    def agrees(self) -> bool:
        """Whether there is nothing to worry about: it computes the same, or knows no such model."""
        return not self.failed and (self.difference is None or self.difference <= self.limit)


def verify(folder: Path, pythons: Sequence[str] = (sys.executable,)) -> list[Agreement]:
    """Ask every engine that these Pythons have installed about the exported `folder`."""
    description = describe(folder)
    if description.layout is None:
        raise InteropError(f"{folder} is this project's own layout, which no other engine reads; export it first")
    model = load_model(folder).double()
    return [
        _ask(python, name, version, folder, description, model)
        for python in pythons
        for name, version in _installed(python).items()
    ]


def _installed(python: str) -> dict[str, str]:
    """Engines that an environment has, with their versions."""
    ran = _python(python, "list")
    if ran.returncode != 0:
        raise InteropError(f"{python} cannot be asked for its engines: {_last_line(ran.stderr)}")
    found: dict[str, str] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _ask(
    python: str, name: str, version: str, folder: Path, description: Description, model: LoopedTransformer
) -> Agreement:
    engine, config = ENGINES[name], description.config
    refusal = engine.refusal(str(description.layout), config.num_loops, config.head_dim)
    if refusal is not None:
        return Agreement(engine=name, version=version, note=refusal)
    with tempfile.TemporaryDirectory() as scratch:
        subject = folder
        if engine.needs_gguf:
            subject = Path(scratch)
            write_gguf(model.float(), subject / GGUF_FILE)
            model.double()
        given, answer = Path(scratch) / "given.npz", Path(scratch) / "answer.npz"
        ids, prefill = _sequences(model)
        np.savez(given, ids=ids, prefill=prefill)
        ran = _python(python, "run", name, str(subject), str(given), str(answer))
        if not answer.exists():  # some engines abort when they end, having answered
            return Agreement(engine=name, version=version, note=f"failed: {_last_line(ran.stderr)}", failed=True)
        with np.load(answer) as arrays:
            theirs = torch.from_numpy(arrays["log_probs"]).double()
            ours = _log_probs(model, torch.from_numpy(arrays["ids"]))
    known = ~theirs.isnan().any(-1)
    return Agreement(
        engine=name,
        version=version,
        difference=float((theirs - ours)[known].abs().max()),
        same_choice=float((theirs.argmax(-1) == ours.argmax(-1))[known].double().mean()),
        limit=engine.limit,
    )


def _sequences(model: LoopedTransformer) -> tuple[np.ndarray, int]:
    """Token ids (B, S) and how many of them are the prompt: longer than the window, as far as the model reaches."""
    config = model.config
    longest = min(_LONGEST, config.max_position_embeddings - 1)  # vLLM wants room for one more
    if longest < 2:
        raise InteropError(f"the model takes {config.max_position_embeddings} tokens, too few to be verified")
    window = min(config.window or 0, longest // 2)
    prefill = min(max(_PREFILL, window + window // 2), longest // 2 + 1)
    length = min(prefill + max(_STEPS, window + 2), longest)
    generator = torch.Generator().manual_seed(0)
    return torch.randint(config.vocab_size, (_SEQUENCES, length), generator=generator).numpy(), prefill


def _log_probs(model: LoopedTransformer, ids: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        log_probs: torch.Tensor = model(ids).logits.log_softmax(-1)
    return log_probs


def _python(python: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    here = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as home:  # where transformers copies the folder's code to
        environment = {"HF_HOME": home, **os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
        command = [python, "-m", "workers.interop.engines", *arguments]
        try:
            return subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
            )
        except OSError as error:
            raise InteropError(f"{python} cannot be run ({error.strerror}); give the path of a Python") from error
        except subprocess.TimeoutExpired as error:
            return subprocess.CompletedProcess(error.cmd, 1, "", f"no answer within {_SECONDS} s")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"
