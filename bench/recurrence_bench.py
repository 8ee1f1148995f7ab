#!/usr/bin/env python3
"""Heddle's gated delta rule against the chunked writing of Transformers (torch_chunk_gated_delta_rule), in turn:

    .venv-bench/bin/python bench/recurrence_bench.py [--rounds N] [--length S] [--json]

A round runs build/bench_recurrence for a moment, then PyTorch on the same shape: one sequence, 8 value heads and 4 key
heads of 128, bf16. A ratio is that of one round; the medians are printed. Both have OMP_NUM_THREADS threads.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import time

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

ROOT = pathlib.Path(__file__).resolve().parent.parent


def heddle(length):
    words = [str(ROOT / "build" / "bench_recurrence"), "--json", "--rounds", "3", "--length", str(length), "--only", "GDN"]
    rows = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    row = next(r for r in rows if r["dtype"] == "bf16")
    return row["forward_ms"] / 1e3, row["backward_ms"] / 1e3


def peer(tensors):
    q, k, v, g, beta = tensors
    begin = time.perf_counter()
    out, _ = torch_chunk_gated_delta_rule(q, k, v, g=g, beta=beta, use_qk_l2norm_in_kernel=True)
    middle = time.perf_counter()
    out.backward(torch.ones_like(out))
    return middle - begin, time.perf_counter() - middle


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    normal = lambda *shape: torch.randn(1, options.length, *shape, dtype=torch.bfloat16)  # noqa: E731
    tensors = [normal(4, 128), normal(4, 128), normal(8, 128), -normal(8).abs().float() / 8, normal(8).sigmoid()]
    for tensor in tensors:
        tensor.requires_grad_()
    peer(tensors)
    forward, backward, pairs = [], [], []
    for _ in range(options.rounds):
        ours, theirs = heddle(options.length), peer(tensors)
        pairs.append((ours, theirs))
        forward.append(theirs[0] / ours[0])
        backward.append(theirs[1] / ours[1])
    result = {
        "length": options.length,
        "threads": torch.get_num_threads(),
        "forward_ratio_vs_torch": statistics.median(forward),
        "backward_ratio_vs_torch": statistics.median(backward),
        "ratio_vs_torch": statistics.median(sum(theirs) / sum(ours) for ours, theirs in pairs),
    }
    if options.json:
        print(json.dumps(result))
    else:
        for key, value in result.items():
            print(f"{key:<24} {value:.2f}" if isinstance(value, float) else f"{key:<24} {value}")


if __name__ == "__main__":
    main()
