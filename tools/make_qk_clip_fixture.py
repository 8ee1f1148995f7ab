#!/usr/bin/env python3
"""Writes tests/fixtures/qk_clip/steps.inc: 20 steps of MuonClip, and of AdamW with QK-clip, in plain PyTorch.

QK-clip is that of Kimi K2, arXiv 2507.20534, section 2.1; a key that heads share stays, as the rotary key does there. Muon
is that of tools/make_muon_fixture.py. Models are small decoders with latent and with grouped attention, in fp64. Every
number of a start is a function of its tensor's name and its place in it (start()), which the test has too.
"""
import argparse
import math
from pathlib import Path

import torch
import torch.nn.functional as F

from make_muon_fixture import orthogonal

VOCABULARY, HIDDEN, LAYERS, WIDTH, SEQUENCE, SEQUENCES, STEPS, TAU = 16, 8, 2, 12, 12, 2, 20, 3.0
RATE, DECAY, CLIP, BETA1, BETA2, EPSILON, MOMENTUM = 0.02, 0.1, 1.0, 0.9, 0.95, 1e-8, 0.95
Q_RANK, KV_RANK, NOPE, ROPE, VALUE, HEAD = 4, 4, 4, 2, 4, 4
CASES = {  # attention, query heads, key heads, biases, optimizer
    "latent_muon": ("latent", 2, 2, False, "muon"),
    "latent_adamw": ("latent", 2, 2, False, "adamw"),
    "shared_keys_muon": ("grouped", 4, 2, True, "muon"),
    "own_keys_adamw": ("grouped", 2, 2, True, "adamw"),
}


def start(name, *shape):
    if "norm" in name:
        return torch.ones(*shape, dtype=torch.float64).requires_grad_()
    size = 1.2 if "q_" in name or "k_proj" in name or "kv_b" in name else 0.4
    seed = sum(map(ord, name)) % 11 + 1
    numbers = [size * math.sin(0.37 * (i + 1) * seed) for i in range(math.prod(shape))]
    return torch.tensor(numbers, dtype=torch.float64).reshape(shape).requires_grad_()


def tokens(step):
    return torch.tensor([[(7 * t * t + 3 * t * b + step * (t + 1)) % VOCABULARY for t in range(SEQUENCE + 1)]
                         for b in range(SEQUENCES)])


def norm(x, gain):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * gain


def turn(x, interleaved):  # [..., S, r]
    r = x.shape[-1]
    angles = torch.arange(SEQUENCE, dtype=torch.float64)[:, None] * 10000.0 ** (-2 * torch.arange(r // 2, dtype=torch.float64) / r)
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., :r // 2], x[..., r // 2:])
    c, s = angles.cos(), angles.sin()
    y = torch.empty_like(x)
    first, second = (slice(0, None, 2), slice(1, None, 2)) if interleaved else (slice(0, r // 2), slice(r // 2, None))
    y[..., first], y[..., second] = a * c - b * s, a * s + b * c
    return y


class Model:
    def __init__(self, attention, heads, key_heads, biases):
        self.attention, self.heads, self.key_heads = attention, heads, key_heads
        self.w = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,),
                  "lm_head.weight": (VOCABULARY, HIDDEN)}
        for layer in range(LAYERS):
            p, a = f"model.layers.{layer}.", f"model.layers.{layer}.self_attn."
            self.w |= {p + "input_layernorm.weight": (HIDDEN,), p + "post_attention_layernorm.weight": (HIDDEN,),
                       p + "mlp.gate_up_proj.weight": (2 * WIDTH, HIDDEN), p + "mlp.down_proj.weight": (HIDDEN, WIDTH)}
            if attention == "latent":
                self.w |= {a + "q_a_proj.weight": (Q_RANK, HIDDEN), a + "q_a_layernorm.weight": (Q_RANK,),
                           a + "q_b_proj.weight": (heads * (NOPE + ROPE), Q_RANK),
                           a + "kv_a_proj_with_mqa.weight": (KV_RANK + ROPE, HIDDEN),
                           a + "kv_a_layernorm.weight": (KV_RANK,),
                           a + "kv_b_proj.weight": (heads * (NOPE + VALUE), KV_RANK),
                           a + "o_proj.weight": (HIDDEN, heads * VALUE)}
            else:
                for letter, count in (("q", heads), ("k", key_heads), ("v", key_heads)):
                    self.w[a + f"{letter}_proj.weight"] = (count * HEAD, HIDDEN)
                    if biases:
                        self.w[a + f"{letter}_proj.bias"] = (count * HEAD,)
                self.w[a + "o_proj.weight"] = (HIDDEN, heads * HEAD)
        self.w = {name: start(name, *shape) for name, shape in self.w.items()}

    def linear(self, x, name):
        return F.linear(x, self.w[name + ".weight"], self.w.get(name + ".bias"))

    def split(self, x, heads):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)

    def attend(self, x, a):
        if self.attention == "latent":
            q = self.split(self.linear(norm(self.linear(x, a + "q_a_proj"), self.w[a + "q_a_layernorm.weight"]),
                                       a + "q_b_proj"), self.heads)
            latent, k_rope = self.linear(x, a + "kv_a_proj_with_mqa").split([KV_RANK, ROPE], -1)
            kv = self.split(self.linear(norm(latent, self.w[a + "kv_a_layernorm.weight"]), a + "kv_b_proj"), self.heads)
            k_nope, v = kv.split([NOPE, VALUE], -1)
            q = torch.cat([q[..., :NOPE], turn(q[..., NOPE:], True)], -1)
            k = torch.cat([k_nope, turn(k_rope, True)[:, None].expand(-1, self.heads, -1, -1)], -1)
        else:
            q, k, v = (self.split(self.linear(x, a + f"{letter}_proj"), count)
                       for letter, count in (("q", self.heads), ("k", self.key_heads), ("v", self.key_heads)))
            q, k = turn(q, False), turn(k, False)
            k, v = (y.repeat_interleave(self.heads // self.key_heads, 1) for y in (k, v))
        logits = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        logits = logits.masked_fill(torch.ones(SEQUENCE, SEQUENCE, dtype=torch.bool).triu(1), -torch.inf)
        self.largest[a] = logits.detach().amax(dim=(0, 2, 3))
        return self.linear((logits.softmax(-1) @ v).transpose(1, 2).flatten(2), a + "o_proj")

    def loss(self, ids):
        self.largest = {}
        x = F.embedding(ids[:, :-1], self.w["model.embed_tokens.weight"])
        for layer in range(LAYERS):
            p = f"model.layers.{layer}."
            x = x + self.attend(norm(x, self.w[p + "input_layernorm.weight"]), p + "self_attn.")
            gate, up = self.linear(norm(x, self.w[p + "post_attention_layernorm.weight"]), p + "mlp.gate_up_proj").chunk(2, -1)
            x = x + self.linear(F.silu(gate) * up, p + "mlp.down_proj")
        return F.cross_entropy(self.linear(norm(x, self.w["model.norm.weight"]), "lm_head").flatten(0, 1), ids[:, 1:].flatten())

    def clip_heads(self):
        for a, largest in self.largest.items():
            for head in range(self.heads):
                if largest[head] <= TAU:
                    continue
                gamma = TAU / largest[head].item()
                if self.attention == "latent":
                    q = self.w[a + "q_b_proj.weight"].data.unflatten(0, (self.heads, -1))[head]
                    q[:NOPE] *= gamma ** 0.5
                    q[NOPE:] *= gamma
                    self.w[a + "kv_b_proj.weight"].data.unflatten(0, (self.heads, -1))[head][:NOPE] *= gamma ** 0.5
                    continue
                own = self.heads == self.key_heads
                for letter in "qk" if own else "q":
                    for what in ("weight", "bias"):
                        self.w[a + f"{letter}_proj.{what}"].data.unflatten(0, (self.heads, -1))[head] *= gamma ** (0.5 if own else 1)


def train(attention, heads, key_heads, biases, optimizer):
    model = Model(attention, heads, key_heads, biases)
    m = {name: torch.zeros_like(w) for name, w in model.w.items()}
    v = {name: torch.zeros_like(w) for name, w in model.w.items()}
    losses, largest = [], []
    for step in range(STEPS):
        for w in model.w.values():
            w.grad = None
        loss = model.loss(tokens(step))
        loss.backward()
        losses.append(loss.item())
        largest.append(max(x.max().item() for x in model.largest.values()))
        total = math.sqrt(sum(w.grad.pow(2).sum().item() for w in model.w.values()))
        factor = min(1.0, CLIP / (total + 1e-6))
        for name, w in model.w.items():
            g, decay = w.grad * factor, DECAY if w.dim() == 2 else 0.0
            if optimizer == "muon" and w.dim() == 2 and ".layers." in name:
                m[name] = MOMENTUM * m[name] + g
                parts = (g + MOMENTUM * m[name]).chunk(2 if "gate_up" in name else 1)
                by = torch.cat([orthogonal(u) for u in parts])
                w.data -= RATE * (0.2 * max(parts[0].shape) ** 0.5 * by + decay * w.data)
                continue
            m[name] = BETA1 * m[name] + (1 - BETA1) * g
            v[name] = BETA2 * v[name] + (1 - BETA2) * g * g
            by = m[name] / (1 - BETA1 ** (step + 1)) / ((v[name] / (1 - BETA2 ** (step + 1))).sqrt() + EPSILON)
            w.data -= RATE * (by + decay * w.data)
        model.clip_heads()
    return losses, largest, {name: w.detach().abs().sum().item() for name, w in sorted(model.w.items())}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="tests/fixtures/qk_clip/steps.inc")
    out = Path(parser.parse_args().out)
    lines = ["// By tools/make_qk_clip_fixture.py: losses and largest logits of each step, sums of |weight| behind them."]
    listed = lambda numbers: "{" + ", ".join(map(repr, numbers)) + "}"
    for name, case in CASES.items():
        losses, largest, sums = train(*case)
        lines.append('{"%s", %s, %s, {%s}},' % (name, listed(losses), listed(largest), ", ".join(
            '{"%s", %r}' % item for item in sums.items())))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
