"""Models with latent attention beside DeepSeek-V2's and V3's, and with queries scaled by their positions, for
drawn_models.py: of each family the keys of a small config.json."""
from drawn_models import FAMILIES, common, deepseek_v3, grouped, latent, mistral, scaled, selecting, with_head_dim


def youtu(d):
    keys = latent(d)
    for name in ("first_k_dense_replace", "moe_intermediate_size", "n_shared_experts"):
        del keys[name]
    return keys | dict(rope_interleave=not d.one_in(3))


def sarvam_mla(d):
    return deepseek_v3(d) | dict(rope_interleave=not d.one_in(3))


def axk1(d):
    keys = deepseek_v3(d)
    return keys | dict(q_lora_rank=d.of(8, 12), num_hidden_layers=d.randint(keys["first_k_dense_replace"] + 1, 3))


def scaled_queries(d, keys):
    """A factor on queries that grows within the sequences."""
    rope = keys["rope_parameters"] | dict(original_max_position_embeddings=d.of(3, 5, 8), llama_4_scaling_beta=d.of(0.1, 0.5, 1.0))
    return keys | dict(rope_parameters=rope)


def mistral4(d):
    """Rotation is stretched: Transformers would turn the whole head otherwise."""
    keys = deepseek_v3(d)
    while keys["rope_parameters"]["rope_type"] == "default":
        keys["rope_parameters"] = scaled(d, "yarn")
    return scaled_queries(d, keys) | dict(rope_interleave=not d.one_in(3))


def ministral3(d):
    keys = with_head_dim(grouped(d, "yarn"), d, 6, 8, 12)
    return scaled_queries(d, keys) | dict(sliding_window=d.of(None, None, 1, 3, 5, 30))


def mistral3(d):
    """A text model beside one of pictures."""
    text = d.of(mistral, ministral3, mistral4)
    return text(d) | dict(model_type=text.__name__)


def kimi_k25(d):
    """Transformers takes a projection of queries by itself for one of its model of pictures, and cannot load it again."""
    return deepseek_v3(d) | dict(model_type="deepseek_v3", q_lora_rank=d.of(8, 12))


def axk2(d):
    keys = selecting(d, deepseek_v3(d)) | dict(gated_norm_rank=d.of(1, 4, 6))
    return keys | dict(n_group=None, topk_group=None) if d.one_in(2) else keys


def dots3_note_text(d):
    """Indexers in some layers and windows in the others, which have other heads and latents; or attention to all keys."""
    keys = selecting(d, deepseek_v3(d))
    layers, dense, theta = keys["num_hidden_layers"], keys.pop("first_k_dense_replace"), d.of(100.0, 1e4)
    full = "full_attention" if d.one_in(4) else "indexed_attention"
    types = [d.of(full, "sliding_attention") for _ in range(layers)]
    if full == "full_attention":
        del keys["index_topk"]
    elif full not in types:
        types[-1] = full
    heads, nope, rope = d.of(1, 2, 4), d.of(4, 6), d.of(2, 4)
    own = dict(num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=d.of(8, 10), kv_lora_rank=d.of(8, 12),
               qk_nope_head_dim=nope, qk_rope_head_dim=rope, v_head_dim=d.of(4, 6), head_dim=nope + rope)
    windows = {layer: own for layer, kind in enumerate(types) if kind == "sliding_attention"}
    rotation = {kind: dict(rope_type="default", rope_theta=theta if kind == full else d.of(10.0, 1e4)) for kind in sorted(set(types))}
    return keys | dict(
        layer_types=types, per_layer_config=windows, rope_parameters=rotation, head_dim=keys["qk_rope_head_dim"] + keys["qk_nope_head_dim"],
        sliding_window=d.of(1, 3, 5, 30) if windows else None, mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense),
        shared_experts_intermediate_size=d.of(8, 12, 20))


def deepseek_v32(d):
    return selecting(d, deepseek_v3(d))


def glm_moe_dsa(d):
    keys = selecting(d, deepseek_v3(d))
    shared = keys["num_hidden_layers"] - 1
    return keys | dict(indexer_types=d.of(None, ["full"] + ["shared"] * shared, ["full"] * shared + ["shared"][:shared])
                       if shared else None)


def deepseek_v4(d):
    """Layers of each kind: windows, entries that overlap and are chosen, entries of more tokens. Some sequences end within
    an entry, and some windows are longer than they. The indexers' heads are many, as in `selecting`."""
    heads, rope = d.of(2, 4), d.of(2, 4, 8)
    layers = d.randint(1, 3)
    width = rope + d.of(0, 2, 4)
    kinds = ["sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"]
    types = [d.of(*kinds) for _ in range(layers)]
    hashed = d.randint(0, layers)
    stretched = d.of({}, dict(rope_scaling=dict(type="yarn", factor=d.of(2.0, 16.0), original_max_position_embeddings=d.of(8, 16),
                                                beta_fast=32, beta_slow=1)))
    experts = d.of(4, 6)
    return common(d) | stretched | dict(
        num_hidden_layers=layers, layer_types=types, mlp_layer_types=["hash_moe"] * hashed + ["moe"] * (layers - hashed),
        compress_rates=dict(compressed_sparse_attention=d.of(1, 2, 3, 4), heavily_compressed_attention=d.of(2, 4, 5)),
        num_attention_heads=heads, num_key_value_heads=1, head_dim=width, qk_rope_head_dim=rope, q_lora_rank=d.of(8, 12),
        sliding_window=d.of(1, 3, 4, 30), o_groups=d.of(1, 2), o_lora_rank=d.of(4, 6), index_topk=d.of(1, 2, 3, 30),
        index_n_heads=d.of(12, 16), index_head_dim=rope + d.of(0, 2, 4), rope_theta=d.of(100.0, 10000.0),
        compress_rope_theta=d.of(1000.0, 160000.0), hc_mult=d.of(2, 4), hc_sinkhorn_iters=d.of(2, 20), hc_eps=d.of(1e-6, 1e-3),
        swiglu_limit=d.of(0.5, 10.0), moe_intermediate_size=d.of(8, 12), n_shared_experts=1, n_routed_experts=experts,
        num_experts_per_tok=d.randint(1, experts), scoring_func=d.of("sqrtsoftplus", "sigmoid"), routed_scaling_factor=d.of(1.0, 1.5),
        num_nextn_predict_layers=0)


def hy_v4(d):
    """Of up to four layers some take another's choice of keys."""
    keys = glm4_moe_lite(d) | dict(num_hidden_layers=d.randint(1, 4))
    layers, dense = keys["num_hidden_layers"], d.randint(0, 1)
    shared = layers - 1
    return selecting(d, keys) | dict(
        mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense), swiglu_limit=d.of(0.1, 0.5, 10.0),
        indexer_types=d.of(None, ["full"] + [d.of("full", "shared") for _ in range(shared)]),
        routed_scaling_factor=d.of(1.0, 2.827), hc_mult=d.of(2, 3, 4, 4), hc_magnitude=d.of(1.0, 2.0, 2.5), hc_eps=d.of(1e-6, 1e-3))


def glm4_moe_lite(d):
    keys = latent(d)
    dense = keys.pop("first_k_dense_replace")
    groups = d.of(1, 1, 2)
    kept, each = d.randint(1, groups), d.of(2, 4)
    return keys | dict(mlp_layer_types=["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense),
                       n_group=groups, topk_group=kept, n_routed_experts=groups * each,
                       num_experts_per_tok=d.randint(1, kept * each), norm_topk_prob=not d.one_in(4),
                       routed_scaling_factor=d.of(1.0, 1.8))


FAMILIES |= {family.__name__: family for family in
             (youtu, sarvam_mla, axk1, mistral4, ministral3, mistral3, kimi_k25, axk2, dots3_note_text, deepseek_v32,
             glm_moe_dsa, deepseek_v4, hy_v4, glm4_moe_lite)}
