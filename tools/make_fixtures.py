#!/usr/bin/env python3
"""Write tests/fixtures/: tiny models of the families with logits, losses and gradients made by another implementation.

The models are Hugging Face Transformers' (eager attention, eager experts) under autograd. Each
case is computed twice from the same parameters: in float64, which is what gets stored (rounded to float32), and in
float32, which must agree with it. Transformers casts to float32 in many places (norms, router, softmax, loss, rotary
angles); for the float64 run a function mode turns each of those casts into one to float64.

Every number is defined in tests/fixtures/README.md. Run in an environment with the versions pinned in
bench/torch_peer/requirements.txt:  python tools/make_fixtures.py [CASE…]   (the output is the same at every run)
"""
import contextlib
import hashlib
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import (DeepseekV3ForCausalLM, Glm4MoeForCausalLM, GptOssForCausalLM, LlamaForCausalLM,
                          MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, Qwen3MoeForCausalLM)
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as hf

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests" / "fixtures"
MIN_MARGIN = 1e-3          # smallest gap allowed between a chosen and a rejected router score
MTP_LOSS_WEIGHT = 0.3      # lambda of the multi-token prediction loss
BALANCE_ALPHA = 1e-2       # alpha of the sequence-wise balance loss
Z_LOSS_WEIGHT = 1e-3       # c of the router z-loss
IGNORED = -100             # label of a position without a target
HAS_IDLE_EXPERT = {"mtp"}    # cases with an expert that no token chooses

# The released DeepSeek-V3 config.json's keys.
COMMON = dict(
    architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", torch_dtype="float32", hidden_act="silu",
    attention_bias=False, attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-6, use_cache=False,
    tie_word_embeddings=False, scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True,
    moe_layer_freq=1, ep_size=1, pretraining_tp=1, bos_token_id=0, eos_token_id=1,
)
GROUPED = dict(
    COMMON, vocab_size=61, hidden_size=32, intermediate_size=48, moe_intermediate_size=12, num_hidden_layers=3,
    first_k_dense_replace=1, num_attention_heads=4, num_key_value_heads=4, qk_nope_head_dim=8, qk_rope_head_dim=4,
    v_head_dim=8, kv_lora_rank=12, q_lora_rank=16, n_routed_experts=8, n_group=4, topk_group=2,
    num_experts_per_tok=3, n_shared_experts=1, routed_scaling_factor=2.5, num_nextn_predict_layers=0,
    max_position_embeddings=64, rope_theta=10000.0, rope_scaling=None,
)
# Small theta and wide betas, so that the four frequencies take the ramp's values 0, 1/3, 2/3 and 1.
YARN = dict(
    COMMON, vocab_size=53, hidden_size=24, intermediate_size=40, moe_intermediate_size=10, num_hidden_layers=2,
    first_k_dense_replace=0, num_attention_heads=3, num_key_value_heads=3, qk_nope_head_dim=6, qk_rope_head_dim=8,
    v_head_dim=10, kv_lora_rank=14, q_lora_rank=None, n_routed_experts=6, n_group=1, topk_group=1,
    num_experts_per_tok=2, n_shared_experts=2, routed_scaling_factor=1.5, num_nextn_predict_layers=0,
    max_position_embeddings=32, rope_theta=100.0,
    rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=0.05,
                      mscale=1.0, mscale_all_dim=1.0),
)
# What else Transformers reads of YaRN, in models of one layer or two: one of the two mscales without the other, ramps
# between pairs, an attention factor of its own; and norms of which only those outside of attention take rms_norm_eps.
SMALL_YARN = dict(
    YARN, hidden_size=16, intermediate_size=24, moe_intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, v_head_dim=6, kv_lora_rank=10, n_routed_experts=4, n_shared_experts=1,
)


def yarn(**keys):
    return dict(type="yarn", factor=4.0, original_max_position_embeddings=8, beta_fast=4.0, beta_slow=0.05, **keys)


def as_transformers_5_writes(config):
    """Rotary keys in one dictionary, what is 0 or not there by default, the widths that follow from others."""
    c = {k: v for k, v in config.items() if k not in ("rope_scaling", "rope_theta", "scoring_func", "topk_method",
                                                      "moe_layer_freq", "ep_size", "torch_dtype")}
    rope = dict(config["rope_scaling"], rope_theta=config["rope_theta"])
    rope["rope_type"] = rope.pop("type")
    return dict(c, rope_parameters=rope, dtype="float32", head_dim=c["qk_rope_head_dim"],
                qk_head_dim=c["qk_nope_head_dim"] + c["qk_rope_head_dim"], num_nextn_predict_layers=1,
                output_router_logits=False, pad_token_id=None, rope_interleave=True, transformers_version="5.23.0")


# The released Qwen3 config.json's keys. Heads wider than hidden ÷ heads, so that the two are not taken for each other.
QWEN3 = dict(
    architectures=["Qwen3ForCausalLM"], model_type="qwen3", torch_dtype="float32", hidden_act="silu",
    attention_bias=False, attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-2, use_cache=False,
    tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, vocab_size=59, hidden_size=24, intermediate_size=40,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, max_position_embeddings=64,
    rope_theta=1000.0, rope_scaling=None, use_sliding_window=False, sliding_window=None, max_window_layers=2,
)
QWEN3_MOE = dict(
    QWEN3, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", tie_word_embeddings=False,
    rms_norm_eps=1e-6, num_hidden_layers=3, num_attention_heads=6, head_dim=8, num_experts=8, num_experts_per_tok=3,
    moe_intermediate_size=12, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0],
    output_router_logits=False, router_aux_loss_coef=0.001,
)
# The released Llama-3.2 config.json's keys, with both kinds of biases; without head_dim, as LLaMA 2 has it.
LLAMA = dict(
    architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="float32", hidden_act="silu",
    attention_bias=True, attention_dropout=0.0, mlp_bias=True, initializer_range=0.02, rms_norm_eps=1e-5,
    use_cache=False, pretraining_tp=1, tie_word_embeddings=False, bos_token_id=0, eos_token_id=1, vocab_size=59,
    hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=64, rope_theta=100.0,
    rope_scaling=dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0,
                      original_max_position_embeddings=16),
)
# The released Qwen2.5 config.json's keys.
QWEN2 = dict(
    architectures=["Qwen2ForCausalLM"], model_type="qwen2", torch_dtype="float32", hidden_act="silu",
    attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-6, use_cache=False, tie_word_embeddings=True,
    bos_token_id=0, eos_token_id=1, vocab_size=53, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, max_window_layers=2, rope_theta=100.0,
    sliding_window=64, use_sliding_window=False,
)
# The released Mixtral-8x7B config.json's keys.
MIXTRAL = dict(
    architectures=["MixtralForCausalLM"], model_type="mixtral", torch_dtype="float32", hidden_act="silu",
    attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-5, use_cache=False, tie_word_embeddings=False,
    bos_token_id=0, eos_token_id=1, vocab_size=53, hidden_size=32, intermediate_size=20, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64, rope_theta=1e6, sliding_window=None,
    num_local_experts=6, num_experts_per_tok=2, output_router_logits=False, router_aux_loss_coef=0.02,
)
# The released GLM-4.5 config.json's keys, positions as Transformers 5 writes them.
GLM4_MOE = dict(
    architectures=["Glm4MoeForCausalLM"], model_type="glm4_moe", torch_dtype="float32", hidden_act="silu",
    attention_bias=True, attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-5, use_cache=False,
    tie_word_embeddings=False, use_qk_norm=True, eos_token_id=1, vocab_size=53, hidden_size=24,
    intermediate_size=40, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
    max_position_embeddings=64, first_k_dense_replace=1, moe_intermediate_size=12, n_routed_experts=6,
    n_shared_experts=1, num_experts_per_tok=2, n_group=1, topk_group=1, norm_topk_prob=True,
    routed_scaling_factor=2.5, num_nextn_predict_layers=0,
    rope_parameters=dict(rope_type="default", rope_theta=100.0, partial_rotary_factor=0.5),
)
# The released gpt-oss config.json's keys. Widths that MXFP4's blocks divide, a limit that gates and ups reach.
GPT_OSS = dict(
    architectures=["GptOssForCausalLM"], model_type="gpt_oss", torch_dtype="float32", hidden_act="silu",
    attention_bias=True, attention_dropout=0.0, initializer_range=0.02, rms_norm_eps=1e-5, use_cache=False,
    tie_word_embeddings=False, eos_token_id=1, pad_token_id=0, vocab_size=53, hidden_size=32, intermediate_size=32,
    num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
    sliding_window=5, layer_types=["sliding_attention", "full_attention"], num_local_experts=4, num_experts_per_tok=2,
    experts_per_token=2, swiglu_limit=0.75, initial_context_length=8, router_aux_loss_coef=0.9,
    output_router_logits=False, rope_theta=100.0,
    rope_scaling=dict(rope_type="yarn", factor=4.0, beta_fast=4.0, beta_slow=0.05, truncate=False,
                      original_max_position_embeddings=8),
)
CLASSES = {"deepseek_v3": DeepseekV3ForCausalLM, "qwen3": Qwen3ForCausalLM, "qwen3_moe": Qwen3MoeForCausalLM,
           "llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM, "mixtral": MixtralForCausalLM,
           "glm4_moe": Glm4MoeForCausalLM, "gpt_oss": GptOssForCausalLM}
SIGMOID = ("deepseek_v3", "glm4_moe")    # routers with sigmoid scores and a bias on the choice

CASES = {  # name: (config, batch, sequence, parameters stored as)
    "grouped": (GROUPED, 2, 19, torch.float32),
    "yarn": (YARN, 2, 23, torch.bfloat16),
    "mtp": (dict(GROUPED, num_nextn_predict_layers=1), 2, 19, torch.bfloat16),
    "yarn_mscale": (dict(SMALL_YARN, rms_norm_eps=1e-2, rope_scaling=yarn(mscale=0.4, truncate=False)), 1, 23,
                    torch.bfloat16),
    "yarn_factor": (dict(SMALL_YARN, rms_norm_eps=3e-2, q_lora_rank=9,
                         rope_scaling=yarn(attention_factor=0.8, mscale=0.9, mscale_all_dim=0.6)), 1, 23,
                    torch.bfloat16),
    "yarn_all_dim": (as_transformers_5_writes(dict(SMALL_YARN, n_shared_experts=0,
                                                   rope_scaling=yarn(mscale_all_dim=0.7))), 1, 23, torch.bfloat16),
    "qwen3": (QWEN3, 2, 19, torch.bfloat16),
    "qwen3_moe": (QWEN3_MOE, 2, 19, torch.float32),
    "llama": (LLAMA, 2, 23, torch.bfloat16),
    "qwen2": (QWEN2, 2, 19, torch.bfloat16),
    "mixtral": (MIXTRAL, 2, 19, torch.bfloat16),
    "glm4_moe": (GLM4_MOE, 2, 19, torch.float32),
    "gpt_oss": (GPT_OSS, 2, 19, torch.bfloat16),
}
MODULES = {"mtp": 1}    # prediction modules whose weights are stored; a configuration may name more


class InFloat64(TorchFunctionMode):
    """While active, every float32 that model code asks for becomes float64."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            func = torch.Tensor.double
        wider = lambda a: torch.float64 if a is torch.float32 else a
        return func(*map(wider, args), **{k: wider(v) for k, v in (kwargs or {}).items()})


class MultiTokenPrediction(torch.nn.Module):
    """One MTP module (DeepSeek-V3 report, section 2.2) as one more MoE decoder layer; embedding and head are shared.

    Called with h_BSH, the output of the final norm, as Megatron-LM trains it, and e_BSH, the embedding of the token
    that follows each position. Returns what the shared head is to be applied to.
    """

    def __init__(self, config, index):
        super().__init__()
        norm = lambda: torch.nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.enorm, self.hnorm, self.last_norm = norm(), norm(), norm()
        self.eh_proj = torch.nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)
        self.block = hf.DeepseekV3DecoderLayer(config, index)

    def forward(self, h_BSH, e_BSH, rotary, mask):
        x_BSH = self.eh_proj(torch.cat([self.enorm(e_BSH), self.hnorm(h_BSH)], dim=-1))
        return self.last_norm(self.block(x_BSH, position_embeddings=rotary, attention_mask=mask))


def parameter_shapes(config, modules):
    """Checkpoint name -> shape, as the released weights are named; routed experts one by one."""
    c = config
    if c["model_type"] != "deepseek_v3":
        return grouped_shapes(c)
    h, heads, qk = c["hidden_size"], c["num_attention_heads"], c["qk_nope_head_dim"] + c["qk_rope_head_dim"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,),
              "lm_head.weight": (c["vocab_size"], h)}

    def mlp(prefix, width):
        shapes[f"{prefix}.gate_proj.weight"] = shapes[f"{prefix}.up_proj.weight"] = (width, h)
        shapes[f"{prefix}.down_proj.weight"] = (h, width)

    for layer in range(c["num_hidden_layers"] + modules):
        p = f"model.layers.{layer}"
        if c["q_lora_rank"] is None:
            shapes[f"{p}.self_attn.q_proj.weight"] = (heads * qk, h)
        else:
            shapes[f"{p}.self_attn.q_a_proj.weight"] = (c["q_lora_rank"], h)
            shapes[f"{p}.self_attn.q_a_layernorm.weight"] = (c["q_lora_rank"],)
            shapes[f"{p}.self_attn.q_b_proj.weight"] = (heads * qk, c["q_lora_rank"])
        shapes[f"{p}.self_attn.kv_a_proj_with_mqa.weight"] = (c["kv_lora_rank"] + c["qk_rope_head_dim"], h)
        shapes[f"{p}.self_attn.kv_a_layernorm.weight"] = (c["kv_lora_rank"],)
        shapes[f"{p}.self_attn.kv_b_proj.weight"] = (heads * (c["qk_nope_head_dim"] + c["v_head_dim"]), c["kv_lora_rank"])
        shapes[f"{p}.self_attn.o_proj.weight"] = (h, heads * c["v_head_dim"])
        shapes[f"{p}.input_layernorm.weight"] = shapes[f"{p}.post_attention_layernorm.weight"] = (h,)
        if layer < c["first_k_dense_replace"]:
            mlp(f"{p}.mlp", c["intermediate_size"])
        else:
            shapes[f"{p}.mlp.gate.weight"] = (c["n_routed_experts"], h)
            shapes[f"{p}.mlp.gate.e_score_correction_bias"] = (c["n_routed_experts"],)
            for expert in range(c["n_routed_experts"]):
                mlp(f"{p}.mlp.experts.{expert}", c["moe_intermediate_size"])
            mlp(f"{p}.mlp.shared_experts", c["moe_intermediate_size"] * c["n_shared_experts"])
        if layer >= c["num_hidden_layers"]:
            for norm in ("enorm", "hnorm", "shared_head.norm"):
                shapes[f"{p}.{norm}.weight"] = (h,)
            shapes[f"{p}.eh_proj.weight"] = (h, 2 * h)
    return shapes


def grouped_shapes(c):
    h, heads, kv_heads, kind = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["model_type"]
    width = c.get("head_dim", h // heads)
    qkv_bias = kind == "qwen2" or c.get("attention_bias", False)
    norms = kind.startswith("qwen3") or c.get("use_qk_norm", False)
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)

    def linear(name, outputs, inputs, bias=False):
        shapes[f"{name}.weight"] = (outputs, inputs)
        if bias:
            shapes[f"{name}.bias"] = (outputs,)

    def mlp(prefix, width, bias=False, names=("gate_proj", "up_proj", "down_proj")):
        for name in names[:2]:
            linear(f"{prefix}.{name}", width, h, bias)
        linear(f"{prefix}.{names[2]}", h, width, bias)

    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}"
        for name in "qkv":
            linear(f"{p}.self_attn.{name}_proj", (heads if name == "q" else kv_heads) * width, h, qkv_bias)
        linear(f"{p}.self_attn.o_proj", h, heads * width, kind in ("llama", "gpt_oss") and qkv_bias)
        if norms:
            shapes[f"{p}.self_attn.q_norm.weight"] = shapes[f"{p}.self_attn.k_norm.weight"] = (width,)
        shapes[f"{p}.input_layernorm.weight"] = shapes[f"{p}.post_attention_layernorm.weight"] = (h,)
        if kind == "gpt_oss":
            experts, f = c["num_local_experts"], c["intermediate_size"]
            shapes[f"{p}.self_attn.sinks"] = (heads,)
            linear(f"{p}.mlp.router", experts, h, True)
            shapes |= {f"{p}.mlp.experts.gate_up_proj": (experts, h, 2 * f),
                       f"{p}.mlp.experts.gate_up_proj_bias": (experts, 2 * f),
                       f"{p}.mlp.experts.down_proj": (experts, f, h), f"{p}.mlp.experts.down_proj_bias": (experts, h)}
            continue
        if kind == "mixtral":
            shapes[f"{p}.block_sparse_moe.gate.weight"] = (c["num_local_experts"], h)
            for expert in range(c["num_local_experts"]):
                mlp(f"{p}.block_sparse_moe.experts.{expert}", c["intermediate_size"], names=("w1", "w3", "w2"))
            continue
        experts = c.get("num_experts", c.get("n_routed_experts", 0))
        if not experts or layer in c.get("mlp_only_layers", range(c.get("first_k_dense_replace", 0))):
            mlp(f"{p}.mlp", c["intermediate_size"], c.get("mlp_bias", False))
            continue
        shapes[f"{p}.mlp.gate.weight"] = (experts, h)
        if kind in SIGMOID:
            shapes[f"{p}.mlp.gate.e_score_correction_bias"] = (experts,)
        for expert in range(experts):
            mlp(f"{p}.mlp.experts.{expert}", c["moe_intermediate_size"])
        if c.get("n_shared_experts"):
            mlp(f"{p}.mlp.shared_experts", c["moe_intermediate_size"] * c["n_shared_experts"])
    return shapes


def draw_parameters(config, modules, seed, stored_as):
    """Values that a bug can't hide behind: norm gains around 1 but none equal, matrices of deviation 0.2."""
    parameters = {}
    for name, shape in parameter_shapes(config, modules).items():
        tensor_seed = int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:8], "little")
        rng = np.random.Generator(np.random.PCG64(tensor_seed))
        if name.endswith("e_score_correction_bias"):
            parameters[name] = torch.from_numpy(rng.uniform(-0.2, 0.2, shape)).float()
        elif len(shape) == 1 and not name.endswith(".bias"):
            parameters[name] = torch.from_numpy(rng.uniform(0.6, 1.4, shape)).to(stored_as)
        else:
            parameters[name] = torch.from_numpy(0.2 * rng.standard_normal(shape)).to(stored_as)
    return parameters


def checkpoint_names(named, config):
    """Undo Transformers' stacking of experts: (name, tensor) pairs of a model -> {released name: tensor}."""
    if config.model_type == "gpt_oss":    # released as they are
        return dict(named)
    mtp_layer = f"model.layers.{config.num_hidden_layers}"
    out = {}
    for name, tensor in named:
        name = (name.replace("mtp.block", mtp_layer).replace("mtp.last_norm", f"{mtp_layer}.shared_head.norm")
                .replace("mtp.", f"{mtp_layer}."))
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(tensor):
                gate, up = both.chunk(2)
                out[name.replace("gate_up_proj", f"{expert}.gate_proj.weight")] = gate.contiguous()
                out[name.replace("gate_up_proj", f"{expert}.up_proj.weight")] = up.contiguous()
        elif name.endswith("experts.down_proj"):
            for expert, down in enumerate(tensor):
                out[name.replace("down_proj", f"{expert}.down_proj.weight")] = down.contiguous()
        else:
            out[name] = tensor
    if config.model_type == "mixtral":
        words = (".mlp.", ".block_sparse_moe."), (".gate_proj.", ".w1."), (".up_proj.", ".w3."), (".down_proj.", ".w2.")
        for name in [name for name in out if ".mlp." in name]:
            spelt = name
            for ours, theirs in words:
                spelt = spelt.replace(ours, theirs)
            out[spelt] = out.pop(name)
    return out


def load(directory, dtype):
    """The model as Transformers itself loads the checkpoint, and the MTP module, which it doesn't load."""
    kind = json.loads((directory / "config.json").read_text())["model_type"]
    experts = {} if kind in ("qwen3", "qwen2", "llama") else {"experts_implementation": "eager"}
    model = CLASSES[kind].from_pretrained(directory, dtype=dtype, attn_implementation="eager", **experts).to(dtype)
    config = model.config
    stored = load_file(directory / "model.safetensors")
    if not any(name.startswith(f"model.layers.{config.num_hidden_layers}.") for name in stored):
        return model, None
    mtp = MultiTokenPrediction(config, config.num_hidden_layers).to(dtype)
    with torch.no_grad():
        slots = dict(mtp.named_parameters(prefix="mtp")) | {
            "mtp.block.mlp.gate.e_score_correction_bias": mtp.block.mlp.gate.e_score_correction_bias}
        for name, slot in checkpoint_names(slots.items(), config).items():
            slot.copy_(stored[name])
        # The stacked experts are copies in checkpoint_names, so they are filled here.
        experts, p = mtp.block.mlp.experts, f"model.layers.{config.num_hidden_layers}.mlp.experts"
        for e in range(config.n_routed_experts):
            experts.gate_up_proj[e] = torch.cat([stored[f"{p}.{e}.{m}_proj.weight"] for m in ("gate", "up")])
            experts.down_proj[e] = stored[f"{p}.{e}.down_proj.weight"]
    return model, mtp


def router_losses(logits_TE, batch, top_k):
    """The report's equations 17-20 (without alpha) and the z-loss (without c) of one MoE layer."""
    s_BSE = logits_TE.sigmoid().view(batch, -1, logits_TE.shape[-1])
    sequence, experts = s_BSE.shape[1:]
    chosen_BSE = torch.zeros_like(s_BSE).scatter(2, s_BSE.topk(top_k, dim=-1).indices, 1.0)
    f_BE = chosen_BSE.sum(1) * experts / (top_k * sequence)
    p_BE = (s_BSE / s_BSE.sum(-1, keepdim=True)).mean(1)
    return (f_BE * p_BE).sum(-1).mean(), logits_TE.logsumexp(-1).square().mean()


def scores(logits_TE, config):
    return logits_TE.sigmoid() if config.model_type in SIGMOID else logits_TE.softmax(-1)


def margin(logits_TE, gate, config, plain_too):
    """Smallest gap between a taken and a refused candidate in any decision of this router."""
    s_TE = scores(logits_TE, config).double()
    gap = lambda x, k: float("inf") if k >= x.shape[-1] else (lambda v: (v[:, k - 1] - v[:, k]).min().item())(
        x.sort(dim=-1, descending=True).values)
    if config.model_type not in SIGMOID:
        return gap(s_TE, config.num_experts_per_tok)
    bias_E = gate.e_score_correction_bias.double()
    biased = s_TE + bias_E
    groups = biased.view(len(s_TE), config.n_group, -1)
    group_scores = groups.topk(2, dim=-1).values.sum(-1)
    kept = torch.zeros_like(group_scores).scatter(1, group_scores.topk(config.topk_group).indices, 1.0).bool()
    within = biased.masked_fill(~kept.repeat_interleave(groups.shape[-1], dim=1), -9.0)
    gaps = [gap(group_scores, config.topk_group), gap(within, config.num_experts_per_tok)]
    return min(gaps + ([gap(s_TE, config.num_experts_per_tok)] if plain_too else []))


def evaluate(directory, tokens, dtype):
    """Forward and backward in one precision. Returns {name: tensor} and the smallest routing margin."""
    model, mtp = load(directory, dtype)
    with InFloat64() if dtype == torch.float64 else contextlib.nullcontext():
        return run(model, mtp, tokens)


def run(model, mtp, tokens):
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)   # again, in the precision of the active mode
    config, (batch, sequence), out = model.config, tokens.shape, {}

    def keep(name, pick=lambda y: y):
        return lambda module, args, y: out.__setitem__(name, pick(y))

    blocks = list(model.model.layers) + ([mtp.block] if mtp else [])
    routers = {}
    for index, block in enumerate(blocks):
        block.register_forward_hook(keep(f"layer.{index}.output"))
        block.self_attn.register_forward_hook(keep(f"layer.{index}.attention", lambda y: y[0]))
        router = getattr(block.mlp, "gate", getattr(block.mlp, "router", None))
        if router is not None:
            router.register_forward_hook(
                lambda module, args, y, index=index: routers.__setitem__(index, (module, *y)))
    main = {}
    model.model.layers[-1].register_forward_hook(
        lambda module, args, kwargs, y: main.update(kwargs, h=y), with_kwargs=True)

    result = model(input_ids=tokens, labels=tokens, use_cache=False)
    loss = result.loss
    out["logits"], out["loss.main"] = result.logits, result.loss
    out["input_ids"] = tokens
    out["labels"] = F.pad(tokens[:, 1:], (0, 1), value=IGNORED)
    if mtp:
        out["mtp.input_ids"] = F.pad(tokens[:, 1:], (0, 1), value=0)
        out["mtp.labels"] = F.pad(tokens[:, 2:], (0, 2), value=IGNORED)
        y = mtp(model.model.norm(main["h"]), model.model.embed_tokens(out["mtp.input_ids"]), main["position_embeddings"],
                main["attention_mask"])
        out["mtp.logits"] = model.lm_head(y)
        out["loss.mtp"] = F.cross_entropy(out["mtp.logits"].flatten(0, 1), out["mtp.labels"].flatten(),
                                          ignore_index=IGNORED)
        losses = {i: router_losses(r[1], batch, config.num_experts_per_tok) for i, r in routers.items()}
        for i, (balance, z) in losses.items():
            out[f"layer.{i}.balance_loss"], out[f"layer.{i}.z_loss"] = balance, z
        out["loss.balance"] = BALANCE_ALPHA * sum(b for b, _ in losses.values())
        out["loss.z"] = Z_LOSS_WEIGHT * sum(z for _, z in losses.values())
        loss = loss + MTP_LOSS_WEIGHT * out["loss.mtp"] + out["loss.balance"] + out["loss.z"]
    out["loss"] = loss
    loss.backward()

    for i, (gate, logits, weights, chosen) in routers.items():
        by_expert = chosen.sort(dim=-1)
        out[f"layer.{i}.router_scores"] = scores(logits, config)
        out[f"layer.{i}.chosen"] = by_expert.values
        out[f"layer.{i}.gates"] = weights.gather(1, by_expert.indices)
    named = list(model.named_parameters()) + (list(mtp.named_parameters(prefix="mtp")) if mtp else [])
    grads = [(name, p.grad) for name, p in named]
    out |= {f"grad.{name}": g for name, g in checkpoint_names(grads, config).items()}
    smallest = min((margin(r[1].detach(), r[0], config, mtp is not None) for r in routers.values()),
                   default=float("inf"))
    return {name: t.detach() for name, t in out.items()}, smallest


def idle_experts(numbers):
    """The experts that no token chose: the gradients of their matrices are zeros."""
    idle = {n.split(".gate_proj")[0].removeprefix("grad.") for n, t in numbers.items()
            if n.startswith("grad.") and t.numel() > 0 and not t.any()}
    return sorted(n for n in idle if "proj" not in n)


def write_case(name, config, batch, sequence, stored_as):
    directory = OUT / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
    for seed in range(2000):
        parameters = draw_parameters(config, MODULES.get(name, 0), seed, stored_as)
        save_file(parameters, directory / "model.safetensors", metadata={"format": "pt"})
        rng = np.random.Generator(np.random.PCG64(seed))
        tokens = torch.from_numpy(rng.integers(0, config["vocab_size"], (batch, sequence)))
        exact, smallest = evaluate(directory, tokens, torch.float64)
        if smallest >= MIN_MARGIN and (name not in HAS_IDLE_EXPERT or idle_experts(exact)):
            break
    else:
        raise SystemExit(f"{name}: no seed keeps the routing {MIN_MARGIN} away from ties")

    single, _ = evaluate(directory, tokens, torch.float32)
    trained = {n for n in parameters if not n.endswith("e_score_correction_bias")}
    assert {n.removeprefix("grad.") for n in exact if n.startswith("grad.")} == trained, "gradients and parameters differ"
    worst = ("", 0.0)
    for tensor_name, truth in exact.items():
        if not truth.is_floating_point():
            assert torch.equal(truth, single[tensor_name]), tensor_name
            continue
        assert truth.dtype == torch.float64, f"{tensor_name} escaped to {truth.dtype}"
        if truth.norm() == 0:    # an expert that no token chose: nothing may reach it in either precision
            assert single[tensor_name].norm() == 0, tensor_name
            continue
        error = ((single[tensor_name].double() - truth).norm() / truth.norm()).item()
        worst = max(worst, (tensor_name, error), key=lambda pair: pair[1])
        assert error < 1e-5, f"{tensor_name}: float32 and float64 differ by {error}"
    stored = {n: (t.float() if t.is_floating_point() and t.dim() > 0 else t).contiguous().clone() for n, t in exact.items()}
    save_file(stored, directory / "expected.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    grads = {n: t.abs().max().item() for n, t in exact.items() if n.startswith("grad.") and t.numel() > 0}
    return dict(seed=seed, loss={n: round(t.item(), 12) for n, t in exact.items() if n.startswith("loss")},
                smallest_routing_margin=round(smallest, 6) if smallest < 1 else None, parameters=sum(t.numel() for t in parameters.values()),
                experts_without_tokens=idle_experts(exact),
                smallest_largest_gradient=float(f"{min(g for g in grads.values() if g > 0):.2e}"),
                float32_against_float64=dict(tensor=worst[0], relative_norm=float(f"{worst[1]:.1e}")))


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    wanted = sys.argv[1:] or list(CASES)
    before = json.loads((OUT / "summary.json").read_text()) if sys.argv[1:] else {}
    summary = {name: write_case(name, *CASES[name]) if name in wanted else before[name]
               for name in CASES if name in wanted or name in before}
    summary["made_with"] = dict(torch=torch.__version__.split("+")[0], transformers=transformers.__version__)
    (OUT / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(json.dumps(summary, indent=2))


if __name__ == "__main__":
    main()
