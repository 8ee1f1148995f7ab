"""Configurations of runs that train in a moment."""

TINY_MODEL = dict(vocab_size=300, hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
                  kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, n_routed_experts=4,
                  num_experts_per_tok=2, moe_intermediate_size=32)


def word(value):
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def tiny_toml(model, data=None, device=None, name="tiny", output=None, **train):
    """A file of these sections. `model`: {} leaves its section out; what the file should say besides [train]'s keys has
    usual values."""
    sections = {"model": model, "data": {"source": "text.txt", "folder": "prepared", **(data or {})}, "train": train,
                "device": {"threads": 1, **(device or {})}}
    lines = [f"name = {word(name)}"] + ([f"output = {word(output)}"] if output else [])
    for section, keys in sections.items():
        lines += [f"[{section}]", *(f"{key} = {word(value)}" for key, value in keys.items())] if keys else []
    return "\n".join(lines) + "\n"
