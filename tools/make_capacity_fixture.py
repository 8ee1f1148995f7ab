#!/usr/bin/env python3
"""Writes tests/fixtures/capacity/expected.safetensors: the model of `grouped` with a capacity of its experts.

The model, its parameters and its tokens are those of tests/fixtures/grouped, run by Hugging Face Transformers under
PyTorch's autograd as make_fixtures.py does; what is added is the rule (docs/features/capacity.md): each expert keeps the
C = ceil(factor * T * k / E) highest gates of all T rows, of equal ones the earlier token's, and the gates of the other
choices are multiplied by zero. Tensors as in tests/fixtures/README.md, and `layer.L.kept` [T,K], the gates after the rule.
"""
import math

import torch
from safetensors.torch import load_file, save_file

import make_fixtures as made

FACTOR = 0.6       # as tests/runtime/fixture_test.cpp has it
MIN_GAP = 1e-4      # between the gates of an expert that are kept and those that are not


def limit(kept, index, gaps):
    def hook(module, args):
        hidden, chosen, gates = args
        (rows, k), experts = chosen.shape, module.num_experts
        places = math.ceil(FACTOR * rows * k / experts)
        mask = torch.ones_like(gates)
        for expert in range(experts):
            token, slot = (chosen == expert).nonzero(as_tuple=True)
            order = gates[token, slot].detach().sort(descending=True, stable=True)
            if len(token) > places:
                gaps.append((order.values[places - 1] - order.values[places]).item())
                dropped = order.indices[places:]
                mask[token[dropped], slot[dropped]] = 0
        by_expert = chosen.sort(dim=-1)
        kept[index] = (gates * mask).gather(1, by_expert.indices).detach()
        return hidden, chosen, gates * mask
    return hook


def evaluate(dtype):
    model, mtp = made.load(made.OUT / "grouped", dtype)
    tokens, kept, gaps = load_file(made.OUT / "grouped" / "expected.safetensors")["input_ids"], {}, []
    for index, block in enumerate(model.model.layers):
        if hasattr(block.mlp, "experts"):
            block.mlp.experts.register_forward_pre_hook(limit(kept, index, gaps))
    with made.InFloat64() if dtype == torch.float64 else made.contextlib.nullcontext():
        out, _ = made.run(model, mtp, tokens)
    out |= {f"layer.{index}.kept": gates for index, gates in kept.items()}
    return out, min(gaps)


def main():
    torch.set_num_threads(1)
    made.transformers.utils.logging.set_verbosity_error()
    made.transformers.utils.logging.disable_progress_bar()
    exact, gap = evaluate(torch.float64)
    assert gap > MIN_GAP, f"gates {gap} apart: another factor"
    single, _ = evaluate(torch.float32)
    for name, truth in exact.items():
        if truth.is_floating_point() and truth.norm() > 0:
            assert (single[name].double() - truth).norm() < 1e-5 * truth.norm(), name
    directory = made.OUT / "capacity"
    directory.mkdir(exist_ok=True)
    save_file({name: (t.float() if t.is_floating_point() and t.dim() > 0 else t).contiguous().clone()
               for name, t in exact.items()}, directory / "expected.safetensors")
    dropped = {name: int((t == 0).sum()) for name, t in exact.items() if name.endswith(".kept")}
    print(f"loss {exact['loss'].item():.12f}, dropped {dropped}, gates at least {gap:.2g} apart")


if __name__ == "__main__":
    main()
