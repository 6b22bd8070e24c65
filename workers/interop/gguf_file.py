"""A model with one loop as a GGUF file for llama.cpp. Needs the package `gguf`.

llama.cpp pairs neighbouring elements of a head in RoPE where Hugging Face pairs halves, so the rows of the query and
key projections are reordered. Norms stay float32; matrices keep their type.
"""

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from workers.config import ModelConfig
from workers.interop.errors import InteropError
from workers.interop.layout import Layout, require_layout
from workers.interop.tokenizer_files import END_OF_TEXT
from workers.models import LoopedTransformer

GGUF_FILE = "model.gguf"
_LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHER_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def write_gguf(model: LoopedTransformer, path: Path, tokenizer: Path | None = None) -> None:
    """Write `model` to `path`, with the vocabulary of a `tokenizer.json` where there is one.

    An `InteropError` when the model has loops, or `gguf` is not installed.
    """
    require_layout(model.config, Layout.LLAMA)
    try:
        import gguf
    except ModuleNotFoundError:
        raise InteropError("gguf is not installed; install it (pip install gguf), or use another --format") from None
    writer = gguf.GGUFWriter(path, "llama")
    _write_sizes(writer, model.config)
    _write_vocabulary(writer, model.config, tokenizer)
    for name, tensor in model.state_dict().items():
        ours, theirs = _turned(name, tensor, model.config), _gguf_name(name)
        if tensor.dtype == torch.bfloat16 and tensor.dim() > 1:
            kind = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(theirs, ours.contiguous().view(torch.uint16).numpy().view("uint8"), raw_dtype=kind)
        else:
            writer.add_tensor(theirs, ours.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _write_sizes(writer: Any, config: ModelConfig) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)


def _write_vocabulary(writer: Any, config: ModelConfig, tokenizer: Path | None) -> None:
    if tokenizer is None:
        writer.add_tokenizer_model("none")
        return
    engine = json.loads(tokenizer.read_text(encoding="utf-8"))
    tokens = sorted(engine["model"]["vocab"].items(), key=lambda item: item[1])
    if engine["model"].get("type") != "BPE" or [index for _, index in tokens] != list(range(config.vocab_size)):
        raise InteropError(f"{tokenizer} is no byte-level BPE of {config.vocab_size} tokens; take it out of the folder")
    merges = engine["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([3 if token == END_OF_TEXT else 1 for token, _ in tokens])  # control, normal
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in merges])
    end = engine["model"]["vocab"].get(END_OF_TEXT)
    if end is not None:
        writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)


def _gguf_name(name: str) -> str:
    if name in _OTHER_NAMES:
        return _OTHER_NAMES[name]
    _, _, index, rest = name.split(".", 3)
    return f"blk.{index}.{_LAYER_NAMES[rest.removesuffix('.weight')]}.weight"


def _turned(name: str, tensor: Tensor, config: ModelConfig) -> Tensor:
    """Rows in llama.cpp's order: the two of a RoPE pair beside each other."""
    if "q_proj" not in name and "k_proj" not in name:
        return tensor
    halves = tensor.view(-1, 2, config.head_dim // 2, config.hidden_size)
    return halves.transpose(1, 2).reshape(tensor.shape)
