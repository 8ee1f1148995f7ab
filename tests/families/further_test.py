#!/usr/bin/env python3
"""Holds the layer of a further token of DeepSeek-V4 in `heddle dump` against Transformers' own modules.

    further_test.py PATH_OF_HEDDLE [--draws N]

Transformers has no such layer. Its model with one layer more, whose last one has a window alone, holds all modules: that
layer is put behind a join of normed streams and a normed embedding, as in the code released with DeepSeek-V4. The folder
has the layer under the released names ("mtp.0."). Its loss, and the gradients of what joins and of what reads the
streams for the head, are held to 1e-9 in float64.

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing.
"""
import json
import pathlib
import sys
import tempfile

HEDDLE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/heddle").resolve()
DRAWS = int(sys.argv[sys.argv.index("--draws") + 1]) if "--draws" in sys.argv else 4
from transformers_test import AutoConfig, AutoModelForCausalLM, Draw, FAMILIES, InFloat64, of_heddle, relative, torch

from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers.models.deepseek_v4 import modeling_deepseek_v4 as hf

BOUND, PREFIX = 1e-9, "mtp.0."
OWN = ("e_proj.weight", "h_proj.weight", "enorm.weight", "hnorm.weight", "norm.weight", "hc_head_fn", "hc_head_base",
       "hc_head_scale")


def further_name(name, layer):
    """The released name of a tensor of Transformers' last layer; None of another."""
    at = f"layers.{layer}."
    if at not in name:
        return None
    return PREFIX + name.split(at, 1)[1].replace("attn.norm.", "attn.kv_norm.")


def write_folder(folder, keys):
    """The folder of a model with the further layer, and Transformers' model with one layer more."""
    layers = keys["num_hidden_layers"]
    more = keys | dict(num_hidden_layers=layers + 1, layer_types=keys["layer_types"] + ["sliding_attention"],
                       mlp_layer_types=keys["mlp_layer_types"] + ["moe"])
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("deepseek_v4", **more), attn_implementation="eager",
                                             experts_implementation="eager").double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.dim() == 1 else 0.0, 0.2)
    model.save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    hidden, streams = keys["hidden_size"], keys["hc_mult"]
    own = {name: torch.randn(shape, dtype=torch.float64) * 0.3 + 0.5 for name, shape in zip(OWN, (
        (hidden, hidden), (hidden, hidden), (hidden,), (hidden,), (hidden,), (streams, streams * hidden), (streams,), (1,)))}
    for name in [*tensors]:
        if (other := further_name(name, layers)) is not None:
            tensors[other] = tensors.pop(name)
    tensors |= {PREFIX + name: tensor for name, tensor in own.items()}
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    written = json.loads((folder / "config.json").read_text())
    for name in ("layer_types", "mlp_layer_types"):
        written[name] = keys[name]
    (folder / "config.json").write_text(json.dumps(written | dict(num_hidden_layers=layers, num_nextn_predict_layers=1)))
    return model, own


def of_modules(model, own, tokens, weight):
    """The loss of the further token; of the sum that training minimises gradients of what Transformers has not."""
    config, inner = model.config, model.model
    *layers, last = inner.layers
    own = {name: tensor.clone().requires_grad_() for name, tensor in own.items()}
    caught = {}
    last.register_forward_pre_hook(lambda module, args, kwargs: caught.update(kwargs, h=args[0]), with_kwargs=True)
    with InFloat64():
        for module in [*model.modules()]:
            if getattr(module, "rotary_emb", None) is not None:
                module.rotary_emb = type(module.rotary_emb)(config)
        inner(input_ids=tokens, use_cache=False)
        h, kwargs = caught.pop("h"), caught
        loss = lambda logits, ahead: F.cross_entropy(logits[:, :-ahead].flatten(0, 1), tokens[:, ahead:].flatten())
        main = loss(model.lm_head(inner.norm(inner.hc_head(h))), 1)
        norm = lambda x, gain: F.rms_norm(x, (x.shape[-1],), gain, config.rms_norm_eps)
        following = F.pad(tokens[:, 1:], (0, 1))
        e = norm(inner.embed_tokens(following), own["enorm.weight"]) @ own["e_proj.weight"].T
        x = norm(h, own["hnorm.weight"]) @ own["h_proj.weight"].T + e.unsqueeze(2)
        y = last(x, **(kwargs | dict(input_ids=following)))
        head = hf.DeepseekV4HyperHead(config).double()
        for name in ("fn", "base", "scale"):
            delattr(head, f"hc_{name}")
            setattr(head, f"hc_{name}", own[f"hc_head_{name}"])
        further = loss(model.lm_head(norm(head(y), own["norm.weight"])), 2)
        (main + weight * further).backward()
    return further.detach(), {name: tensor.grad for name, tensor in own.items()}


def main():
    torch.manual_seed(1)
    failed = 0
    for number in range(DRAWS):
        keys = FAMILIES["deepseek_v4"](Draw(f"deepseek_v4 {number}"))
        keys["mlp_layer_types"] = ["moe"] * keys["num_hidden_layers"]
        tokens = torch.randint(0, keys["vocab_size"], (2, 13))
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            model, own = write_folder(folder, keys)
            further, gradients = of_modules(model, own, tokens, 0.3)
            found = of_heddle(HEDDLE, folder, tokens, tokens, ["device.dtype=f64", "device.backend=reference"])
        distances = {name: relative(found[f"grad.{PREFIX}{name}"], gradient) for name, gradient in gradients.items()}
        distances |= {"loss": abs(found["loss.depth.1"].item() - further.item())}
        worst = max(distances, key=distances.get)
        print(f"draw {number}: at most {distances[worst]:.1e}, {worst}")
        failed += distances[worst] > BOUND
    print(f"{failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
