"""What heddle.tap needs to tap a GPTModel of Megatron-Core (tried with 0.16.1).

    from heddle.megatron_tap import megatron
    from heddle.tap import Tap

    tap = Tap("dump", model, **megatron(model), config=config, sequence_length=32, microbatches=2)

Where heddle is not installed, copy this file and tap.py beside the trainer. docs/howto/check.md has the rest.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Dict, List, Optional

from torch import Tensor, nn

try:
    from .tap import Piece
except ImportError:  # copied beside a trainer
    from tap import Piece  # type: ignore[import-not-found, no-redef]

_MEGATRON = [
    (r"^(module\.)+", ""),
    (r"^embedding\.word_embeddings\.weight$", "model.embed_tokens.weight"),
    (r"^embedding$", "model.embed_tokens"),
    (r"^decoder\.final_layernorm", "model.norm"),
    (r"^output_layer", "lm_head"),
    (r"^decoder\.layers\.", "model.layers."),
    (r"\.self_attention\.linear_proj", ".self_attn.o_proj"),
    (r"\.self_attention\.linear_qkv", ".self_attn.qkv_proj"),
    (r"\.self_attention\.core_attention", ".self_attn.core_attention"),
    (r"\.self_attention\.([qk])_layernorm", r".self_attn.\1_norm"),
    (r"\.pre_mlp_layernorm", ".post_attention_layernorm"),
    (r"\.mlp\.router\.weight$", ".mlp.gate.weight"),  # the module gives out probabilities
    (r"\.mlp\.experts$", ".mlp.sent_tokens"),  # rows as they were exchanged, ahead of the sum
    (r"\.linear_fc1", ".gate_up_proj"),
    (r"\.linear_fc2", ".down_proj"),
]


def megatron(model: nn.Module) -> Dict[str, Any]:
    """Arguments of Tap for a GPTModel: Tap(folder, model, **megatron(model), config=…, …).

    Grouped-query attention, dense layers, and experts one by one (SequentialMLP) are known. One chunk a pipeline rank.
    """
    state = importlib.import_module("megatron.core.parallel_state")

    config: Any = model.config
    mesh = {
        "tp": state.get_tensor_model_parallel_world_size(), "cp": state.get_context_parallel_world_size(),
        "dp": state.get_data_parallel_world_size(), "pp": state.get_pipeline_model_parallel_world_size(),
    }
    at = {
        "tp": state.get_tensor_model_parallel_rank(), "cp": state.get_context_parallel_rank(),
        "dp": state.get_data_parallel_rank(), "pp": state.get_pipeline_model_parallel_rank(),
    }
    if config.num_moe_experts:
        mesh.update(ep=state.get_expert_model_parallel_world_size(), etp=state.get_expert_tensor_parallel_world_size())
        at.update(ep=state.get_expert_model_parallel_rank(), etp=state.get_expert_tensor_parallel_rank(),
                  edp=state.get_expert_data_parallel_rank())
    layers = [layer.layer_number - 1 for name, layer in model.named_modules() if re.search(r"decoder\.layers\.\d+$", name)]
    groups, width = config.num_query_groups or config.num_attention_heads, config.kv_channels
    each = config.num_attention_heads // groups  # heads of queries in a group
    tied = model.share_embeddings_and_output_weights  # the last stage then has the embedding as its head

    def rename(name: str) -> str:
        for pattern, text in _MEGATRON:
            name = re.sub(pattern, text, name)
        if tied:
            name = re.sub(r"^lm_head\.weight$", "model.embed_tokens.weight", name)
        name = re.sub(r"^model\.layers\.(\d+)", lambda found: f"model.layers.{layers[int(found[1])]}", name)
        own = (config.num_moe_experts or 0) // mesh.get("ep", 1)
        return re.sub(r"experts\.local_experts\.(\d+)", lambda found: f"experts.{at['ep'] * own + int(found[1])}", name)

    def pieces(name: str, parameter: Tensor) -> Optional[List[Piece]]:
        axis = "etp" if ".experts." in name else "tp"
        of, box = list(parameter.shape), [[0, dim] for dim in parameter.shape]
        if getattr(parameter, "tensor_model_parallel", False):
            dim = parameter.partition_dim  # type: ignore[attr-defined]
            box[dim] = [at[axis] * of[dim], (at[axis] + 1) * of[dim]]
            of[dim] *= mesh[axis]
        if ".qkv_proj." in name:
            block = (each + 2) * width

            def part(word: str, first: int, heads: int) -> Piece:
                rows = groups * heads * width

                def take(local: Tensor) -> Tensor:
                    by_group = local.reshape(local.shape[0] // block, each + 2, width, *local.shape[1:])
                    return by_group[:, first : first + heads].reshape(-1, *local.shape[1:])

                begin, end = (edge * rows // of[0] for edge in box[0])
                return Piece(name.replace("qkv_proj", word), [rows, *of[1:]], [[begin, end], *box[1:]], take)

            return [part("q_proj", 0, each), part("k_proj", each, 1), part("v_proj", each + 1, 1)]
        if ".gate_up_proj." in name:
            if not config.gated_linear_unit:
                return [Piece(name.replace("gate_up_proj", "up_proj"), of, list(box))]
            begin, end = (edge // 2 for edge in box[0])

            def half(word: str, number: int) -> Piece:
                return Piece(name.replace("gate_up_proj", word), [of[0] // 2, *of[1:]], [[begin, end], *box[1:]],
                             lambda local: local.chunk(2)[number])

            return [half("gate_proj", 0), half("up_proj", 1)]
        return [Piece(name, of, list(box))]

    return {"mesh": mesh, "at": at, "rename": rename, "pieces": pieces, "sequence_first": True}
