"""One pre-norm decoder layer: attention, then a SwiGLU MLP (arXiv 2002.05202), each added to the residual stream."""

from torch import Tensor, nn
from torch.nn.functional import silu

from workers.config import ModelConfig
from workers.models.attention import Attended, Attention, KeyValue
from workers.models.norm import RMSNorm
from workers.models.rotary import RotaryTables


class Mlp(nn.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map `x` (..., d) to (..., d)."""
        output: Tensor = self.down_proj(silu(self.gate_proj(x)) * self.up_proj(x))
        return output


class DecoderLayer(nn.Module):
    """x + Attention(RMSNorm(x)), then x + Mlp(RMSNorm(x)); the same weights in every loop."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor, tables: RotaryTables, first: KeyValue | None) -> tuple[Tensor, Attended]:
        """One layer on the residual stream `x` (B, S, d); `first` is loop 1's keys and values here, None in loop 1."""
        attended: Attended = self.self_attn(self.input_layernorm(x), x, tables, first)
        x = x + attended.output
        return x + self.mlp(self.post_attention_layernorm(x)), attended
