"""GGUF files, read back by transformers' own GGUF reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from workers.data.bpe_tokenizer import BpeTokenizer
from workers.data.tokenizer import ByteTokenizer
from workers.interop.errors import InteropError
from workers.interop.export import export_gguf

Make = Callable[..., Any]
Ids = Callable[..., Tensor]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("knobs", [{}, {"tie_word_embeddings": True, "num_attention_heads": 4}])
def test_transformers_reads_the_same_function(
    knobs: dict, dtype: torch.dtype, made: Make, tmp_path: Path, random_ids: Ids
) -> None:
    ours, ids = made("vanilla", dtype=dtype, **knobs), random_ids(2, 30)
    assert export_gguf(ours.checkpoint, tmp_path / "gguf") == ("README.md", "model.gguf")
    path = str(tmp_path / "gguf" / "model.gguf")
    config = LlamaConfig(**load_gguf_checkpoint(path)["config"])
    with torch.device("meta"):
        theirs = LlamaForCausalLM(config)
    tensors = load_gguf_checkpoint(path, return_tensors=True, model_to_load=theirs)["tensors"]
    theirs = LlamaForCausalLM(config)
    missing, unexpected = theirs.load_state_dict(tensors, strict=False)
    assert (unexpected, set(missing) - {"lm_head.weight"}) == ([], set())
    with torch.inference_mode():
        torch.testing.assert_close(theirs(ids).logits, ours.logits(ids), atol=1e-4, rtol=0, check_dtype=False)


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_the_vocabulary_is_in_the_file(kind: str, made: Make, tmp_path: Path) -> None:
    ours = ByteTokenizer() if kind == "bytes" else BpeTokenizer.train(290, [b"to be or not to be"] * 9)
    model = made("vanilla", vocab_size=ours.vocab_size)
    export_gguf(model.checkpoint, tmp_path / "gguf", tokenizer=ours.to_json())
    fields = gguf.GGUFReader(tmp_path / "gguf" / "model.gguf").fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    assert len(tokens) == ours.vocab_size
    assert tokens[fields["tokenizer.ggml.eos_token_id"].contents()] == "<|endoftext|>"
    assert tokens[ord("a")] == "a" or kind == "bpe"


def test_loops_are_refused(made: Make, tmp_path: Path) -> None:
    with pytest.raises(InteropError, match="it has 2 loops, and Llama runs its layers once"):
        export_gguf(made("plt").checkpoint, tmp_path / "gguf")
    assert not (tmp_path / "gguf").exists()
