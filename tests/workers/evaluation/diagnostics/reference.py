"""The model and its loop diagnostics in plain numpy float64, one token, head and key at a time.

Written from the equations (arXiv 2510.24824, 2606.18023; tests/golden/README.md), without any code of `workers`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass
class Pass:
    """What one loop leaves behind for one sequence of S slots."""

    hidden: Array
    """h(r), (S, d)."""
    normalised: Array
    """(S, d)."""
    attention: list[Array] = field(default_factory=list)
    """By layer, (H, S, S): what each head really mixes with."""
    heads: list[Array] = field(default_factory=list)
    """By layer, (S, H, dh): before the output projection."""
    share: list[Array] = field(default_factory=list)
    """By layer, (S, H): the full context's share, with a gated window."""


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())


class Reference:
    """One looped transformer; `tensors` under their checkpoint names."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Array]) -> None:
        self.config, self.tensors = config, {name: np.asarray(value, np.float64) for name, value in tensors.items()}
        self.width = config["hidden_size"] // config["num_attention_heads"]

    def run(self, ids: NDArray[np.int64], loops: int) -> list[Pass]:
        """So many loops on one sequence; more than the model has go on in the same way."""
        embedded = self.tensors["model.embed_tokens.weight"][ids]
        passes: list[Pass] = []
        self.first: list[tuple[Array, Array]] = []
        for loop in range(1, loops + 1):
            x = embedded.copy() if loop == 1 else self._input(passes[-1].hidden, embedded)
            now = Pass(x, x)
            for layer in range(self.config["num_hidden_layers"]):
                x = self._layer(x, layer, loop, now)
            now.normalised = self._norm(x, self.tensors["model.norm.weight"])
            now.hidden = now.normalised if self.config["norm_per_loop"] and loop >= 1 else x
            passes.append(now)
        return passes

    def embedded(self, ids: NDArray[np.int64]) -> Array:
        return np.asarray(self.tensors["model.embed_tokens.weight"][ids])

    def probabilities(self, normalised: Array) -> Array:
        head = self.tensors.get("lm_head.weight", self.tensors["model.embed_tokens.weight"])
        return np.array([softmax(head @ row) for row in normalised])

    def _input(self, previous: Array, embedded: Array) -> Array:
        carried = previous.copy()
        if self.config["clp"]:
            carried[0] = 0.0
            for slot in range(1, len(previous)):
                carried[slot] = previous[slot - 1]
        x = self.config["hidden_scale"] * carried
        return np.asarray(x + self.config["emb_scale"] * embedded if self.config["reinject"] else x)

    def _norm(self, x: Array, weight: Array) -> Array:
        return np.array([row / np.sqrt((row * row).mean() + self.config["rms_norm_eps"]) * weight for row in x])

    def _turned(self, vector: Array, slot: int) -> Array:
        half, out = self.width // 2, np.empty_like(vector)
        for i in range(half):
            angle = slot * self.config["rope_theta"] ** (-2 * i / self.width)
            a, b = vector[i], vector[i + half]
            out[i] = a * np.cos(angle) - b * np.sin(angle)
            out[i + half] = b * np.cos(angle) + a * np.sin(angle)
        return out

    def _heads(self, x: Array, name: str, turn: bool) -> Array:
        projected = x @ self.tensors[name].T
        heads = projected.reshape(len(x), -1, self.width)
        if turn:
            heads = np.array([[self._turned(head, slot) for head in row] for slot, row in enumerate(heads)])
        return np.asarray(heads)

    def _layer(self, x: Array, layer: int, loop: int, now: Pass) -> Array:
        name, config, slots = f"model.layers.{layer}.", self.config, len(x)
        entering = self._norm(x, self.tensors[name + "input_layernorm.weight"])
        q = self._heads(entering, name + "self_attn.q_proj.weight", turn=True)
        k = self._heads(entering, name + "self_attn.k_proj.weight", turn=True)
        v = self._heads(entering, name + "self_attn.v_proj.weight", turn=False)
        if loop == 1:
            self.first.append((k, v))
        full_k, full_v = self.first[layer] if config["kv_mode"] == "share_first" else (k, v)
        windowed = loop > 1 and config["local"] == "swa"
        heads, groups = q.shape[1], q.shape[1] // k.shape[1]
        mixed, shares = np.zeros((slots, heads, self.width)), np.zeros((slots, heads))
        attention = np.zeros((heads, slots, slots))
        for t in range(slots):
            for h in range(heads):
                query, kv = q[t, h], h // groups
                full = softmax(np.array([query @ full_k[j, kv] for j in range(t + 1)]) / np.sqrt(self.width))
                output = sum(full[j] * full_v[j, kv] for j in range(t + 1))
                if not windowed:
                    attention[h, t, : t + 1], mixed[t, h] = full, output
                    continue
                low = max(0, t - config["window"] + 1)
                local = softmax(np.array([query @ k[j, kv] for j in range(low, t + 1)]) / np.sqrt(self.width))
                near = sum(local[j - low] * v[j, kv] for j in range(low, t + 1))
                share = shares[t, h] = self._share(name, x[t], query, h)
                attention[h, t, : t + 1] = share * full
                attention[h, t, low : t + 1] += (1 - share) * local
                mixed[t, h] = share * output + (1 - share) * near
        now.attention.append(attention)
        now.heads.append(mixed)
        if windowed:
            now.share.append(shares)
        x = x + mixed.reshape(slots, -1) @ self.tensors[name + "self_attn.o_proj.weight"].T
        entering = self._norm(x, self.tensors[name + "post_attention_layernorm.weight"])
        gate = entering @ self.tensors[name + "mlp.gate_proj.weight"].T
        up = entering @ self.tensors[name + "mlp.up_proj.weight"].T
        return np.asarray(x + (gate / (1 + np.exp(-gate)) * up) @ self.tensors[name + "mlp.down_proj.weight"].T)

    def _share(self, name: str, residual: Array, query: Array, head: int) -> float:
        if not isinstance(self.config.get("gate_mode"), str) and self.config.get("gate_mode") is not None:
            return float(self.config["gate_mode"])
        gate = name + "self_attn.plt_gate."
        if self.config["gate_input"] == "hidden":
            seen = self._norm(residual[None], self.tensors[gate + "gate_norm.weight"])[0]
        else:
            seen = query
        z = seen @ self.tensors[gate + "weight"][head] + self.tensors[gate + "bias"][head]
        g = float(1 / (1 + np.exp(-z)))
        return g if self.config["gate_polarity"] == "global" else 1 - g


def entropy(weights: Array) -> float:
    positive = weights[weights > 0]
    return float(-(positive * np.log(positive)).sum())


def divergence(p: Array, q: Array) -> float:
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


def effective_rank(matrix: Array) -> float:
    singular = np.linalg.svd(matrix, compute_uv=False)
    return float(np.exp(entropy(singular / singular.sum())))


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def diagnostics(model: Reference, inputs: NDArray[np.int64], targets: NDArray[np.int64]) -> dict[str, float]:
    """`loops/<r>/<name>` of every measure, by its equation."""
    loops = model.config["num_loops"]
    seen: dict[str, list[float]] = {}
    peaks: list[int] = []

    def add(loop: int, name: str, value: float) -> None:
        seen.setdefault(f"loops/{loop}/{name}", []).append(value)

    for ids, labels in zip(inputs, targets, strict=True):
        passes = model.run(ids, loops + 1)
        h = [model.embedded(ids), *(one.hidden for one in passes)]
        p = [model.probabilities(one.normalised) for one in passes]
        slots = len(ids)
        for r in range(1, loops + 1):
            now, before = passes[r - 1], passes[r - 2]
            add(r, "step_size", float(np.mean([np.linalg.norm(h[r][t] - h[r - 1][t]) for t in range(slots)])))
            add(r, "fixed_point_gap", float(np.mean([np.linalg.norm(h[r + 1][t] - h[r][t]) for t in range(slots)])))
            rms = np.array([row / np.sqrt((row * row).mean() + model.config["rms_norm_eps"]) for row in h[r]])
            add(r, "effective_rank", effective_rank(rms))
            for layer in range(model.config["num_hidden_layers"]):
                a, heads = now.attention[layer], now.heads[layer]
                add(r, "attention_entropy", float(np.mean([entropy(row) for head in a for row in head])))
                add(r, "head_rank", float(np.mean([effective_rank(heads[t]) for t in range(slots)])))
                count = heads.shape[1]
                pairs = [(i, j) for i in range(count) for j in range(i)]
                cosines = [cosine(heads[t, i], heads[t, j]) for t in range(slots) for i, j in pairs]
                add(r, "head_cosine", float(np.mean(cosines)))
                if r > 1:
                    rows = [(a[k, t], before.attention[layer][k, t]) for k in range(count) for t in range(slots)]
                    add(r, "attention_kl", float(np.mean([divergence(*pair) for pair in rows])))
                if now.share:
                    add(r, "global_share", float(now.share[layer].mean()))
            if r > 1:
                moves = [(h[r][t] - h[r - 1][t], h[r - 1][t] - h[r - 2][t]) for t in range(slots)]
                still = [min(np.linalg.norm(a), np.linalg.norm(b)) < 1e-5 for a, b in moves]
                cosines = [0.0 if stopped else cosine(*pair) for pair, stopped in zip(moves, still, strict=True)]
                add(r, "update_cosine", float(np.mean(cosines)))
                if model.config["clp"]:
                    shifts = [np.linalg.norm(h[r - 1][t] - (h[r - 1][t - 1] if t else 0)) for t in range(slots)]
                    add(r, "offset", float(np.mean(shifts)))
        for t in np.flatnonzero(labels != -100):
            for r in range(1, loops + 1):
                q, true = p[r - 1][t], p[r - 1][t][labels[t]]
                add(r, "lens_loss", float(-np.log(true)))
                add(r, "true_rank", 1.0 + float((q > true).sum()))
                add(r, "lens_entropy", entropy(q))
                if r > 1:
                    add(r, "lens_kl", divergence(q, p[r - 2][t]))
            changes = [divergence(p[r - 1][t], p[r - 2][t]) for r in range(2, loops + 1)]
            peaks += [r for r, change in enumerate(changes, start=2) if change >= max(changes) - 1e-6][:1]
    found = {name: float(np.mean(values)) for name, values in seen.items()}
    for r in range(2, loops + 1):
        found[f"loops/{r}/peak_share"] = peaks.count(r) / len(peaks)
        if f"loops/{r}/offset" in found:
            found[f"loops/{r}/offset_over_step"] = found[f"loops/{r}/offset"] / found[f"loops/{r}/step_size"]
    return found
