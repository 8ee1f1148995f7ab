"""The shape's model in Megatron-Core: one rank, its local (PyTorch) layers, no Transformer Engine and no Apex.

Its local attention knows no keys wider than values, so PyTorch's fused attention stands in; its experts run one after
the other, since its grouped product needs a package of its own. Without a GPU the calls that need one are stubbed, so
that the script can be tried; what it times then says nothing about Megatron.
"""
import os
import socket

import torch


class FusedAttention(torch.nn.Module):
    def __init__(self, *_, softmax_scale=None, **__):
        super().__init__()
        self.scale = softmax_scale

    def forward(self, query, key, value, *_, **__):
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale)
        return mixed.permute(2, 0, 1, 3).flatten(2)


def without_gpu():
    import contextlib
    from unittest import mock
    idle = mock.MagicMock()
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.Stream = torch.cuda.current_stream = lambda *_, **__: idle
    torch.cuda.stream = lambda *_, **__: contextlib.nullcontext()


def model_of(shape, dtype, device):
    """The model and the function from token ids to its mean loss."""
    if device == "cpu":
        without_gpu()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    from megatron.core import parallel_state, tensor_parallel
    parallel_state.initialize_model_parallel()
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.transformer_config import MLATransformerConfig
    if device == "cuda":
        tensor_parallel.model_parallel_cuda_manual_seed(7)
    # Both are used although they only mean something with Transformer Engine.
    if not isinstance(getattr(multi_latent_attention, "TELinear", None), type):
        multi_latent_attention.HAVE_TE = False
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    layers, dense = shape["num_hidden_layers"], shape["first_k_dense_replace"]
    config = MLATransformerConfig(
        num_layers=layers, hidden_size=shape["hidden_size"], ffn_hidden_size=shape["intermediate_size"],
        num_attention_heads=shape["num_attention_heads"], multi_latent_attention=True, qk_layernorm=True,
        q_lora_rank=shape["q_lora_rank"], kv_lora_rank=shape["kv_lora_rank"],
        qk_head_dim=shape["qk_nope_head_dim"], qk_pos_emb_head_dim=shape["qk_rope_head_dim"],
        v_head_dim=shape["v_head_dim"], rope_type="rope", rotary_base=shape["rope_theta"],
        num_moe_experts=shape["n_routed_experts"], moe_ffn_hidden_size=shape["moe_intermediate_size"],
        moe_shared_expert_intermediate_size=shape["n_shared_experts"] * shape["moe_intermediate_size"],
        moe_layer_freq=[0] * dense + [1] * (layers - dense), moe_router_topk=shape["num_experts_per_tok"],
        moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True, moe_router_dtype="fp32",
        moe_router_topk_scaling_factor=shape["routed_scaling_factor"], moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="alltoall", moe_grouped_gemm=False, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False, normalization="RMSNorm",
        layernorm_epsilon=shape["rms_norm_eps"], hidden_dropout=0.0, attention_dropout=0.0,
        bf16=dtype == torch.bfloat16, params_dtype=dtype, use_cpu_initialization=device == "cpu",
        init_method_std=shape["initializer_range"], gradient_accumulation_fusion=False,
        bias_activation_fusion=False, masked_softmax_fusion=False)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False)
    for layer in spec.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = FusedAttention
    model = GPTModel(config, spec, vocab_size=shape["vocab_size"], max_sequence_length=shape["sequence"],
                     position_embedding_type="rope", rotary_base=shape["rope_theta"],
                     share_embeddings_and_output_weights=False).to(device=device, dtype=dtype)
    for name, bias in model.named_buffers():    # .to() also rounds the selection bias, which stays float32
        if name.endswith("expert_bias"):
            bias.data = bias.data.float()
    places = torch.arange(shape["sequence"], device=device).expand(shape["microbatch"], -1)

    def loss_of(ids):    # the last token's label is the first: as many products, and no label of what is not there
        return model(ids, places, None, labels=torch.roll(ids, -1, 1)).float().mean()
    return model, loss_of
