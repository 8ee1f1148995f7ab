#!/usr/bin/env python3
"""Holds adapters (`lora.rank`, `train.start_adapter`) against Hugging Face Transformers and PEFT.

    adapters_test.py PATH_OF_HEDDLE [--family NAME] [--draws N] [--first N]

Of each draw, models as transformers_test.py draws them, adapters with values at random are written as PEFT writes
them, and `heddle dump` computes loss, logits and the adapters' gradients, in f64, where each tensor is held to 1e-9, and
in f32, where all gradients as one vector are held to 1e-5. Transformers computes the same in f64
of the model into which they are merged, W + s B A; of the gradient dW of a merged weight the adapters' are s Bᵀ dW and
s dW Aᵀ. Where PEFT knows the family's modules, its own loss, logits and gradients are held to as well.

Needs PyTorch and Transformers, else it exits with 77; without PEFT that part is left out, by name.
"""
import argparse
import json
import pathlib
import sys
import tempfile

from transformers_test import F32, FAMILIES, Draw, InFloat64, drawn_folder, of_heddle, of_transformers, relative
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

try:
    import peft
except ImportError as missing:
    peft = None
    print(f"PEFT's part is left out: {missing}")

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"]
MLP = ["gate_proj", "up_proj", "down_proj", "w1", "w2", "w3"]
PREFIX = "base_model.model."
F64 = 1e-9
DENSE = ("llama", "qwen2", "qwen3")


def adapters(weights, modules, rank, seed):
    """A and B beside each weight of these modules."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name, weight in sorted(weights.items()):
        stem = name.removesuffix(".weight")
        if name == stem or weight.dim() != 2 or stem.rsplit(".", 1)[-1] not in modules:
            continue
        rows, columns = weight.shape
        made[stem] = (0.1 * torch.randn(rank, columns, generator=generator),
                      0.1 * torch.randn(rows, rank, generator=generator))
    return made


def write(folder, made, rank, alpha, stabilized, modules):
    folder.mkdir()
    save_file({f"{PREFIX}{stem}.lora_{letter}.weight": tensor.contiguous()
               for stem, pair in made.items() for letter, tensor in zip("AB", pair)},
              folder / "adapter_model.safetensors", {"format": "pt"})
    (folder / "adapter_config.json").write_text(json.dumps(dict(
        peft_type="LORA", task_type="CAUSAL_LM", r=rank, lora_alpha=alpha, use_rslora=stabilized, lora_dropout=0.0,
        bias="none", target_modules=sorted(modules & {stem.rsplit(".", 1)[-1] for stem in made}))))


def merged(folder, into, made, scale):
    """The released folder with adapters added to its weights, in f64."""
    into.mkdir()
    (into / "config.json").write_text((folder / "config.json").read_text())
    weights = {name: tensor.double() for name, tensor in load_file(folder / "model.safetensors").items()}
    for stem, (down, up) in made.items():
        weights[f"{stem}.weight"] += scale * up.double() @ down.double()
    save_file(weights, into / "model.safetensors", {"format": "pt"})
    return into


def expected_of(folder, tokens, made, scale):
    """By the chain rule, of the merged model."""
    found = of_transformers(folder, tokens, tokens)
    expected = dict(loss=found["loss"], logits=found["logits"])
    for stem, (down, up) in made.items():
        d = found[f"grad.{stem}.weight"].double()
        expected[f"grad.{stem}.lora_A.weight"] = scale * up.double().T @ d
        expected[f"grad.{stem}.lora_B.weight"] = scale * d @ down.double().T
    return expected


def of_peft(folder, adapter, tokens):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager")
    model = peft.PeftModel.from_pretrained(model, adapter, is_trainable=True, autocast_adapter_dtype=False).double()
    decoder = model.base_model.model.model
    with InFloat64():
        decoder.rotary_emb = type(decoder.rotary_emb)(decoder.config)
        result = model(input_ids=tokens, labels=tokens, use_cache=False)
        result.loss.backward()
    named = {f"grad.{name.removeprefix(PREFIX).replace('.default', '')}": p.grad
             for name, p in model.named_parameters() if p.grad is not None}
    return dict(loss=result.loss.detach(), logits=result.logits.detach()) | named


def compare(found, expected, what, allowed):
    """The largest relative distance: of each gradient, or, where a distance is one of roundings in f32, of all."""
    names = {name for name in found if name.startswith("grad.")}
    if names ^ {name for name in expected if name.startswith("grad.")}:
        raise AssertionError(f"{what}: gradients of one side alone: {sorted(names ^ set(expected))[:4]}")
    joined = [torch.cat([side[name].double().flatten() for name in sorted(names)]) for side in (found, expected)]
    distances = {name: relative(found[name].flatten(), expected[name].flatten()) for name in ("loss", "logits")}
    distances["all gradients"] = relative(*joined)
    if allowed < F32:
        distances |= {name: relative(found[name], expected[name], joined[1].norm().item()) for name in names}
    worst = max(distances, key=distances.get)
    if not distances[worst] <= allowed:
        raise AssertionError(f"{what}: {worst} is {distances[worst]:.2e} away")
    return distances[worst]


def run(heddle, family, number, folder):
    d = Draw(f"adapters {family} {number}")
    keys = FAMILIES[family](d)
    rank, alpha, stabilized = d.of(1, 2, 4), d.of(1.0, 3.0, 8.0), d.one_in(2)
    modules, targets = d.of((ATTENTION, "attention"), (ATTENTION + MLP, "all"), (ATTENTION + MLP, "all"))
    scale = alpha / (rank ** 0.5 if stabilized else rank)
    tokens = torch.randint(keys["vocab_size"], (d.randint(1, 3), d.randint(5, 20)),
                           generator=torch.Generator().manual_seed(number))
    folder.mkdir(parents=True)
    base, adapter = folder / "base", folder / "adapter"
    drawn_folder(base, family, keys, number, False)
    made = adapters(load_file(base / "model.safetensors"), set(modules), rank, number)
    write(adapter, made, rank, alpha, stabilized, set(modules))
    settings = [f"lora.rank={rank}", f"lora.alpha={alpha}", f"lora.rslora={str(stabilized).lower()}",
                f"lora.targets={targets}", f"train.start_adapter={adapter}", "train.clip_norm=0"]
    if number % 2:
        settings += [f"fusions.{name}=false" for name in
                     ("norm", "swiglu", "bias_swiglu", "bias", "rope", "router", "combine", "loss")]
    expected = [("Transformers, merged",
                 expected_of(merged(base, folder / "merged", made, scale), tokens, made, scale))]
    if peft is not None and family in DENSE:
        expected.append(("PEFT", of_peft(base, adapter, tokens)))
    distances = []
    for allowed, more in ((F64, ["device.dtype=f64", "device.backend=reference"]), (F32, [])):
        found = of_heddle(heddle, base, tokens, tokens, settings + more)
        distances.append(max(compare(found, side, what, allowed) for what, side in expected))
    return distances


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in options.family or FAMILIES:
            worst = [0.0, 0.0]
            for number in range(options.first, options.first + options.draws):
                try:
                    found = run(options.heddle.resolve(), family, number, pathlib.Path(scratch) / family / str(number))
                    worst = [max(pair) for pair in zip(worst, found)]
                except AssertionError as error:
                    failed += 1
                    print(f"{family} {number}: {error}", flush=True)
            print(f"{family}: {options.draws} draws, at most {worst[0]:.1e} in f64, {worst[1]:.1e} in f32", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
