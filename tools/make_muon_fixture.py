#!/usr/bin/env python3
"""Writes tests/fixtures/muon/steps.inc: steps of Muon by its published formula, in plain PyTorch.

The iteration is that of Jordan et al. (github.com/KellerJordan/Muon), the momentum, decay and size of steps those of
Liu et al., arXiv 2502.16982 (github.com/MoonshotAI/Moonlight). In fp64, so that what differs is the rounding of the
one that is tested.
"""
import argparse
from pathlib import Path

import torch

RATE, MOMENTUM, DECAY, STEPS = 0.02, 0.95, 0.1, 3


def orthogonal(gradient):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = gradient
    if gradient.size(0) > gradient.size(1):
        x = x.T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if gradient.size(0) > gradient.size(1) else x


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="tests/fixtures/muon/steps.inc")
    out = Path(parser.parse_args().out)
    torch.manual_seed(7)
    lines = ["// By tools/make_muon_fixture.py: rows, columns, weight, gradients of each step, weight after them."]
    for rows, columns in [(6, 10), (12, 5), (8, 8)]:
        weight = torch.randn(rows, columns, dtype=torch.float64).bfloat16().double()
        gradients = [torch.randn(rows, columns, dtype=torch.float64).bfloat16().double() for _ in range(STEPS)]
        start, momentum = weight.clone(), torch.zeros_like(weight)
        for gradient in gradients:
            momentum.mul_(MOMENTUM).add_(gradient)
            update = orthogonal(gradient.add(momentum, alpha=MOMENTUM))
            weight.mul_(1 - RATE * DECAY).add_(update, alpha=-RATE * 0.2 * max(rows, columns) ** 0.5)
        listed = lambda t: "{" + ", ".join(repr(x) for x in t.flatten().tolist()) + "}"
        lines.append("{%d, %d, %s, {%s}, %s}," % (rows, columns, listed(start), ", ".join(map(listed, gradients)),
                                                 listed(weight)))
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
