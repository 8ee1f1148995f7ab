"""Text models that lie beside a model of pictures, for drawn_models.py: of each family the keys of a small
text_config."""
from drawn_models import FAMILIES, dividing, gemma3_text, grouped, qwen3_attention, some_dense


def shared_places(keys):
    """Places in time and in two directions share the pairs of a head; of text they are one."""
    pairs = keys.get("head_dim", keys["hidden_size"] // keys["num_attention_heads"]) // 2
    keys["rope_parameters"] |= dict(mrope_section=[pairs - 2 * (pairs // 3), pairs // 3, pairs // 3])
    return keys


def qwen2_5_vl(d):
    return shared_places(dividing(grouped(d)))


def qwen3_vl(d):
    return shared_places(qwen3_attention(d))


def qwen3_vl_moe(d):
    keys = qwen3_vl(d)
    experts = d.of(4, 6, 8)
    return keys | dict(num_experts=experts, num_experts_per_tok=d.randint(1, experts), moe_intermediate_size=d.of(10, 14),
                       **some_dense(d, keys))


def gemma3(d):
    """Transformers caps no logits beside a model of pictures."""
    return gemma3_text(d) | dict(final_logit_softcapping=None)


FAMILIES |= {family.__name__: family for family in (qwen2_5_vl, qwen3_vl, qwen3_vl_moe, gemma3)}
