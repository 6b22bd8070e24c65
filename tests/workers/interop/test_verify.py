"""What `--verify` says of a good folder, a wrong one, and engines that fail; engines run in their own processes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from workers.interop.engines.engine import log_softmax
from workers.interop.engines.registry import ENGINES
from workers.interop.errors import InteropError
from workers.interop.verify import verify

Make = Callable[..., Any]


def test_installed_engines_agree_or_say_why_they_cannot_run_it(made: Make) -> None:
    said = {each.engine: each for each in verify(made("iquest-loop", num_loops=3).folder)}
    assert set(said) >= {"transformers", "mlx-lm"}
    assert said["transformers"].agrees
    assert said["transformers"].difference is not None
    assert said["transformers"].same_choice == 1.0
    assert said["mlx-lm"].note == "runs 1, 2 loops only, not 3"
    assert said["mlx-lm"].difference is None


def test_a_folder_that_computes_something_else_is_found_out(made: Make, tmp_path: Path) -> None:
    """The code in it is changed so that a window is one token too wide: the answers are those of another model."""
    folder = Path(shutil.copytree(made("iquest-loop", num_loops=3).folder, tmp_path / "wrong"))
    code = folder / "configuration_iquestloopcoder.py"
    code.write_text(code.read_text().replace('"window": self.loop_window_size', '"window": self.loop_window_size + 1'))
    (wrong,) = [each for each in verify(folder) if each.engine == "transformers"]
    assert not wrong.agrees
    assert wrong.difference > 0.01


def test_an_engine_that_breaks_is_said_to(made: Make, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made("plt").folder, tmp_path / "broken"))
    (folder / "modeling_iquestpltcoder.py").write_text("raise RuntimeError('no such luck')")
    (broken,) = [each for each in verify(folder) if each.engine == "transformers"]
    assert (broken.agrees, broken.note) == (False, "failed: RuntimeError: no such luck")


def test_what_cannot_be_verified(made: Make, tmp_path: Path) -> None:
    with pytest.raises(InteropError, match="this project's own layout"):
        verify(made("plt").checkpoint)
    with pytest.raises(InteropError, match=r"nowhere/python cannot be run \(No such file or directory\)"):
        verify(made("plt").folder, [str(tmp_path / "nowhere" / "python")])


def test_engines_know_what_they_do_not_run() -> None:
    assert ENGINES["vLLM"].refusal("iquestloopcoder", 4, 16) == "has no kernel for heads of width 16"
    assert ENGINES["vLLM"].refusal("iquestloopcoder", 4, 32) is None
    assert ENGINES["vLLM"].refusal("iquestpltcoder", 2, 32) == "does not know iquestpltcoder"
    assert ENGINES["llama.cpp"].refusal("iquestloopcoder", 2, 32) == "does not know iquestloopcoder"


def test_log_probabilities_are_torchs() -> None:
    logits = torch.randn(2, 3, 50, generator=torch.Generator().manual_seed(0)) * 30
    expected = logits.double().log_softmax(-1).float()
    torch.testing.assert_close(torch.from_numpy(log_softmax(logits.numpy())), expected, atol=1e-5, rtol=0)
