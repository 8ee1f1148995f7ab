"""Models with recurrent layers beside attention, in any order of layers, for drawn_models.py: of each family the keys
of a small config.json."""
from drawn_models import deepseek_v3, dividing, factors, FAMILIES, grouped, latent, mixture, recurrent_layers, selecting, with_head_dim


def kinds_of_layers(d, keys, recurrent):
    """A word a layer, in any order; at least one of each kind where there are layers enough."""
    layers = keys["num_hidden_layers"]
    types = [d.of(recurrent, recurrent, "full_attention") for _ in range(layers)]
    attends = d.randrange(layers)
    types[attends], types[attends - 1] = "full_attention", recurrent
    return types


def mamba(d, keys):
    """A head's width, the number of heads and of groups of Mamba-2, twice or as often as wide as the stream."""
    expand, groups = d.of(1, 2), d.of(1, 1, 2)
    heads = d.of(*(count for count in (2, 4, 8) if expand * keys["hidden_size"] % count == 0 and count % groups == 0))
    return dict(mamba_expand=expand, mamba_n_heads=heads, mamba_n_groups=groups, mamba_d_head=expand * keys["hidden_size"] // heads,
                mamba_d_state=d.of(4, 8, 12), mamba_d_conv=d.of(2, 3, 4), mamba_chunk_size=d.of(4, 8, 256),
                mamba_proj_bias=d.one_in(2))


def granitemoehybrid(d):
    keys = dividing(grouped(d, "linear", "yarn")) | mixture(d) | factors(d)
    experts = d.of(0, keys["num_local_experts"], keys["num_local_experts"])
    limit = d.of([0.0, float("inf")], [0.5, float("inf")], [0.5, 0.9])
    return keys | mamba(d, keys) | dict(
        num_local_experts=experts, shared_intermediate_size=d.of(8, 20), position_embedding_type=d.of(None, "nope", "rope"),
        layer_types=kinds_of_layers(d, keys, d.of("linear_attention", "mamba")), time_step_limit=limit)


def bamba(d):
    keys = dividing(grouped(d, "linear", "yarn"))
    keys["num_hidden_layers"] = d.randint(2, 4)
    keys["rope_parameters"]["partial_rotary_factor"] = 0.5
    attends = [layer for layer in range(keys["num_hidden_layers"]) if d.one_in(2)][:-1] or None
    limit = d.of([0.0, float("inf")], [0.5, 0.9])
    return keys | mamba(d, keys) | dict(attn_layer_indices=attends, attention_bias=d.one_in(3), mlp_bias=d.one_in(3), time_step_limit=limit)


def falcon_h1(d):
    keys = with_head_dim(grouped(d, "linear", "yarn"), d, 6, 8, 12)
    wide = mamba(d, keys)
    bias, inner = d.one_in(2), d.of(1, 3) * 8
    if d.one_in(3):    # of a width of its own, or twice the stream's
        wide |= dict(mamba_d_ssm=None)
    else:
        wide |= dict(mamba_d_ssm=inner, mamba_d_head=d.of("auto", inner // wide["mamba_n_heads"]))

    def factor():
        return d.of(1.0, 0.5, 1.25, 0.8838834764831844)
    factors = {name: factor() for name in ("key_multiplier", "attention_in_multiplier", "attention_out_multiplier", "ssm_in_multiplier",
                                           "ssm_out_multiplier", "lm_head_multiplier", "embedding_multiplier")}
    lists = dict(mlp_multipliers=[factor(), factor()], ssm_multipliers=[factor() for _ in range(5)])
    return keys | wide | factors | (lists if not d.one_in(4) else {}) | dict(
        mamba_proj_bias=bias, projectors_bias=bias, attention_bias=d.one_in(3), mlp_bias=d.one_in(3), mamba_rms_norm=d.one_in(2),
        mamba_norm_before_gate=d.one_in(2), time_step_limit=d.of([0.0, float("inf")], [0.5, 0.9]))


def lfm2(d):
    keys = with_norm_eps(grouped(d))
    layers = keys["num_hidden_layers"]
    said = dict(layer_types=kinds_of_layers(d, keys, "conv"))
    if d.one_in(2):
        said = dict(full_attn_idxs=[layer for layer in range(layers) if layer and d.one_in(2)])
    if d.one_in(2):
        said |= dict(block_ffn_dim_multiplier=d.of(1.0, 1.5), block_multiple_of=d.of(4, 16))
    return dividing(keys) | said | dict(block_auto_adjust_ff_dim=d.one_in(2), conv_L_cache=d.of(2, 3, 4), conv_bias=d.one_in(2))


def lfm2_moe(d):
    keys = with_norm_eps(grouped(d)) | mixture(d, "num_experts")
    # Transformers divides a gate by itself and 1e-6: one alone would have a gradient, next to nothing.
    return dividing(keys) | dict(
        layer_types=kinds_of_layers(d, keys, "conv"), conv_L_cache=d.of(2, 3, 4), conv_bias=d.one_in(2),
        moe_intermediate_size=d.of(8, 12), num_dense_layers=d.randint(0, 1), use_expert_bias=not d.one_in(3),
        norm_topk_prob=keys["num_experts_per_tok"] > 1 and not d.one_in(4), routed_scaling_factor=d.of(1.0, 2.5))


def lfm3(d):
    keys = with_norm_eps(with_head_dim(grouped(d), d, 8, 12))
    keys["num_hidden_layers"] = d.randint(1, 4)
    kinds = ["conv"] + [d.of("conv", "full_attention", "sliding_attention") for _ in range(keys["num_hidden_layers"] - 1)]
    d.shuffle(kinds)
    full = d.of(dict(rope_type="proportional", rope_theta=1e6, partial_rotary_factor=d.of(0.25, 0.5, 0.75)),
                dict(rope_type="default", rope_theta=1e4))
    rotation = dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=d.of(100.0, 1e4)))
    return keys | dict(rope_parameters=rotation, layer_types=kinds, sliding_window=d.of(1, 3, 4, 7, 30), conv_L_cache=d.of(2, 3, 7),
                       conv_bias=d.one_in(2), attention_bias=d.one_in(3), use_sandwich_norm=not d.one_in(3),
                       use_attention_gate=not d.one_in(3))


def with_norm_eps(keys):
    keys["norm_eps"] = keys.pop("rms_norm_eps")
    return keys


def olmo_hybrid(d):
    keys = dividing(grouped(d, "linear", "yarn"))
    keys["num_hidden_layers"] = d.randint(2, 4)
    if d.one_in(2):
        keys["rope_parameters"] = dict(rope_type="default", rope_theta=None)
    # Transformers writes the convolutions of queries, keys and values as three tensors alike, whatever they are.
    heads, shared, width = d.of(1, 2, 3), d.of(1, 2), d.of(8, 12)
    return keys | dict(
        layer_types=kinds_of_layers(d, keys, "linear_attention"), linear_num_key_heads=heads,
        linear_num_value_heads=heads * shared, linear_key_head_dim=width, linear_value_head_dim=width // shared,
        linear_conv_kernel_dim=d.of(2, 3, 4), linear_allow_neg_eigval=not d.one_in(3), attention_bias=d.one_in(3),
        eos_token_id=None)


def kimi_linear(d):
    keys = deepseek_v3(d)
    for name in ("rope_parameters", "tie_word_embeddings"):    # Transformers ties no head of this family
        del keys[name]
    layers, dense = keys["num_hidden_layers"], keys.pop("first_k_dense_replace")
    types = recurrent_layers(d, keys)
    if d.one_in(3):
        types[-1] = "full_attention"
    return keys | dict(num_local_experts=keys.pop("n_routed_experts"), layer_types=types,
                       mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense), linear_head_dim=d.of(8, 12, 16),
                       linear_num_heads=d.of(1, 2, 3), linear_conv_kernel_dim=d.of(2, 3, 4))


def bailing_hybrid(d):
    keys = deepseek_v3(d)
    del keys["tie_word_embeddings"]    # Transformers ties no head of this family
    layers, dense = keys["num_hidden_layers"], keys.pop("first_k_dense_replace")
    heads = dict(linear_num_heads=d.of(1, 2, 3)) if d.one_in(3) else {}
    types = recurrent_layers(d, keys)
    if "linear_attention" not in types:    # without any it is written as DeepSeek-V3
        types[0] = "linear_attention"
    return keys | heads | dict(
        num_local_experts=keys.pop("n_routed_experts"), layer_types=types, pad_token_id=None,
        eos_token_id=None, mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense), head_dim=d.of(8, 12, 16),
        short_conv_kernel_size=d.of(2, 3, 4), kda_safe_gate=not d.one_in(4), kda_lower_bound=d.of(-5.0, -5.0, -1.0, -0.2))


def glm5_next(d):
    """Sequences end within blocks of keys, some are shorter than one, and some have fewer blocks than are chosen."""
    keys = latent(d) | dict(num_hidden_layers=d.randint(1, 4))
    for name in ("rope_parameters", "qk_rope_head_dim", "first_k_dense_replace", "tie_word_embeddings"):
        del keys[name]
    layers, dense, block = keys["num_hidden_layers"], d.randint(0, 1), d.of(2, 2, 4)
    groups = d.of(1, 1, 2)
    kept, each = d.randint(1, groups), d.of(2, 4)
    types = [kind.replace("full", "indexed") for kind in recurrent_layers(d, keys)]
    return selecting(d, keys | dict(qk_rope_head_dim=6)) | dict(
        qk_rope_head_dim=0, index_topk=block * d.of(1, 2, 3, 8), index_kpool=block, layer_types=types, rms_norm_eps=d.of(1e-5, 1e-2),
        mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense), linear_head_dim=d.of(8, 12, 16), linear_num_heads=d.of(1, 2, 3),
        linear_conv_kernel_dim=d.of(2, 3, 4), linear_lower_bound=d.of(-5.0, -5.0, -0.5, None), hc_mult=d.of(1, 2, 3, 4),
        hc_eps=d.of(1e-6, 1e-3), hc_sinkhorn_iters=d.of(1, 2, 20), swiglu_limit=d.of(0.1, 0.5, 10.0), n_group=groups, topk_group=kept,
        n_routed_experts=groups * each, num_experts_per_tok=d.randint(1, kept * each), norm_topk_prob=not d.one_in(4),
        routed_scaling_factor=d.of(1.0, 2.5))


FAMILIES |= {family.__name__: family for family in (granitemoehybrid, bamba, falcon_h1, lfm2, lfm2_moe, lfm3, olmo_hybrid, kimi_linear, bailing_hybrid,
                                                     glm5_next)}
