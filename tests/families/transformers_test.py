#!/usr/bin/env python3
"""Holds `heddle dump` against Hugging Face Transformers: families of models drawn at random, small, options varied.

    transformers_test.py PATH_OF_HEDDLE [--family NAME] [--draws N] [--first N] [--keep FOLDER]

Of each draw Transformers writes the folder as it does for its users (save_pretrained), and both compute loss, logits
and all gradients of the same tokens. Transformers' are in float64. Heddle's in f32 are held to them within 1e-5, a
tensor's relative norm each, fused and unfused in turns; in bf16, of weights that bf16 holds exactly, within 2e-2: the
loss, the logits, and all gradients together as one vector; or, where so small a model makes Transformers' own bf16 run
differ by as much, at most half as far again as it. A recurrent head's small output, which is normed, magnifies roundings, and so do
Gemma 4's scores, which nothing scales, and norms of what experts made. A norm follows what streams are read to: their
weights' gradient cancels but for what makes streams unlike. Models with streams, and Granite's with sinks, are held in f64 too, within 1e-10. Such a model may differ by 3 times what Transformers' own f32
run does. A bias of keys, alike for all of them, all but leaves the softmax
alone: what its gradient sums up cancels, and is held to the size of the gradient of the keys' weights; so is that of a scale of streams, or
of a base of independent ones, to their map's. Half of the draws without windows keep documents apart, behind an id
that the tokens hold: Transformers then gets the mask written out. A gradient that is zero but for rounding (of a router whose one gate
is divided by itself) is held to the size of all.

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing.
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from drawn_models import FAMILIES, Draw    # noqa: E402
import drawn_hybrids as _    # noqa: E402, and its families
import drawn_latents as _    # noqa: E402, and its families
import drawn_pictures as _    # noqa: E402, F811
try:
    import bailing_moe as _    # registers its model, as do the next two
    import step3p5 as _
    import streams as _    # and hashed_v3
    import torch
    import transformers
    from make_fixtures import InFloat64
    from safetensors.torch import load_file
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
except ImportError as missing:
    print(f"skipped: {missing}; bench/torch_peer/requirements.txt lists what is needed")
    sys.exit(77)

AutoModelForCausalLM.register(transformers.Mistral4Config, transformers.Mistral4ForCausalLM, exist_ok=True)
F64, F32, BF16 = 1e-10, 1e-5, 2e-2
NO_LABEL = -100    # of Transformers and PyTorch
COMMAND_SECONDS = 300

DENSE = ("gemma3", "qwen2_5_vl", "qwen3_vl", "youtu", "ministral3", "bamba", "falcon_h1", "lfm2", "lfm3", "olmo_hybrid", "qwen3", "qwen3_5_text", "qwen2", "llama", "mistral", "gpt2", "gemma", "gemma2", "gemma3_text", "olmo2", "olmo3",
         "seed_oss", "granite", "ernie4_5", "hunyuan_v1_dense", "cwm", "phi3", "smollm3", "exaone4", "gemma4_unified_text",
         "glm", "glm4", "granite_swa", "cohere", "cohere2")
STREAMS = ("streams_v3", "streams_llama", "deepseek_v4", "hy_v4", "qwen4_exp_text", "glm5_next")
UNSCALED = ("granite_swa", "granitemoe_swa")    # scores of a factor of up to 1
GEMMA4 = ("gemma4_text", "gemma4_unified_text")
# Text models that Transformers makes only beside a model of pictures, which has these sizes.
PICTURES = {"glm5_next": dict(hidden_size=16, depth=1, num_heads=2, intermediate_size=16, patch_size=4, projection_intermediate_size=16),
            "mistral3": dict(model_type="pixtral", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                             head_dim=8, image_size=16, patch_size=4),
            "gemma3": dict(model_type="siglip_vision_model", hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                           image_size=16, patch_size=4),
            **dict.fromkeys(("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"),
                            dict(hidden_size=16, depth=1, num_heads=2, intermediate_size=16, patch_size=4, num_position_embeddings=16,
                                 deepstack_visual_indexes=[0], fullatt_block_indexes=[0])),
            "kimi_k25": dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, patch_size=4,
                             pos_emb_height=4, pos_emb_width=4)}
OF_PICTURES = ("visual.", "vision_tower.", "multi_modal_projector.", "mm_projector.")
BESIDE = (("language_model.model.", "model."), ("model.language_model.", "model."), ("language_model.lm_head.", "lm_head."))
PLAIN_EXPERTS = ("bailing_moe", "step3p5")    # of the models beside this file
CHOSEN = ("num_experts_per_tok", "moe_k", "moe_topk", "top_k_experts")
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
# A layer's parts are normed before and behind, as Gemma's are. The second norm magnifies what a small output is off by.
NORMED_TWICE = ("afmoe", "kolibri1", "glm4")
# Norms multiply by 1 + their weight.
ZERO_CENTERED = ("gemma", "gemma2", "gemma3", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "step3p5", "minimax_m3_vl_text", "qwen4_exp_text")
# Biases of the choice under the released names of families, its table, and factors of layers: they have no gradient.
CHOICE_BIASES = ("e_score_correction_bias", ".expert_bias", ".router_bias", ".tid2eid", ".layer_scalar", ".ffn.gate.bias")
# What Gemma 4 has around 1 besides gains of norms.
FACTORS = (".layer_scalar", ".router.scale", ".per_expert_scale", "layernorm_1.weight", "layernorm_2.weight")
INDEXER = ".indexer."    # learns from no loss of Transformers'
# A family that is written as another: names of its tensors, and of that one's.
WRITTEN_AS = {**dict.fromkeys(("mistral3", "gemma3", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"), BESIDE),
              "kimi_k25": ((".blocks.", ".layers."), *BESIDE),
              "hy_v3": (("mlp.router.gate.", "mlp.gate."), ("mlp.shared_mlp.", "mlp.shared_experts.")),
              "hy_v4": ((".mlp.linear_gate.", ".mlp.gate_proj."), (".shared_experts.linear_gate.", ".shared_experts.gate_proj.")),
              "kimi_linear": [(f"block_sparse_moe.{name}_proj.", f"mlp.{name}_proj.") for name in ("gate", "up", "down")],
              "sarvam_moe": (("word_embeddings.", "embed_tokens."), (".attention.dense.", ".self_attn.o_proj."),
                             (".attention.query_layernorm.", ".self_attn.q_norm."),
                             (".attention.key_layernorm.", ".self_attn.k_norm."), (".attention.", ".self_attn."))}
MODEL_TYPES = {"hashed_v3": "deepseek_v3", "streams_v3": "deepseek_v3", "streams_llama": "llama"}    # where it is not the name of the draw
# What Transformers works out of constants and saves beside the weights.
DECAYS = (".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay",
          ".layer_multipliers", ".ngram_heads_vocab_sizes", ".ngram_heads_offsets")


def recurs(keys):
    kinds = keys.get("layer_types") or keys.get("layers_block_type") or ()
    return "full_attn_idxs" in keys or "mamba_d_conv" in keys or any(kind in kinds for kind in ("linear_attention", "mamba", "conv"))


def all_chosen(keys):
    """Every token takes every expert and every key: a rounding of scores then changes no choice. The norm of a recurrent
    head's small output would magnify roundings, and so would Gemma 4's up to twelve a layer: their epsilon is larger than that."""
    if recurs(keys) or "global_head_dim" in keys:
        named = [name for name in ("layer_norm_epsilon", "norm_eps") if name in keys]
        keys = keys | {named[0] if named else "rms_norm_eps": 0.03}
    if "index_topk" in keys:
        keys = keys | dict(index_topk=64)
    if "hc_magnitude" in keys:    # nor does it move a number across the limit of a gate
        keys = keys | dict(swiglu_limit=10.0)
    if "indexer_budget" in keys:
        keys = keys | dict(indexer_budget=64 * keys["indexer_compress_ratio"])
    if "index_topk_blocks" in keys:    # nor is a gate, whose gradient ends there, next to its limit
        keys = keys | dict(index_topk_blocks=64, swiglu_limit=7.0)
    if "router_jitter_noise" in keys:    # two experts, of which neither gate depends on which comes first
        return keys | dict(num_local_experts=2, router_jitter_noise=0.0)
    if "attn_temperature_tuning" in keys:    # Llama 4 has one expert a token
        return keys | dict(num_local_experts=1)
    for name in EXPERTS:
        if name in keys:
            experts = keys[name] + keys.get("zero_expert_num", 0)
            keys = keys | {chosen: experts for chosen in CHOSEN if chosen in keys}
            if "topk_group" in keys:
                keys["topk_group"] = keys["n_group"]
    return keys


def filled(model, seed, rounded):
    """Norm gains around 1 but none equal, biases that matter, matrices of deviation 0.2; or, rounded to bf16's numbers,
    matrices that leave the size of what passes through, as those of real models do, so that roundings don't grow."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(DECAYS):
                continue
            if name.endswith(".tid2eid"):
                experts, chosen = model.config.n_routed_experts, tensor.shape[1]
                tensor.copy_(torch.stack([torch.randperm(experts, generator=generator)[:chosen] for _ in tensor]))
            elif name.endswith("e_score_correction_bias"):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.4 - 0.2)
            elif name.endswith(("norm.weight", "norm.0.weight", "norm.1.weight", "norm_f.weight", "ln_1.weight", "ln_2.weight", "ln_f.weight", *FACTORS)):
                around = 0.0 if model.config.model_type in ZERO_CENTERED and ".linear_attn." not in name else 1.0
                tensor.copy_(torch.rand(tensor.shape, generator=generator) * 0.8 - 0.4 + around)
            elif "inv_freq" not in name and tensor.dim() > 0:
                inputs = tensor.shape[0 if "c_" in name else -1]    # Conv1D's come first
                deviation = 0.8 / inputs ** 0.5 if rounded and tensor.dim() > 1 else 0.2
                tensor.copy_(deviation * torch.randn(tensor.shape, generator=generator))
            if rounded and "inv_freq" not in name and tensor.is_floating_point() and tensor.dim() > 0 and not name.endswith("e_score_correction_bias"):
                tensor.copy_(tensor.bfloat16())
    return model


def released(folder, model, gradients):
    """Gradients under their published names: written and read back as weights are."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(gradients[name])
    model.save_pretrained(folder)
    return load_file(folder / "model.safetensors")


def mask_of(tokens, end, dtype):
    """What is added to scores [B, 1, S, S]: a token sees those up to its own behind the last that ends a document."""
    document = torch.cumsum((tokens == end).long(), 1) - (tokens == end).long()
    length = tokens.shape[1]
    seen = (document[:, :, None] == document[:, None, :]) & torch.ones(length, length).tril().bool()
    return torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[:, None]


def positions_of(tokens, end):
    """How many tokens stand before each in its document."""
    positions = torch.zeros_like(tokens)
    for b, t in ((b, t) for b in range(tokens.shape[0]) for t in range(1, tokens.shape[1])):
        positions[b, t] = 0 if tokens[b, t - 1] == end else positions[b, t - 1] + 1
    return positions


def written(name, family):
    for theirs, ours in WRITTEN_AS.get(family, ()):
        name = name.replace(theirs, ours)
    return name


def unjoined(name, tensor, config):
    """The tensors that one of Phi-3's stands for, by name. LongCat-Flash has halves of experts without computation. The map
    of a recurrent layer's output in Ling 3 has another name in the release than in files of Transformers."""
    if config.model_type == "bailing_hybrid" and name.endswith(".attention.dense.weight"):
        if config.layer_types[int(name.split(".layers.")[1].split(".")[0])] == "linear_attention":
            return {name.replace(".dense.", ".o_proj."): tensor}
    if config.model_type == "longcat_flash" and ".mlp.experts." in name:
        return {} if int(name.split(".mlp.experts.")[1].split(".")[0]) >= config.n_routed_experts else {name: tensor}
    if config.model_type == "olmo_hybrid" and name.endswith(".feedforward_layer_norm.weight"):    # a name of recurrent layers
        if config.layer_types[int(name.split(".layers.")[1].split(".")[0])] == "full_attention":
            return {name.replace("feedforward_layer_norm", "post_attention_layernorm"): tensor}
    if config.model_type == "qwen3_vl_moe" and ".mlp.experts." in name and tensor.ndim == 3:    # all of a layer
        before, words = name.split(".mlp.experts.")[0], ("gate", "up") if "gate_up" in name else ("down",)
        return {f"{before}.mlp.experts.{expert}.{word}_proj.weight": part
                for expert, whole in enumerate(tensor) for word, part in zip(words, whole.chunk(len(words)))}
    if name.endswith(".qkv_proj.weight"):
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        rows = [count * tensor.shape[0] // (heads + 2 * kv_heads) for count in (heads, kv_heads, kv_heads)]
        return {name.replace("qkv", letter): part for letter, part in zip("qkv", tensor.split(rows))}
    if ".query_key_value." in name:
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        rows = [count * tensor.shape[0] // (heads + 2 * kv_heads) for count in (heads, kv_heads, kv_heads)]
        return {name.replace("query_key_value", f"{letter}_proj"): part for letter, part in zip("qkv", tensor.split(rows))}
    if name.endswith((".mlp.gate_up_proj.weight", ".shared_experts.gate_up_proj.weight")):
        return {name.replace("gate_up", word): part for word, part in zip(("gate", "up"), tensor.chunk(2))}
    return {name: tensor}


def of_transformers(folder, tokens, labels, dtype=torch.float64, end=None):
    """Loss, logits and gradients of the model that lies in the folder."""
    kinds = {}
    if json.loads((folder / "config.json").read_text())["model_type"] not in DENSE + PLAIN_EXPERTS:
        kinds["experts_implementation"] = "eager"
    beside = json.loads((folder / "config.json").read_text())["model_type"] in PICTURES
    made = AutoModelForImageTextToText if beside else AutoModelForCausalLM
    model = made.from_pretrained(folder, dtype=dtype, attn_implementation="eager", **kinds)
    if dtype == torch.float64:
        model.double()    # what some models keep in float32
    mask = {} if end is None else dict(attention_mask=mask_of(tokens, end, dtype))
    with InFloat64() if dtype == torch.float64 else contextlib.nullcontext():
        if hasattr(getattr(model, "model", None), "rotary_emb"):
            for module in [*model.modules()]:    # DeepSeek-V4's compressed keys have some of their own
                if getattr(module, "rotary_emb", None) is not None:
                    module.rotary_emb = type(module.rotary_emb)(model.config)
                for at, one in enumerate(getattr(module, "rotary_embs", ())):    # of each base, in Granite SWA
                    module.rotary_embs[at] = type(one)(one.config)
        elif end is not None and not hasattr(model, "model"):    # where documents are apart, each begins at the first position
            mask |= dict(position_ids=positions_of(tokens, end))
        if end is not None and "llama_4_scaling_beta" in (folder / "config.json").read_text():    # a position's factor is on its query
            mask |= dict(position_ids=positions_of(tokens, end))
        result = model(input_ids=tokens, labels=labels, use_cache=False, **mask)
        result.loss.backward()
    gradients = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()}
    with tempfile.TemporaryDirectory() as scratch:
        named = released(pathlib.Path(scratch), model, gradients)
    return dict(loss=result.loss.detach(), logits=result.logits.detach()) | {
        f"grad.{written(part, model.config.model_type)}": tensor for name, whole in named.items()
        for part, tensor in unjoined(name, whole, model.config).items()
        if not name.endswith(CHOICE_BIASES + DECAYS) and INDEXER not in name and not any(part in name for part in OF_PICTURES)}


def of_heddle(heddle, folder, tokens, labels, settings):
    """The same by `heddle dump`."""
    (folder / "tokens.json").write_text(json.dumps(tokens.tolist()))
    command = [heddle, "dump", folder, "--tokens", folder / "tokens.json", "--out", folder / "dump.safetensors"]
    if (labels == NO_LABEL).any():
        (folder / "labels.json").write_text(json.dumps(labels.tolist()))
        command += ["--labels", folder / "labels.json"]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=COMMAND_SECONDS,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise AssertionError(done.stderr.strip())
    found = load_file(folder / "dump.safetensors")
    config = AutoConfig.from_pretrained(folder)
    return {part: tensor for name, whole in found.items() for part, tensor in unjoined(name, whole, config).items()}


ZERO = 1e-9    # of the norm of all gradients, in f64


def relative(found, expected):
    size = expected.double().norm().item()
    distance = (found.double() - expected.double()).norm().item()
    return distance / size if size else distance


def compare(found, expected, each):
    """The largest relative distance and its tensor; `each`: of every gradient by itself."""
    names = {name for name in expected if name.startswith("grad.")}
    theirs = {name for name in found if name.startswith("grad.")}
    tied = {"grad.lm_head.weight"}
    if (names ^ theirs) - tied:
        raise AssertionError(f"gradients of one side alone: {sorted((names ^ theirs) - tied)[:4]}")
    for name in names & theirs:
        if found[name].shape != expected[name].shape:
            raise AssertionError(f"{name}: {list(found[name].shape)}, not {list(expected[name].shape)}")
    names = sorted(names & theirs)
    distances = {name: relative(found[name].flatten(), expected[name].flatten()) for name in ("loss", "logits")}
    joined = [torch.cat([side[name].double().flatten() for name in names]) for side in (found, expected)]
    if each:
        for name in names:
            size = expected[name].double().norm().item()
            of_all = joined[1].norm().item()
            if name.endswith("k_proj.bias"):
                size = max(size, expected[name.removesuffix("bias") + "weight"].double().norm().item())
            if name.endswith(("_hc.scale", "hc_scale", "hc_head_scale", "_layer.hc_base", "hc_head_base", "hc_attn_scale", "hc_ffn_scale")):
                size = max(size, expected[name.removesuffix("scale").removesuffix("base") + "fn"].double().norm().item())
            size = of_all if size < ZERO * of_all else size
            distances[name] = (found[name].double() - expected[name].double()).norm().item() / (size or 1)
    else:
        distances["all gradients"] = relative(*joined)
    worst = max(distances, key=distances.get)
    return distances[worst], worst


def drawn_folder(folder, family, keys, seed, rounded):
    beside = PICTURES.get(family)
    if beside:
        tied = dict(tie_word_embeddings=keys["tie_word_embeddings"]) if "tie_word_embeddings" in keys else {}
        keys = dict(text_config=keys, vision_config=beside | dict(out_hidden_size=keys["hidden_size"])) | tied
    config = AutoConfig.for_model(MODEL_TYPES.get(family, family), **keys)
    config._attn_implementation = "eager"
    made = AutoModelForImageTextToText if beside else AutoModelForCausalLM
    model = filled(made.from_config(config), seed, rounded)
    model.save_pretrained(folder)


def run(heddle, family, number, folder):
    """Both precisions of one draw. Returns its distances."""
    d = Draw(f"{family} {number}")
    keys = FAMILIES[family](d)
    tokens = torch.randint(keys["vocab_size"], (d.randint(1, 3), d.randint(5, 20)),
                           generator=torch.Generator().manual_seed(number))
    labels = tokens.clone()
    if number % 3 == 1:    # of some tokens alone, at least one
        labels[torch.rand(tokens.shape, generator=torch.Generator().manual_seed(number)) < 0.5] = NO_LABEL
        labels[-1, -1] = tokens[-1, -1]
    # Transformers' recurrences go on where a document begins, and its blocks are scored by keys of all documents.
    apart = d.one_in(2) and not {"index_block_size", "index_kpool", "indexer_budget"} & keys.keys() and not keys.get("sliding_window") and not keys.get("attention_chunk_size") and not keys.get("attn_temperature_tuning") and not recurs(keys) and "layers_block_type" not in keys
    end = tokens[0, tokens.shape[1] // 3].item() if apart else None
    distances = []
    for precision in ("f32", "bf16"):
        bf16 = precision == "bf16"
        here = folder / precision
        here.mkdir(parents=True)
        drawn_folder(here, family, all_chosen(keys) if bf16 else keys, number, bf16)
        expected = of_transformers(here, tokens, labels, end=end)
        settings = [f"device.dtype={precision}"] + ["model.index_stage=off"] * ("index_topk" in keys)
        if apart:
            settings += ["data.attend_across_documents=false", f"data.document_end={end}"]
        if number % 2:
            settings += [f"fusions.{name}=false" for name in
                         ("norm", "swiglu", "bias_swiglu", "gelu", "bias", "rope", "router", "combine", "loss")]
        distance, worst = compare(of_heddle(heddle, here, tokens, labels, settings), expected, not bf16)
        distances.append(distance)
        allowed = BF16 if bf16 else F32
        if bf16 and distance > allowed:
            theirs = of_transformers(here, tokens, labels, torch.bfloat16, end)
            # Gemma rounds behind four norms a layer, Gemma 4 behind up to twelve. Transformers keeps outputs of Mamba-2 in float32 up to their norm, on
            # a CPU, and a square doubles what its operand is off by. OLMo Hybrid norms a recurrent head's small output with an epsilon of 1e-5, always. Attention to 13 tokens was 1.8 times as far off in a
            # draw of hashed_v3, and three layers of entries 1.6 times in one of deepseek_v4. Draws of glm5_next were
            # 0.2 to 2.3 times as far off. Of 10 draws each the worst was 1.5 times as far off in sarvam_mla,
            # kimi_k25 and dots3_note_text, and 1.8 times in mistral4. A norm follows the
            # sum of A.X-K1's experts, as in Gemma 4. A root of what is next to nothing magnifies a rounding of one or of the other where n-grams are gated.
            more = 6 if "ple_layer_ids" in keys else 2.5 if family in ("nemotron_h", "olmo_hybrid", "axk1", "glm5_next", *GEMMA4) else 2 if family in (*ZERO_CENTERED, *NORMED_TWICE, "hashed_v3", "deepseek_v4", "sarvam_mla", "kimi_k25", "dots3_note_text", "mistral4") else 1.5
            allowed = max(allowed, more * compare(theirs, expected, False)[0])
        elif distance > allowed and (recurs(keys) or family in GEMMA4 + STREAMS + UNSCALED + NORMED_TWICE):
            theirs = of_transformers(here, tokens, labels, torch.float32, end)
            allowed = max(allowed, 3 * compare(theirs, expected, True)[0])
        if not bf16 and family in STREAMS + UNSCALED:
            wide, where = compare(of_heddle(heddle, here, tokens, labels, [*settings, "device.backend=reference", "device.dtype=f64"]), expected, True)
            if not wide <= F64:
                raise AssertionError(f"f64: {where} is {wide:.2e} away: {json.dumps(keys)}")
        if not distance <= allowed:
            raise AssertionError(f"{precision}: {worst} is {distance:.2e} away: {json.dumps(keys)}")
    return distances


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path, help="leaves the folders there")
    options = parser.parse_args()
    options.heddle = options.heddle.resolve()
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for family in options.family or FAMILIES:
            worst = [0.0, 0.0]
            for number in range(options.first, options.first + options.draws):
                folder = (options.keep or pathlib.Path(scratch)) / family / str(number)
                try:
                    worst = [max(pair) for pair in zip(worst, run(options.heddle, family, number, folder))]
                except AssertionError as error:
                    failed += 1
                    print(f"{family} {number}: {error}", flush=True)
            print(f"{family}: {options.draws} draws, at most {worst[0]:.1e} in f32, {worst[1]:.1e} in bf16", flush=True)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
