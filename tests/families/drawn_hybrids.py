"""Models with Mamba-2, the gated delta rule or short convolutions beside attention, in any order of layers, for
drawn_models.py: of each family the keys of a small config.json."""
from drawn_models import FAMILIES, dividing, factors, grouped, mixture


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


FAMILIES |= {family.__name__: family for family in (granitemoehybrid, lfm2, lfm2_moe, olmo_hybrid)}
