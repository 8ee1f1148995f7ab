#!/usr/bin/env python3
"""Check that plain.py computes the loss and the gradients of Hugging Face's DeepseekV3ForCausalLM, in float32.

    python check_plain.py            exit status 0 if every gradient agrees to 1e-4 in relative norm

Small models with and without the query low-rank projection, experts in both layouts (one padded batch, a loop).
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

import plain
from peer import CONFIG_KEYS

SHAPE = dict(vocab_size=97, hidden_size=48, intermediate_size=80, moe_intermediate_size=24, num_hidden_layers=3,
             first_k_dense_replace=1, num_attention_heads=3, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=10,
             kv_lora_rank=20, q_lora_rank=28, n_routed_experts=6, n_group=1, topk_group=1, num_experts_per_tok=2,
             n_shared_experts=2, routed_scaling_factor=2.5, norm_topk_prob=True, rms_norm_eps=1e-6,
             rope_theta=10000.0, initializer_range=0.2, sequence=150, microbatch=2, microbatches=1)


def reference_names(model):
    """(plain tensor, [names in the reference whose rows it stacks]) for every parameter."""
    yield model.embed, ["model.embed_tokens.weight"]
    yield model.head, ["lm_head.weight"]
    yield model.norm, ["model.norm.weight"]
    for i, layer in enumerate(model.layers):
        p, a = f"model.layers.{i}", f"model.layers.{i}.self_attn"
        yield layer.norm_1, [f"{p}.input_layernorm.weight"]
        yield layer.norm_2, [f"{p}.post_attention_layernorm.weight"]
        yield layer.kv_norm, [f"{a}.kv_a_layernorm.weight"]
        first = "q_a_proj" if layer.q_rank else "q_proj"
        yield layer.w_in, [f"{a}.{first}.weight", f"{a}.kv_a_proj_with_mqa.weight"]
        if layer.q_rank:
            yield layer.q_norm, [f"{a}.q_a_layernorm.weight"]
            yield layer.w_q, [f"{a}.q_b_proj.weight"]
        yield layer.w_kv, [f"{a}.kv_b_proj.weight"]
        yield layer.w_o, [f"{a}.o_proj.weight"]
        m = f"{p}.mlp" if layer.dense else f"{p}.mlp.shared_experts"
        yield layer.w_gate_up, [f"{m}.gate_proj.weight", f"{m}.up_proj.weight"]
        yield layer.w_down, [f"{m}.down_proj.weight"]
        if not layer.dense:
            yield layer.w_router, [f"{p}.mlp.gate.weight"]
            yield layer.w_experts_gate_up, [f"{p}.mlp.experts.gate_up_proj"]
            yield layer.w_experts_down, [f"{p}.mlp.experts.down_proj"]


def check(shape, batched):
    plain.EXPERT_CALLS_SECONDS = 1.0 if batched else -1.0
    torch.manual_seed(3)
    model = plain.Model(shape)
    config = DeepseekV3Config(**{k: shape[k] for k in CONFIG_KEYS}, num_key_value_heads=shape["num_attention_heads"],
                              use_cache=False, num_mtp_layers=0, rope_interleave=False)
    reference = DeepseekV3ForCausalLM(config)
    theirs = dict(reference.named_parameters())
    with torch.no_grad():
        for tensor, names in reference_names(model):
            if tensor.dim() == 1:
                tensor.uniform_(0.6, 1.4)
            for name, rows in zip(names, tensor.split([theirs[n].shape[0] for n in names])):
                theirs[name].copy_(rows)
        for layer, other in zip(model.layers, reference.model.layers):
            if not layer.dense:
                layer.bias.uniform_(-0.2, 0.2)
                other.mlp.gate.e_score_correction_bias.copy_(layer.bias)
    ids = torch.randint(0, shape["vocab_size"], (shape["microbatch"], shape["sequence"]))
    ours, expected = model(ids), reference(input_ids=ids, labels=ids).loss
    (ours / 2).backward()
    (expected / 2).backward()
    worst = abs(ours.item() - expected.item()) / expected.item()
    seen = 0
    for tensor, names in reference_names(model):
        wanted = torch.cat([theirs[n].grad for n in names])
        worst = max(worst, ((tensor.grad - wanted).norm() / wanted.norm()).item())
        seen += len(names)
    assert seen == len(theirs), "a parameter of the reference was not compared"
    return worst


def main():
    failed = False
    for q_rank in (28, None):
        for batched in (True, False):
            worst = check(dict(SHAPE, q_lora_rank=q_rank), batched)
            failed |= not worst < 1e-4
            print(f"q_lora_rank {q_rank}, experts {'batched' if batched else 'in a loop'}: largest difference {worst:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
