"""Models drawn at random for transformers_test.py: of each family the keys of a small config.json, options varied."""
import random


class Draw(random.Random):
    """Options of a model: of a list, or one time in some."""

    def of(self, *choices):
        return self.choice(choices)

    def one_in(self, count):
        return self.randrange(count) == 0


def common(d):
    return dict(vocab_size=d.randint(30, 90), hidden_size=d.of(16, 24, 32, 40), num_hidden_layers=d.randint(1, 3),
                intermediate_size=d.of(24, 40, 56), rms_norm_eps=d.of(1e-6, 1e-5, 1e-2), max_position_embeddings=64,
                tie_word_embeddings=d.one_in(3), pad_token_id=None)    # whose row Transformers would not train


def scaled(d, *types):
    """rope_parameters: plain half of the time."""
    theta = d.of(100.0, 10000.0, 1e6)
    kind = d.of("default", *types) if types else "default"
    rope = dict(rope_type=kind, rope_theta=theta)
    if kind != "default":
        rope["factor"] = d.of(2.0, 4.0, 8.0)
    if kind in ("yarn", "llama3"):
        rope["original_max_position_embeddings"] = d.of(8, 16)
    if kind == "llama3":
        rope |= dict(low_freq_factor=d.of(0.5, 1.0), high_freq_factor=d.of(2.0, 4.0))
    if kind == "yarn":
        rope |= dict(beta_fast=d.of(4.0, 32.0), beta_slow=d.of(0.05, 1.0))
        if d.one_in(2):
            rope |= dict(mscale=d.of(0.7, 1.0), mscale_all_dim=d.of(0.7, 1.0))
    return rope


def grouped(d, *types):
    kv_heads = d.of(1, 2, 3)
    return common(d) | dict(num_key_value_heads=kv_heads, num_attention_heads=kv_heads * d.of(1, 2, 4),
                            rope_parameters=scaled(d, *types))


def with_head_dim(keys, d, *sizes):
    """Heads wider or narrower than hidden ÷ heads."""
    return keys | dict(head_dim=d.of(*sizes))


def dividing(keys):
    """Heads that share the hidden width."""
    keys["hidden_size"] = keys["num_attention_heads"] * 8
    return keys


def windows(d, keys):
    """Half of the time windows, some wider than any sequence, in the layers behind the first ones."""
    if d.one_in(2):
        return keys
    return keys | dict(use_sliding_window=True, sliding_window=d.of(1, 3, 4, 7, 30),
                       max_window_layers=d.randint(0, keys["num_hidden_layers"]))


def latent(d):
    heads = d.of(1, 2, 4)
    return common(d) | dict(
        num_attention_heads=heads, num_key_value_heads=heads, q_lora_rank=d.of(None, 8, 12), kv_lora_rank=d.of(8, 14),
        qk_nope_head_dim=d.of(4, 6, 8), qk_rope_head_dim=d.of(2, 4, 8), v_head_dim=d.of(4, 6, 10),
        first_k_dense_replace=d.randint(0, 1), moe_intermediate_size=d.of(8, 12), n_shared_experts=d.of(1, 2),
        rope_parameters=scaled(d, "yarn"))


def deepseek_v3(d):
    groups = d.of(1, 2, 4)
    kept = d.randint(1, groups)
    each = d.of(2, 4)
    return latent(d) | dict(n_group=groups, topk_group=kept, n_routed_experts=groups * each,
                            num_experts_per_tok=d.randint(1, kept * each), norm_topk_prob=not d.one_in(4),
                            routed_scaling_factor=d.of(1.0, 2.5))


def hashed_v3(d):
    """Layers that choose experts by token id: some of those with experts, or all, by other scores."""
    keys = deepseek_v3(d) | dict(norm_topk_prob=True, num_hidden_layers=d.randint(2, 3))
    first, last = keys["first_k_dense_replace"] + 1, keys["num_hidden_layers"]
    if d.one_in(2):
        return keys | dict(heddle=dict(num_hash_layers=d.randint(first, last)))
    return keys | dict(scoring_func="softmax", heddle=dict(num_hash_layers=last, softplus_scores=True))


def streams(d, keys):
    """Streams of the residual; epsilons that matter, or the released ones."""
    ours = dict(hyper_connections=d.of(2, 3, 4, 4), hyper_connections_iterations=d.of(1, 2, 5, 20),
                hyper_connections_eps=d.of(1e-6, 1e-3))
    return keys | dict(heddle=keys.get("heddle", {}) | ours)


def streams_v3(d):
    return streams(d, hashed_v3(d) if d.one_in(3) else deepseek_v3(d)) | dict(num_nextn_predict_layers=0)


def streams_llama(d):
    return streams(d, llama(d))


def selecting(d, keys):
    """Keys that an indexer selects, some more than there are. Its heads are many: scores of two keys are never equal,
    of which Transformers would take either."""
    return keys | dict(q_lora_rank=d.of(8, 12), index_topk=d.of(1, 2, 3, 5, 8, 30), index_n_heads=d.of(12, 16),
                       index_head_dim=keys["qk_rope_head_dim"] + d.of(0, 2, 4))


def deepseek_v2(d):
    groups, each = d.of(1, 2, 3, 4), d.of(2, 3)
    kept = d.randint(1, groups)
    return latent(d) | dict(topk_method="greedy" if groups == 1 else "group_limited_greedy", n_group=groups,
                            topk_group=kept, n_routed_experts=groups * each,
                            num_experts_per_tok=d.randint(1, kept * each), norm_topk_prob=False,
                            routed_scaling_factor=d.of(1.0, 1.5))


def qwen3_attention(d):
    return with_head_dim(grouped(d, "yarn"), d, 6, 8, 12) | dict(attention_bias=d.one_in(3))


def qwen3(d):
    return windows(d, qwen3_attention(d))


def some_dense(d, keys):
    """Layers without experts: some of a list, or all but every second, but for one."""
    layers = keys["num_hidden_layers"]
    step = d.of(1, 1, min(2, layers))
    last = layers // step * step - 1    # without experts it is another family
    return dict(decoder_sparse_step=step, mlp_only_layers=[layer for layer in range(layers) if layer != last and d.one_in(3)])


def qwen3_moe(d):
    keys = qwen3_attention(d)
    experts = d.of(4, 6, 8)
    keys |= dict(num_experts=experts, num_experts_per_tok=d.randint(1, experts), norm_topk_prob=d.one_in(2),
                 moe_intermediate_size=d.of(8, 12), **some_dense(d, keys))
    return windows(d, keys)    # of all layers, whatever max_window_layers says


def longrope(d, theta, pairs, **more):
    """Sequences have 5 to 20 tokens: below and above the original length."""
    def factors():
        return [d.uniform(0.8, 4.0) for _ in range(pairs)]
    return dict(rope_type="longrope", rope_theta=theta, short_factor=factors(), long_factor=factors(),
                original_max_position_embeddings=d.of(4, 8, 16, 32)) | more


def llama(d):
    keys = grouped(d, "llama3", "linear", "yarn", "longrope")
    keys = with_head_dim(dividing(keys), d, 4, 6, 8) if d.one_in(2) else dividing(keys)
    rope = keys["rope_parameters"]
    if rope["rope_type"] == "longrope":
        keys["rope_parameters"] = longrope(d, rope["rope_theta"], keys.get("head_dim", 8) // 2,
                                           **d.of({}, dict(factor=rope["factor"]), dict(attention_factor=1.5)))
    return keys | dict(attention_bias=d.one_in(3), mlp_bias=d.one_in(3))


def qwen2(d):
    return windows(d, dividing(grouped(d, "yarn", "linear")))


def mixtral(d):
    experts = d.of(2, 4, 8)
    keys = grouped(d, "linear")
    keys = with_head_dim(keys, d, 6, 8) if d.one_in(2) else dividing(keys)
    return keys | dict(num_local_experts=experts, num_experts_per_tok=d.randint(1, experts),
                       sliding_window=d.of(None, 1, 3, 5, 30))


def mistral(d):
    keys = grouped(d, "yarn", "linear")
    keys = with_head_dim(keys, d, 6, 8) if d.one_in(2) else dividing(keys)
    return keys | dict(sliding_window=d.of(None, 1, 3, 5, 30))


def gpt_oss(d):
    keys = with_head_dim(grouped(d, "yarn"), d, 6, 8, 12)
    if keys["rope_parameters"]["rope_type"] == "yarn":
        keys["rope_parameters"]["truncate"] = d.one_in(2)
    layers, experts = keys["num_hidden_layers"], d.of(4, 6, 8)
    first = d.randint(0, layers)
    types = d.of(None, ["full_attention"] * first + ["sliding_attention"] * (layers - first))
    return keys | dict(num_local_experts=experts, num_experts_per_tok=d.randint(1, experts), layer_types=types,
                       sliding_window=d.of(1, 3, 5, 30), attention_bias=not d.one_in(3),
                       swiglu_limit=d.of(0.3, 1.0, 7.0), swiglu_alpha=d.of(1.702, 1.0, 2.5))


def glm4_moe(d):
    groups = d.of(1, 1, 2)
    each = d.of(2, 4)
    kept = d.randint(1, groups)
    keys = with_head_dim(grouped(d), d, 8, 12, 16)
    keys["rope_parameters"]["partial_rotary_factor"] = d.of(0.5, 0.5, 0.25, 1.0)
    if keys["head_dim"] * keys["rope_parameters"]["partial_rotary_factor"] % 2:
        keys["rope_parameters"]["partial_rotary_factor"] = 0.5
    return keys | dict(n_group=groups, topk_group=kept, n_routed_experts=groups * each,
                       num_experts_per_tok=d.randint(1, kept * each), norm_topk_prob=not d.one_in(4),
                       routed_scaling_factor=d.of(1.0, 2.5), n_shared_experts=d.of(1, 2),
                       moe_intermediate_size=d.of(8, 12), first_k_dense_replace=d.randint(0, 1),
                       attention_bias=d.one_in(2), use_qk_norm=d.one_in(2))


def seed_oss(d):
    return with_head_dim(grouped(d, "yarn", "linear"), d, 6, 8) | dict(
        attention_bias=d.one_in(2), residual_dropout=d.of(0.0, 0.1), attention_dropout=d.of(0.0, 0.1))


def mixture(d, experts="num_local_experts", chosen="num_experts_per_tok"):
    count = d.of(4, 6, 8)
    return {experts: count, chosen: d.randint(1, count)}


def minimax_m2(d):
    keys = with_head_dim(grouped(d), d, 8, 12)
    keys["rope_parameters"]["partial_rotary_factor"] = d.of(0.5, 1.0)
    return keys | mixture(d)


def minimax_m3_vl_text(d):
    """Blocks that sequences end within, one key and more than there are of a block; layers with and without an indexer."""
    keys = with_head_dim(grouped(d), d, 8, 12) | mixture(d)
    keys["rope_parameters"]["partial_rotary_factor"] = d.of(0.5, 0.5, 1.0)
    blocks, layers = d.randint(1, 4), keys["num_hidden_layers"]
    return keys | dict(dense_intermediate_size=d.of(12, 28), shared_intermediate_size=d.of(8, 20), routed_scaling_factor=d.of(1.0, 2.0),
                       swiglu_limit=d.of(0.5, 7.0), swiglu_alpha=d.of(1.0, 1.702), index_n_heads=keys["num_key_value_heads"],
                       index_head_dim=d.of(12, 16), index_block_size=d.of(1, 2, 3, 4, 7), index_topk_blocks=blocks,
                       index_local_blocks=d.randint(0, min(blocks, 2)),
                       layer_types=[d.of("full_attention", "minimax_m3_sparse", "minimax_m3_sparse") for _ in range(layers)],
                       mlp_layer_types=[d.of("dense", "sparse", "sparse") for _ in range(layers)])


def olmo2(d):
    return dividing(grouped(d, "yarn", "linear")) | dict(attention_bias=d.one_in(3))


def olmo3(d):
    keys = by_layer(d, dividing(grouped(d)), "linear", "yarn")
    layers = keys["num_hidden_layers"]
    first = d.randint(0, layers)
    types = d.of(None, ["full_attention"] * first + ["sliding_attention"] * (layers - first))
    return keys | dict(layer_types=types, attention_bias=d.one_in(3))


def flex_olmo(d):
    return dividing(grouped(d, "yarn", "linear")) | mixture(d, "num_experts") | dict(attention_bias=d.one_in(3),
                                                                                    norm_topk_prob=d.one_in(2))


def olmoe(d):
    return dividing(grouped(d, "linear")) | mixture(d, "num_experts") | dict(attention_bias=d.one_in(3),
                                                                            norm_topk_prob=d.one_in(2))


def factors(d):
    return dict(embedding_multiplier=d.of(1.0, 12.0, 0.5), logits_scaling=d.of(1.0, 6.0, 0.7),
                residual_multiplier=d.of(1.0, 0.22), attention_multiplier=d.of(0.2, 0.5, 1.0),
                attention_bias=d.one_in(3))


def granite(d):
    return dividing(grouped(d, "linear", "yarn")) | factors(d) | dict(mlp_bias=d.one_in(3))


def granitemoe(d):
    return dividing(grouped(d, "linear")) | factors(d) | mixture(d)


def granitemoeshared(d):
    return granitemoe(d) | dict(shared_intermediate_size=d.of(0, 8, 20))


def windows_of_granite(d, keys):
    """Windows in all layers but every fourth, or in some order; rotary positions of one base, of two, or of none in some."""
    keys["num_hidden_layers"] += d.of(0, 2)
    layers, plain = keys["num_hidden_layers"], keys["rope_parameters"]["rope_type"] == "default"
    types = d.of(None, [d.of("full_attention", "sliding_attention") for _ in range(layers)])
    words = types or ["sliding_attention" if layer % 4 else "full_attention" for layer in range(layers)]
    bases = dict(full_attention=d.of(100.0, 1e4), sliding_attention=d.of(10.0, 1e4))
    thetas = [bases["full_attention" if not plain else word] * d.of(0, 1, 1) for word in words]
    return keys | dict(sliding_window=d.of(1, 3, 5, 30), layer_types=types, layer_rope_theta=d.of(None, thetas))


def granite_swa(d):
    return windows_of_granite(d, granite(d))


def granitemoe_swa(d):
    return windows_of_granite(d, granitemoeshared(d))


def cohere(d):
    keys = dividing(grouped(d, "linear", "yarn"))
    keys["layer_norm_eps"] = keys.pop("rms_norm_eps")
    return keys | dict(logit_scale=d.of(0.0625, 0.25, 1.0, 1.7), attention_bias=d.one_in(3))


def cohere2(d):
    keys = cohere(d)
    layers, every = keys["num_hidden_layers"] + 1, d.of(1, 2, 3, 4)
    types = d.of(None, [d.of("full_attention", "sliding_attention") for _ in range(layers)],
                 ["sliding_attention" if layer % every else "full_attention" for layer in range(1, layers + 1)])
    return keys | dict(num_hidden_layers=layers, sliding_window=d.of(1, 3, 5, 30), layer_types=types)


def cohere2_moe(d):
    keys = with_head_dim(grouped(d, "linear", "yarn"), d, 6, 8) | mixture(d, "num_experts")
    layers, every = keys["num_hidden_layers"] + 1, d.of(1, 2, 3, 4)
    keys |= dict(num_hidden_layers=layers, layer_norm_eps=d.of(1e-5, 1e-2), logit_scale=d.of(0.0625, 0.25, 1.7),
                 sliding_window=d.of(1, 3, 5, 30), attention_bias=d.one_in(3), num_shared_experts=d.of(0, 1, 2),
                 shared_expert_combination_strategy=d.of("average", "sum"), expert_selection_fn=d.of("softmax", "sigmoid"),
                 norm_topk_prob=not d.one_in(3), prefix_dense_sliding_window_pattern=d.of(1, 1, 2),
                 sliding_window_pattern=every, prefix_dense_intermediate_size=d.of(None, 24, 40))
    if d.one_in(2):
        del keys["rms_norm_eps"]
    if d.one_in(2):
        return keys | dict(first_k_dense_replace=d.randint(0, layers - 1))
    kinds = [d.of("dense", "sparse") for _ in range(layers - 1)]
    kinds.insert(d.randint(0, layers - 1), "sparse")    # without experts it is another family
    return keys | dict(mlp_layer_types=kinds, layer_types=[d.of("full_attention", "sliding_attention") for _ in range(layers)])


def llama4_text(d):
    keys = with_head_dim(grouped(d, "llama3", "linear"), d, 6, 8)
    layers, every = keys["num_hidden_layers"] + d.of(0, 2), d.of(1, 2, 3, 4)
    rope = keys["rope_parameters"]
    if rope["rope_type"] == "llama3" and d.one_in(2):
        rope |= dict(low_freq_factor=1.0, high_freq_factor=1.0)    # as Scout has it
    keys |= dict(
        num_hidden_layers=layers, intermediate_size=d.of(8, 12), intermediate_size_mlp=d.of(24, 40),
        num_local_experts=d.of(2, 4, 8), num_experts_per_tok=1, use_qk_norm=not d.one_in(3), attention_bias=d.one_in(3),
        interleave_moe_layer_step=d.of(1, 1, min(2, layers)), no_rope_layer_interval=every,
        attention_chunk_size=d.of(None, 1, 3, 4, 30), attn_temperature_tuning=not d.one_in(3), floor_scale=d.of(1, 3, 8192),
        attn_scale=d.of(0.1, 0.7))
    if d.one_in(3):
        keys["no_rope_layers"] = [d.of(0, 1) for _ in range(layers)]
    if d.one_in(3):    # without experts it is another family
        keys["moe_layers"] = sorted({d.randrange(layers) for _ in range(layers)})
    return keys


def ernie4_5(d):
    return with_head_dim(grouped(d, "linear"), d, 6, 8)


def ernie4_5_moe(d):
    keys = dividing(grouped(d, "linear"))
    layers = keys["num_hidden_layers"]
    step = d.of(1, 1, min(2, layers))
    last = layers // step * step - 1    # without experts it is another family
    return keys | mixture(d, "moe_num_experts", "moe_k") | dict(
        moe_num_shared_experts=d.of(0, 1, 2), moe_intermediate_size=d.of(8, 12), moe_layer_interval=step,
        moe_layer_start_index=d.randint(0, last), moe_layer_end_index=d.of(-1, last))


def sigmoid_router(d, experts="n_routed_experts"):
    return mixture(d, experts) | dict(moe_intermediate_size=d.of(8, 12))


def dots1(d):
    keys = with_head_dim(grouped(d, "yarn", "linear"), d, 6, 8)
    keys |= sigmoid_router(d) | dict(
        attention_bias=d.one_in(3), n_shared_experts=d.of(1, 2), first_k_dense_replace=d.randint(0, 1),
        norm_topk_prob=not d.one_in(4), routed_scaling_factor=d.of(1.0, 2.5), sliding_window=None)
    if d.one_in(2):
        keys |= dict(sliding_window=d.of(1, 3, 7, 30), max_window_layers=d.randint(0, keys["num_hidden_layers"]))
    return keys


def bailing_moe(d):
    keys = with_head_dim(grouped(d), d, 8, 12)
    groups = d.of(2, 4)
    kept, each = d.randint(1, groups), d.of(2, 3)
    rope = keys.pop("rope_parameters")
    if d.one_in(3):
        keys["rope_scaling"] = dict(type="linear", factor=d.of(2.0, 4.0))
    return keys | dict(
        rope_theta=rope["rope_theta"], partial_rotary_factor=0.5, use_qkv_bias=d.one_in(3),
        num_experts=groups * each, num_experts_per_tok=d.randint(1, kept * each), n_group=groups, topk_group=kept,
        num_shared_experts=d.of(0, 1, 2), moe_intermediate_size=d.of(8, 12), routed_scaling_factor=d.of(1.0, 2.5),
        first_k_dense_replace=d.randint(0, keys["num_hidden_layers"] - 1))    # without experts it is another family


def step3p5(d):
    keys = with_head_dim(grouped(d), d, 8, 12)
    layers, heads = keys["num_hidden_layers"], keys["num_attention_heads"]
    keys["num_attention_groups"] = keys.pop("num_key_value_heads")
    rope = keys.pop("rope_parameters")
    dense, last = d.randint(0, layers - 1), d.randint(0, layers)    # without experts it is another family
    types = d.of(["full_attention"] * layers, [d.of("full_attention", "sliding_attention")] * layers,
                 (["full_attention"] + ["sliding_attention"] * 3)[:layers])
    limit = d.of(0.0, 0.3, 1.0)
    full = dict(rope_type="default", rope_theta=rope["rope_theta"], partial_rotary_factor=d.of(0.5, 1.0))
    if d.one_in(3):
        full |= dict(rope_type="llama3", factor=2.0, original_max_position_embeddings=16, low_freq_factor=1.0,
                     high_freq_factor=4.0)
    window = dict(rope_type="default", rope_theta=d.of(10.0, 1e4), partial_rotary_factor=d.of(0.5, 1.0))
    return keys | dict(
        pad_token_id=0, layer_types=types, sliding_window=d.of(1, 3, 5, 30),
        rope_parameters={kind: rope for kind, rope in (("full_attention", full), ("sliding_attention", window)) if kind in types},
        num_sliding_attention_heads=heads * d.of(1, 2), mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense),
        n_routed_experts=(experts := d.of(4, 6, 8)), num_experts_per_tok=d.randint(1, experts),
        moe_intermediate_size=d.of(8, 12), share_expert_dim=d.of(8, 20), moe_router_scaling_factor=d.of(1.0, 3.0),
        swiglu_limits=[0.0] * last + [limit] * (layers - last),
        swiglu_limits_shared=[0.0] * (layers - last) + [d.of(0.0, 0.5)] * last)


def hy_v3(d):
    keys = with_head_dim(grouped(d, "yarn", "linear"), d, 6, 8) | sigmoid_router(d, "num_experts")
    dense = d.randint(0, 1)
    return keys | dict(attention_bias=d.one_in(3), num_shared_experts=d.of(1, 2), router_scaling_factor=d.of(1.0, 2.8),
                       mlp_layer_types=["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense))


def hunyuan_v1_dense(d):
    keys = with_head_dim(grouped(d, "linear"), d, 6, 8)
    alpha = dict(rope_parameters=dict(rope_type="dynamic", rope_theta=100.0, alpha=8.0, factor=1.0)) if d.one_in(2) else {}
    return keys | alpha | dict(attention_bias=d.one_in(3))


def solar_open(d):
    keys = glm4_moe(d)
    for name in ("first_k_dense_replace", "use_qk_norm", "intermediate_size"):
        del keys[name]
    del keys["rope_parameters"]["partial_rotary_factor"]
    return keys


def cwm(d):
    keys = with_head_dim(dividing(grouped(d, "llama3")), d, 6, 8)
    layers = keys["num_hidden_layers"]
    first = d.randint(0, layers)
    types = d.of(None, ["full_attention"] * first + ["sliding_attention"] * (layers - first))
    return keys | dict(layer_types=types, sliding_window=d.of(1, 3, 5, 30))


def smollm3(d):
    keys = grouped(d, "llama3", "linear", "yarn")
    keys["num_attention_heads"] *= 2 if keys["num_attention_heads"] < 4 else 1
    keys = dividing(keys)
    keys["num_hidden_layers"] += 1
    layers, every = keys["num_hidden_layers"], d.of(1, 2, 3, 4)
    return keys | dict(no_rope_layers=d.of(None, [int(layer % every != 0) for layer in range(1, layers + 1)]),
                       no_rope_layer_interval=d.of(2, 3), attention_bias=d.one_in(3), mlp_bias=d.one_in(3))


def exaone4(d):
    keys = with_head_dim(grouped(d, "llama3", "linear"), d, 6, 8)
    if d.one_in(3):
        return keys | dict(sliding_window=None, layer_types=["full_attention"] * keys["num_hidden_layers"])
    every = d.of(1, 2, 3, 4)
    types = ["sliding_attention" if layer % every else "full_attention"
             for layer in range(1, keys["num_hidden_layers"] + 1)]
    return keys | dict(sliding_window=d.of(1, 3, 5, 30), layer_types=types, sliding_window_pattern=every)


def phi3(d):
    keys = dividing(grouped(d)) | dict(sliding_window=d.of(None, 1, 3, 5, 30))
    part = d.of(1.0, 0.75, 0.5)
    if d.one_in(2):
        rope = longrope(d, keys["rope_parameters"]["rope_theta"], int(4 * part),
                        **d.of({}, dict(factor=8.0), dict(attention_factor=1.5)))
        rope["rope_type"] = d.of("longrope", "su", "yarn")    # old names
        keys |= dict(rope_parameters=rope, original_max_position_embeddings=rope["original_max_position_embeddings"])
    keys["rope_parameters"]["partial_rotary_factor"] = part
    return keys


def hunyuan_v1_moe(d):
    keys = with_head_dim(grouped(d, "linear"), d, 6, 8) | mixture(d, "num_experts", "moe_topk")
    if d.one_in(2):
        keys["rope_parameters"] = dict(rope_type="dynamic", rope_theta=100.0, alpha=8.0, factor=1.0)
    return keys | dict(attention_bias=d.one_in(3))


def by_layer(d, keys, *types, partial=()):
    """Windows in most layers, and rotary positions of their own there."""
    full, window = scaled(d, *types), scaled(d)
    if partial:
        full["partial_rotary_factor"] = window["partial_rotary_factor"] = d.of(*partial)
    return keys | dict(rope_parameters=dict(full_attention=full, sliding_attention=window),
                       sliding_window=d.of(1, 3, 5, 30), layer_types=None)


def gemma3_text(d):
    keys = by_layer(d, with_head_dim(dividing(grouped(d)), d, 6, 8), "linear")
    layers = keys["num_hidden_layers"]
    first = d.randint(0, layers)
    types = d.of(None, ["full_attention"] * first + ["sliding_attention"] * (layers - first))
    return keys | dict(layer_types=types, query_pre_attn_scalar=d.of(8, 20, 256), attention_bias=d.one_in(3),
                       final_logit_softcapping=d.of(None, 0.5, 30.0), sliding_window_pattern=d.of(2, 3, 6))


def gemma(d):
    keys = with_head_dim(dividing(grouped(d)), d, 6, 8)
    return keys | dict(attention_bias=d.one_in(3), hidden_act="gelu_pytorch_tanh")


def gemma2(d):
    keys = with_head_dim(dividing(grouped(d, "linear")), d, 6, 8)
    layers = keys["num_hidden_layers"]
    first = d.randint(0, layers)
    types = d.of(None, ["full_attention"] * first + ["sliding_attention"] * (layers - first))
    return keys | dict(layer_types=types, sliding_window=d.of(1, 3, 5, 30), query_pre_attn_scalar=d.of(8, 20, 256),
                       attention_bias=d.one_in(3), attn_logit_softcapping=d.of(None, 0.2, 1.0, 50.0),
                       final_logit_softcapping=d.of(None, 0.5, 30.0))


def gemma4_text(d):
    keys = with_head_dim(grouped(d), d, 4, 6, 8)
    experts, shares, every = d.one_in(2), d.one_in(2), d.of(1, 2, 3)
    layers = max(every, d.randint(1, 3) // every * every)    # the last has full attention
    embedded, sharing = d.of(0, 8, 12), 0
    if shares and not experts:    # Transformers reads the embeddings of layers where some share keys
        every, embedded = d.of(1, 2), d.of(8, 12)
        layers = 2 * every
        sharing = d.randint(1, every)
    full = dict(rope_type="proportional", rope_theta=d.of(100.0, 1e6), partial_rotary_factor=d.of(0.5, 1.0))
    if d.one_in(3):
        full["factor"] = d.of(2.0, 8.0)
    keys |= dict(
        num_hidden_layers=layers, sliding_window=d.of(1, 3, 5, 30), global_head_dim=d.of(4, 8, 12),
        layer_types=["sliding_attention" if layer % every else "full_attention" for layer in range(1, layers + 1)],
        rope_parameters=dict(full_attention=full, sliding_attention=dict(rope_type="default", rope_theta=d.of(10.0, 1e4))),
        attention_k_eq_v=d.one_in(2), num_global_key_value_heads=d.of(None, 1, keys["num_key_value_heads"]),
        attention_bias=d.one_in(3), final_logit_softcapping=d.of(None, 0.5, 30.0), hidden_size_per_layer_input=embedded,
        vocab_size_per_layer_input=keys["vocab_size"], use_bidirectional_attention=d.of(None, "vision"))
    if not experts:
        return keys | dict(num_kv_shared_layers=sharing, use_double_wide_mlp=d.one_in(2))
    count = d.of(4, 6, 8)    # the factor of one expert alone is nothing to the norm behind it
    return keys | dict(enable_moe_block=True, num_experts=count, top_k_experts=d.randint(2, count),
                       moe_intermediate_size=d.of(8, 12))


def gemma4_unified_text(d):
    keys = gemma4_text(d)
    for name in ("hidden_size_per_layer_input", "vocab_size_per_layer_input", "enable_moe_block", "num_experts",
                 "top_k_experts", "moe_intermediate_size"):
        keys.pop(name, None)
    return keys


def mimo_v2_flash(d):
    keys = by_layer(d, with_head_dim(grouped(d), d, 8, 12), partial=(0.5, 1.0))
    keys["num_attention_heads"] = 2 * keys["num_key_value_heads"] * d.of(1, 2)    # windows have twice the heads of keys
    dense = d.randint(0, 1)
    return keys | sigmoid_router(d) | dict(
        v_head_dim=d.of(4, 6, 8), attention_value_scale=d.of(None, 0.707), attention_bias=d.one_in(3),
        routed_scaling_factor=d.of(1.0, 2.5), norm_topk_prob=not d.one_in(4),
        mlp_layer_types=["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense))


def shared_gate(d):
    return mixture(d, "num_experts") | dict(moe_intermediate_size=d.of(8, 12), norm_topk_prob=d.one_in(2),
                                            shared_expert_intermediate_size=d.of(8, 20))


def qwen2_moe(d):
    keys = dividing(grouped(d, "linear", "yarn"))
    return keys | shared_gate(d) | some_dense(d, keys) | dict(qkv_bias=not d.one_in(3))


def qwen3_next(d):
    keys = with_head_dim(grouped(d), d, 8, 16)
    keys["rope_parameters"]["partial_rotary_factor"] = d.of(0.25, 0.5, 1.0)
    types = recurrent_layers(d, keys)
    heads = d.of(1, 2, 3)
    return keys | shared_gate(d) | dict(
        layer_types=types,
        linear_num_key_heads=heads, linear_num_value_heads=heads * d.of(1, 2, 3), linear_key_head_dim=d.of(8, 12, 16),
        linear_value_head_dim=d.of(8, 12, 20), linear_conv_kernel_dim=d.of(2, 3, 4))


def qwen3_5(d):
    return qwen3_next(d) | dict(rms_norm_eps=d.of(1e-4, 1e-2))    # roundings of a head's small output are magnified


def qwen3_5_text(d):
    keys = qwen3_5(d)
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
                 "shared_expert_intermediate_size"):
        del keys[name]
    if d.one_in(2):
        keys["rope_parameters"] |= dict(mrope_section=[1, 1, 0], mrope_interleaved=True)
    return keys


def qwen3_5_moe_text(d):
    keys = qwen3_5(d)
    for name in ("intermediate_size", "norm_topk_prob"):
        del keys[name]
    return keys


def qwen4_exp_text(d):
    """Streams, and embeddings of n-grams in some layers. The token that ends an n-gram is one that is drawn often."""
    keys = qwen3_5(d)
    del keys["intermediate_size"]
    if d.one_in(3):
        keys["layer_types"] = ["linear_attention"] * keys["num_hidden_layers"]
    recurrent = [layer for layer, kind in enumerate(keys["layer_types"], 1) if kind == "linear_attention"]
    if "full_attention" in keys["layer_types"]:
        ratio = d.of(1, 2, 3)
        # Blocks to which no head gives a score are alike: with few heads there are such, and Transformers takes any of them.
        keys |= dict(indexer_n_heads=d.of(4, 6), indexer_kv_heads=1, indexer_head_dim=d.of(16, 20), indexer_compress_ratio=ratio,
                     indexer_budget=ratio * d.of(1, 2, 4))
        if d.one_in(2):    # the word of Transformers, in place of that of released files
            keys["layer_types"] = [kind.replace("full", "indexed") for kind in keys["layer_types"]]
    keys |= dict(hc_count=d.of(2, 3, 4), hc_lowrank=d.of(4, 6, 10),
                 output_gate_type=d.of(None, "silu", "sigmoid"), vocab_size=d.randint(12, 60))
    if not recurrent or d.one_in(4):
        return keys
    size, heads = d.of(2, 3, 3, 4), d.of(1, 2, 4)
    return keys | dict(
        ple_layer_ids=sorted(d.sample(recurrent, d.randint(1, len(recurrent)))), ngram_size=size, heads_per_ngram=heads,
        ple_embed_dim=(size - 1) * heads * d.of(2, 4, 5), ple_conv_kernel_size=d.of(1, 2, 4), ngram_vocab_size_base=d.of(5, 20, 50),
        make_ngram_vocab_size_divisible_by=d.of(1, 8, 128), seed=d.of(0, 1234), split_ngram_parts=d.of(1, 3, 7),
        eos_token_id=d.of(2, 5, [3, 4]))


def recurrent_layers(d, keys):
    """A word a layer: every so many-th has attention, or any has."""
    if d.one_in(3):
        return [d.of("linear_attention", "full_attention") for _ in range(keys["num_hidden_layers"])]
    every = d.of(1, 2, 2, 3, 4)
    return ["linear_attention" if layer % every else "full_attention"
            for layer in range(1, keys["num_hidden_layers"] + 1)]


def minimax(d):
    keys = with_head_dim(grouped(d, "linear", "yarn"), d, 6, 8, 12) | mixture(d)
    keys["num_attention_heads"] = keys["num_key_value_heads"] = d.of(1, 2, 4)    # of slopes alike everywhere
    if d.one_in(2):
        keys["num_attention_heads"], keys["num_key_value_heads"] = 4, d.of(1, 2)
    return keys | dict(layer_types=recurrent_layers(d, keys), block_size=d.of(2, 4, 256), sliding_window=None) | {
        f"{block}_{letter}_factor": d.of(1.0, 1.0, 3.5, 0.7) for block in ("full_attn", "linear_attn", "mlp")
        for letter in ("alpha", "beta")}


def nemotron_h(d):
    keys = with_head_dim(grouped(d), d, 6, 8) | sigmoid_router(d)
    for name in ("rope_parameters", "num_hidden_layers", "tie_word_embeddings"):    # Transformers ties no head of this family
        del keys[name]
    keys["layer_norm_epsilon"] = keys.pop("rms_norm_eps")
    blocks = [d.of("linear_attention", "linear_attention", "full_attention", "mlp", "moe") for _ in range(d.randint(1, 5))]
    groups, least = d.of(1, 2, 3), d.of(1e-9, 0.5, 0.9)    # Transformers bounds steps by the first of these, always
    return keys | dict(
        layers_block_type=blocks, mamba_num_heads=groups * d.of(1, 2, 3), n_groups=groups, mamba_head_dim=d.of(4, 6, 8),
        ssm_state_size=d.of(4, 8, 12), conv_kernel=d.of(2, 3, 4), chunk_size=d.of(4, 8, 256), time_step_min=least,
        time_step_limit=[least, float("inf")], use_mamba_kernels=False, mlp_hidden_act="relu2",
        moe_shared_expert_intermediate_size=d.of(8, 20), moe_latent_size=d.of(None, None, 12),
        norm_topk_prob=not d.one_in(4), routed_scaling_factor=d.of(1.0, 2.5))


def gpt2(d):
    heads = d.of(1, 2, 3, 4)
    return dict(vocab_size=d.randint(30, 90), n_embd=heads * d.of(4, 6, 8, 12), n_layer=d.randint(1, 3), n_head=heads,
                n_positions=d.of(24, 64), n_inner=d.of(None, 24, 40),
                activation_function=d.of("gelu_new", "gelu_pytorch_tanh", "gelu"), layer_norm_epsilon=d.of(1e-5, 1e-2),
                tie_word_embeddings=not d.one_in(3), resid_pdrop=d.of(0.0, 0.1), embd_pdrop=d.of(0.0, 0.2),
                attn_pdrop=d.of(0.0, 0.1))


def longcat_flash(d):
    keys = latent(d)
    for name in ("num_hidden_layers", "intermediate_size", "first_k_dense_replace", "moe_intermediate_size", "n_shared_experts"):
        del keys[name]
    experts, without = d.of(4, 6, 8), d.of(0, 2, 3, 8)
    return keys | dict(
        num_layers=d.randint(1, 2), ffn_hidden_size=d.of(24, 40), q_lora_rank=d.of(8, 12), head_dim=keys["qk_rope_head_dim"],
        n_routed_experts=experts, zero_expert_num=without, moe_topk=d.randint(1, experts + without // 2),
        expert_ffn_hidden_size=d.of(8, 12), routed_scaling_factor=d.of(1.0, 6.0))


def phimoe(d):
    keys = grouped(d)
    keys = with_head_dim(keys, d, 6, 8) if d.one_in(2) else dividing(keys)
    if d.one_in(2):    # Transformers scales by length, but divides by the short factors always; the released code does not
        rope = longrope(d, keys["rope_parameters"]["rope_theta"], keys.get("head_dim", 8) // 2, short_mscale=d.of(0.9, 1.2),
                        long_mscale=d.of(1.1, 1.3))
        keys["rope_parameters"] = rope | dict(long_factor=rope["short_factor"])
    return keys | dict(num_local_experts=d.of(2, 4, 8), num_experts_per_tok=2, sliding_window=d.of(None, 1, 3, 5, 30),
                       attention_bias=d.one_in(2), lm_head_bias=d.one_in(2), router_jitter_noise=d.of(0.01, 0.2, 0.5))


def windows_of_most(d, keys):
    """All layers but every n-th have a window."""
    layers, every = keys["num_hidden_layers"], d.of(1, 2, 2, 3, 4)
    types = ["sliding_attention" if layer % every else "full_attention" for layer in range(1, layers + 1)]
    return keys | dict(sliding_window=d.of(1, 3, 5, 30), layer_types=types)


def exaone_moe(d):
    keys = windows_of_most(d, with_head_dim(grouped(d, "linear", "llama3"), d, 6, 8))
    groups, each = d.of(1, 1, 2), d.of(2, 4)
    kept, dense = d.randint(1, groups), d.randint(0, 1)
    return keys | dict(
        num_experts=groups * each, num_experts_per_tok=d.randint(1, kept * each), n_group=groups, topk_group=kept,
        moe_intermediate_size=d.of(8, 12), num_shared_experts=d.of(1, 2), norm_topk_prob=not d.one_in(4),
        routed_scaling_factor=d.of(1.0, 2.5),
        mlp_layer_types=["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense))


def afmoe(d):
    keys = windows_of_most(d, with_head_dim(grouped(d, "linear", "yarn"), d, 6, 8)) | sigmoid_router(d, "num_experts")
    return keys | dict(num_dense_layers=d.randint(0, keys["num_hidden_layers"] - 1), num_shared_experts=d.of(1, 2),
                       route_scale=d.of(1.0, 2.826), mup_enabled=d.one_in(2), attention_bias=d.one_in(3))


def rotation_by_kind(d, full, types):
    """Each kind of layer has a base and a part of a head of its own; full attention may be stretched."""
    window = dict(rope_type="default", rope_theta=d.of(10.0, 1e4), partial_rotary_factor=d.of(0.5, 1.0))
    full = full | dict(partial_rotary_factor=d.of(0.5, 1.0))
    return {kind: rope for kind, rope in (("full_attention", full), ("sliding_attention", window)) if kind in types}


def laguna(d):
    keys = with_head_dim(grouped(d, "yarn", "linear"), d, 8, 12)
    layers, heads, dense = keys["num_hidden_layers"], keys["num_attention_heads"], d.randint(0, 1)
    every = d.of(1, 2, 4)
    types = ["sliding_attention" if layer % every else "full_attention" for layer in range(layers)]
    if d.one_in(4):
        types = ["full_attention"] * layers
    window_heads = heads * d.of(1, 2)
    return keys | sigmoid_router(d, "num_experts") | dict(
        layer_types=types, sliding_window=d.of(1, 3, 5, 30), rope_parameters=rotation_by_kind(d, keys["rope_parameters"], types),
        num_attention_heads_per_layer=[heads if kind == "full_attention" else window_heads for kind in types],
        gating=d.of(True, "per-head", "per-element"), attention_bias=d.one_in(3),
        mlp_layer_types=["dense"] * dense + ["sparse"] * (layers - dense), shared_expert_intermediate_size=d.of(8, 20),
        moe_routed_scaling_factor=d.of(1.0, 2.5), moe_router_logit_softcapping=d.of(0.0, 0.5, 3.0))


def mellum(d):
    keys = windows_of_most(d, with_head_dim(grouped(d, "yarn", "linear"), d, 8, 12)) | mixture(d, "num_experts")
    dense = d.randint(0, 1)
    rotation = rotation_by_kind(d, keys["rope_parameters"], keys["layer_types"])
    for kind in rotation.values():
        del kind["partial_rotary_factor"]
    return keys | dict(rope_parameters=rotation, attention_bias=d.one_in(3), moe_intermediate_size=d.of(8, 12), norm_topk_prob=d.one_in(2),
                       mlp_layer_types=["dense"] * dense + ["sparse"] * (keys["num_hidden_layers"] - dense))


def sarvam_moe(d):
    keys = glm4_moe(d) | dict(use_qk_norm=True)
    del keys["rope_parameters"]["partial_rotary_factor"]
    return keys


def kolibri1(d):
    keys = windows_of_most(d, with_head_dim(grouped(d, "linear", "yarn"), d, 6, 8))
    del keys["intermediate_size"]
    return keys | sigmoid_router(d, "num_experts") | dict(shared_expert_intermediate_size=d.of(8, 20), norm_topk_prob=d.one_in(2))


def glm(d):
    keys = with_head_dim(grouped(d), d, 8, 12, 16)
    keys["rope_parameters"]["partial_rotary_factor"] = d.of(0.5, 0.5, 1.0)
    return keys | dict(attention_bias=not d.one_in(3))


def glm4(d):
    return glm(d)


FAMILIES = {family.__name__: family for family in
            (deepseek_v2, deepseek_v3, hashed_v3, streams_v3, streams_llama, qwen3, qwen3_moe, llama, qwen2, mistral,
             mixtral, glm4_moe, gpt_oss, gpt2, qwen3_next, qwen3_5_text, qwen3_5_moe_text, minimax_m2,
             minimax_m3_vl_text, gemma, gemma2, gemma3_text, gemma4_text, gemma4_unified_text, olmoe, olmo2,
             olmo3, flex_olmo, hunyuan_v1_dense, solar_open, cwm, phi3, smollm3, exaone4, seed_oss, granite,
             granitemoe, granitemoeshared, granite_swa, granitemoe_swa, cohere, cohere2, cohere2_moe,
             llama4_text, ernie4_5, ernie4_5_moe, minimax,
             nemotron_h, bailing_moe, step3p5, dots1, hy_v3, hunyuan_v1_moe, mimo_v2_flash, qwen2_moe,
             longcat_flash, phimoe, exaone_moe, afmoe, laguna, mellum, sarvam_moe, kolibri1, glm4, glm,
             qwen4_exp_text)}
