#!/usr/bin/env python3
"""Heddle's recurrences against Transformers' writing in PyTorch, and against Heddle's own attention, in turn:

    ./dev bench recurrence_torch [--rounds N] [--lengths 2048,8192] [--forms GDN,Mamba-2] [--json]

A round runs build/bench_recurrence for a moment, then PyTorch on the same shape: one sequence in bf16, widths of 128
(Mamba-2: values of 64), 8 value heads (16) on 4 key heads (2; 8 where all are alike), a half or a quarter of them from
16,384 rows on. PyTorch computes in fp32, as its writing has it; lightning attention in bf16. Ratios are those
of one round, forward and backward; medians are printed. Both have OMP_NUM_THREADS threads. PyTorch's Kimi Delta
Attention holds 64 × 64 × 128 numbers a chunk and head, and runs up to 2,048 rows.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import torch
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.minimax.configuration_minimax import MiniMaxConfig
from transformers.models.minimax.modeling_minimax import MiniMaxLightningAttention
from transformers.models.nemotron_h.modeling_nemotron_h import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMS = ("GDN", "KDA", "Mamba-2", "lightning")
MOST_ROWS = {"KDA": 2048}  # of PyTorch


def fewer(form, length):
    """What the heads are divided by."""
    return 1 if length < 16384 else 2 if form == "Mamba-2" else 4


def heddle(form, length, rounds):
    """The row of bench_recurrence; its attention is that of as many heads."""
    words = [ROOT / "build" / "bench_recurrence", "--json", "--rounds", rounds, "--length", length]
    words += ["--only", form, "--dtype", "bf16", "--fewer", fewer(form, length)]
    run = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)
    return json.loads(run.stdout)[0]


def normal(*shape):
    return torch.randn(1, *shape, dtype=torch.bfloat16)


def gated_delta(length, part):
    keys, heads = 4 // part, 8 // part
    tensors = [normal(length, keys, 128), normal(length, keys, 128), normal(length, heads, 128)]
    tensors += [-normal(length, heads).abs().float() / 8, normal(length, heads).sigmoid()]

    def call(q, k, v, g, beta):
        return torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)[0]

    return call, tensors


def kimi_delta(length, part):
    heads = 8 // part
    tensors = [normal(length, heads, 128) for _ in range(3)]
    tensors += [-normal(length, heads, 128).abs().float() / 8, normal(length, heads).sigmoid()]

    def call(q, k, v, g, beta):
        return chunk_kimi_delta_attention(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0]

    return call, tensors


def mamba2(length, part):
    groups, heads = 2 // part, 16 // part
    tensors = [normal(length, heads, 64), normal(length, heads).abs() / 8]
    tensors += [normal(length, groups, 128), normal(length, groups, 128)]
    rate = -torch.ones(heads)

    def call(x, dt, b, c):
        out = mamba2_chunk_scan(x, dt, rate, b, c, chunk_size=128)
        return out[0] if isinstance(out, tuple) else out

    return call, tensors


class Alone(torch.nn.Module):
    """Takes the place of a layer's projection: the first columns of its input."""

    def __init__(self, columns):
        super().__init__()
        self.columns = columns

    def forward(self, x):
        return x[..., : self.columns]


def lightning(length, part):
    heads = 8 // part
    width = heads * 128
    config = MiniMaxConfig(hidden_size=width, num_attention_heads=heads, num_key_value_heads=heads, head_dim=128)
    layer = MiniMaxLightningAttention(config, layer_idx=0).to(torch.bfloat16)
    layer.qkv_proj = layer.act_fn = layer.norm = layer.out_proj = Alone(3 * width)
    layer.output_gate = Alone(width)

    def call(qkv):
        out = layer(qkv, position_embeddings=None, attention_mask=None)
        return out[0] if isinstance(out, tuple) else out

    return call, [normal(length, 3 * width)]


PEERS = {"GDN": gated_delta, "KDA": kimi_delta, "Mamba-2": mamba2, "lightning": lightning}


def peer_seconds(call, tensors):
    for tensor in tensors:
        tensor.requires_grad_()
    begin = time.perf_counter()
    out = call(*tensors)
    middle = time.perf_counter()
    out.backward(torch.ones_like(out))
    return middle - begin, time.perf_counter() - middle


def measured(form, length, rounds):
    has_peer = length <= MOST_ROWS.get(form, length)
    call, tensors = PEERS[form](length, fewer(form, length)) if has_peer else (None, None)
    if has_peer:
        peer_seconds(call, tensors)
    rows, ratios, halves = [], [], []
    for _ in range(rounds):
        rows.append(heddle(form, length, 3 if length < 16384 else 1))
        if not has_peer:
            continue
        ours = [rows[-1][key] / 1e3 for key in ("forward_ms", "backward_ms")]
        theirs = peer_seconds(call, tensors)
        ratios.append(sum(theirs) / sum(ours))
        halves.append((theirs[0] / ours[0], theirs[1] / ours[1]))
    median = lambda key: statistics.median(row[key] for row in rows)  # noqa: E731
    result = {"form": form, "length": length, "threads": rows[0]["threads"]}
    for key in ("forward_ms", "backward_ms", "forward_share", "backward_share", "attention_over_forward", "attention_over_backward",
                "summary_over_forward", "state_gradient_over_backward"):
        result[key] = median(key)
    if has_peer:
        result["ratio_vs_torch"] = statistics.median(ratios)
        result["forward_ratio_vs_torch"] = statistics.median(forward for forward, _ in halves)
        result["backward_ratio_vs_torch"] = statistics.median(backward for _, backward in halves)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", default="2048,8192,32768")
    parser.add_argument("--forms", default=",".join(FORMS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    forms = options.forms.split(",")
    if wrong := [form for form in forms if form not in PEERS]:
        parser.error(f"--forms is '{wrong[0]}', accepted: {', '.join(FORMS)}")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    results = []
    if not options.json:
        print("form       rows   fwd ms   bwd ms  share f, b  attention ÷ f, b  pieces add f, b  PyTorch ÷ f, b, both")
    for form in forms:
        for length in map(int, options.lengths.split(",")):
            r = measured(form, length, options.rounds)
            results.append(r)
            if options.json:
                continue
            peer = "".join(f"{r[key]:8.1f}" for key in ("forward_ratio_vs_torch", "backward_ratio_vs_torch", "ratio_vs_torch") if key in r)
            print(f"{form:<9}{length:>6} {r['forward_ms']:8.1f} {r['backward_ms']:8.1f}  {r['forward_share']:.2f}  {r['backward_share']:.2f}"
                  f"  {r['attention_over_forward']:8.2f} {r['attention_over_backward']:8.2f}  {r['summary_over_forward']:6.2f} {r['state_gradient_over_backward']:6.2f}  {peer}", flush=True)
    if options.json:
        print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
