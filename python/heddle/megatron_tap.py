"""What heddle.tap needs to tap a GPTModel of Megatron-Core (tried with 0.16.1).

    from heddle.megatron_tap import megatron
    from heddle.tap import Tap

    tap = Tap("dump", model, **megatron(model), config=config, sequence_length=32, microbatches=2)

An interleaved pipeline has chunks: Tap("dump", nn.ModuleList(chunks), **megatron(chunks), …).

Where heddle is not installed, copy this file and tap.py beside the trainer. docs/howto/check.md has the rest.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Dict, List, Optional, Sequence, Union

from torch import Tensor, nn

try:
    from .tap import Piece
except ImportError:  # copied beside a trainer
    from tap import Piece  # type: ignore[import-not-found, no-redef]

_MEGATRON = [
    (r"^(\d+\.)?(module\.)+", r"\1"),
    (r"^\d+\.(?=embedding|output_layer|decoder\.final)", ""),
    (r"^embedding\.word_embeddings\.weight$", "model.embed_tokens.weight"),
    (r"^embedding$", "model.embed_tokens"),
    (r"^decoder\.final_layernorm", "model.norm"),
    (r"^output_layer", "lm_head"),
    (r"decoder\.layers\.", "model.layers."),
    (r"\.self_attention\.linear_qkv\.layer_norm_(weight|bias)$", r".input_layernorm.\1"),  # Transformer Engine's joint modules
    (r"\.mlp\.linear_fc1\.layer_norm_(weight|bias)$", r".post_attention_layernorm.\1"),
    (r"\.self_attention\.linear_proj", ".self_attn.o_proj"),
    (r"\.self_attention\.linear_qkv", ".self_attn.qkv_proj"),
    (r"\.self_attention\.core_attention", ".self_attn.core_attention"),
    (r"\.self_attention\.([qk])_layernorm", r".self_attn.\1_norm"),
    (r"\.pre_mlp_layernorm", ".post_attention_layernorm"),
    (r"\.mlp\.router\.weight$", ".mlp.gate.weight"),  # the module gives out probabilities
    (r"\.mlp\.router\.tapped_logits$", ".mlp.gate"),
    (r"\.mlp\.experts$", ".mlp.sent_tokens"),  # rows as they were exchanged, ahead of the sum
    (r"\.linear_fc1", ".gate_up_proj"),
    (r"\.linear_fc2", ".down_proj"),
]


def megatron(model: Union[nn.Module, Sequence[nn.Module]]) -> Dict[str, Any]:
    """Arguments of Tap for a GPTModel, or for the chunks of an interleaved pipeline, whose module is nn.ModuleList(chunks).

    Grouped-query attention, dense layers and experts are known, the latter one by one (SequentialMLP) or in one module
    (TEGroupedMLP, GroupedMLP).
    """
    state = importlib.import_module("megatron.core.parallel_state")

    chunks: List[Any] = [model] if isinstance(model, nn.Module) else list(model)
    plain: Any = chunks[0]
    while hasattr(plain, "module"):  # DistributedDataParallel, Float16Module
        plain = plain.module
    config: Any = plain.config
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
    passing = set()  # names of modules whose output is their input
    layers: Dict[str, int] = {}  # numbers in the model, by the chunk's number and the layer's in it
    for chunk, module in enumerate(chunks):
        for name, layer in list(module.named_modules()):
            if found := re.search(r"decoder\.layers\.(\d+)$", name):
                layers[f"{chunk}.{found[1]}"] = layer.layer_number - 1
            if name.endswith(".mlp.router"):
                _tap_logits(layer)
            if name.endswith("_layernorm") and not list(layer.parameters()):  # the norm is within the product behind it
                passing |= {name, f"{chunk}.{name}"}
    groups, width = config.num_query_groups or config.num_attention_heads, config.kv_channels
    each = config.num_attention_heads // groups  # heads of queries in a group
    tied = plain.share_embeddings_and_output_weights  # the last stage then has the embedding as its head
    own = (config.num_moe_experts or 0) // mesh.get("ep", 1)  # experts of this rank, the first of which is:
    first_expert = at.get("ep", 0) * own

    def rename(name: str) -> str:
        if name in passing:
            return ""
        for pattern, text in _MEGATRON:
            name = re.sub(pattern, text, name)
        if tied:
            name = re.sub(r"^lm_head\.weight$", "model.embed_tokens.weight", name)
        name = re.sub(r"^(?:(\d+)\.)?model\.layers\.(\d+)", lambda found: f"model.layers.{layers[f'{found[1] or 0}.{found[2]}']}", name)
        name = re.sub(r"experts\.local_experts\.(\d+)", lambda found: f"experts.{first_expert + int(found[1])}", name)
        return re.sub(r"experts\.(gate_up_proj|down_proj)\.(weight|bias)(\d+)$",  # of TEGroupedMLP
                      lambda found: f"experts.{first_expert + int(found[3])}.{found[1]}.{found[2]}", name)

    def of_grouped(name: str, parameter: Tensor) -> List[Piece]:
        """Pieces of GroupedMLP's weight1 [H, E · 2F] and weight2 [E · F, H], which it reads as [E, H, 2F] and [E, F, H]."""
        is_first, hidden = name.endswith("1"), config.hidden_size
        words = ["down_proj"] if not is_first else ["gate_proj", "up_proj"] if config.gated_linear_unit else ["up_proj"]
        width = parameter.numel() // own // hidden // len(words)
        inner = [at["etp"] * width, (at["etp"] + 1) * width]
        pieces = []
        for expert in range(own):
            for number, word in enumerate(words):

                def take(local: Tensor, e: int = expert, n: int = number) -> Tensor:
                    of_expert = local.reshape(own, *((hidden, -1) if is_first else (-1, hidden)))[e].t()
                    return of_expert[n * width : (n + 1) * width] if is_first else of_expert

                full = [mesh["etp"] * width, hidden] if is_first else [hidden, mesh["etp"] * width]
                box = [inner, [0, hidden]] if is_first else [[0, hidden], inner]
                pieces.append(Piece(re.sub(r"weight[12]$", f"{first_expert + expert}.{word}.weight", name), full, box, take))
        return pieces

    def pieces(name: str, parameter: Tensor) -> Optional[List[Piece]]:
        axis = "etp" if ".experts." in name else "tp"
        if re.search(r"\.mlp\.experts\.weight[12]$", name):
            return of_grouped(name, parameter)
        of, box = list(parameter.shape), [[0, dim] for dim in parameter.shape]
        dim = parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else -1  # type: ignore[attr-defined]
        if ".experts." in name and (parameter.dim() == 2 or "gate_up" in name):  # Transformer Engine's say nothing of it
            dim = 0 if "gate_up" in name else 1
        if dim >= 0:
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


def _tap_logits(router: Any) -> None:
    """Passes a router's logits through a module, whose output can be tapped. They say which experts were chosen."""
    if hasattr(router, "tapped_logits"):
        return
    logits, gating = nn.Identity(), router.gating
    router.tapped_logits = logits
    router.gating = lambda *args, **kwargs: logits(gating(*args, **kwargs))
