"""One set of weights under several loop settings, without copying a tensor."""

from workers.config import ModelConfig
from workers.models.looped_transformer import LoopedTransformer


def share_weights(model: LoopedTransformer, config: ModelConfig) -> LoopedTransformer:
    """The model of `config` on the very tensors of `model`, for instance its non-looped twin.

    Tensors that `config` does not need (the gate, when there is one loop) are left out. A `ValueError` names a tensor
    that `model` lacks or holds in another shape.
    """
    twin = LoopedTransformer(config, device="meta")
    have, state = model.state_dict(keep_vars=True), {}
    for name, tensor in twin.state_dict().items():
        if name not in have or have[name].shape != tensor.shape:
            found = "nothing" if name not in have else f"shape {tuple(have[name].shape)}"
            raise ValueError(
                f"{name} must have shape {tuple(tensor.shape)}; the model that shares its weights has {found}"
            )
        state[name] = have[name]
    twin.load_state_dict(state, assign=True)
    return twin
