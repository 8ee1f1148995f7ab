"""One step of Megatron-Core's GPTModel on CPU ranks of Gloo, right or with one fault, which heddle.tap taps.

    megatron_trainer.py CASES.json RANK RANKS STORE      (tests/check/tap_test.py starts it, with Megatron-Core's folder)

Megatron's own layers, parallel products, experts, DDP, finalize_model_grads and gradient norm run. Calls that ask for a GPU
are stubbed. The norm is a module of this file, since PyTorch's refuses sequence parallelism there. Faults are those of
published lists, written anew as changes of one call.
"""
import contextlib
import json
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist

sys.path.insert(0, os.environ["HEDDLE_TAP"])
warnings.filterwarnings("ignore")
from tap import Tap, megatron  # noqa: E402

V, S, B, H, HEADS, GROUPS, D, FF, EXPERTS = 48, 16, 2, 32, 4, 2, 8, 32, 4


class Idle:
    """A stream or event of no device."""

    def __getattr__(self, name):
        return lambda *_, **__: Idle()


def without_gpu():
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.Stream = torch.cuda.current_stream = torch.cuda.Event = lambda *_, **__: Idle()
    torch.cuda.stream = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.is_available = lambda: False
    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    from megatron.core.tensor_parallel import random
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    from megatron.core.fusions import fused_softmax
    fused_softmax.get_default_causal_mask = lambda rows: torch.ones(rows, rows).triu(1).bool()
    from megatron.core.transformer.moe import moe_utils
    if not hasattr(moe_utils, "te_general_gemm"):  # it is used although it only means something with Transformer Engine
        moe_utils.te_general_gemm = None
    torch.cuda.synchronize = lambda *_, **__: None
    torch.Tensor.cuda = lambda self, *_, **__: self


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-6, **_):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(hidden_size)), eps
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight.float()).to(x.dtype)


def model_of(case):
    from megatron.core import parallel_state as state
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype, moe = torch.bfloat16 if case.get("dtype") == "bf16" else torch.float32, case.get("moe", False)
    experts = dict(num_moe_experts=EXPERTS, moe_router_topk=2, moe_ffn_hidden_size=FF, moe_router_load_balancing_type="none",
                   moe_token_dispatcher_type=case.get("dispatcher", "alltoall"), moe_grouped_gemm=False,
                   moe_router_dtype="fp32") if moe else {}
    config = TransformerConfig(
        num_layers=2, hidden_size=H, ffn_hidden_size=FF, num_attention_heads=HEADS, num_query_groups=GROUPS, kv_channels=D,
        tensor_model_parallel_size=case.get("tp", 1), expert_model_parallel_size=case.get("ep", 1),
        expert_tensor_parallel_size=case.get("etp", 1), sequence_parallel=case.get("sp", False), gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, add_bias_linear=False, normalization="RMSNorm", layernorm_epsilon=1e-6,
        hidden_dropout=0.0, attention_dropout=0.0, qk_layernorm=True, params_dtype=dtype, bf16=dtype == torch.bfloat16,
        use_cpu_initialization=True, gradient_accumulation_fusion=False, bias_activation_fusion=False,
        masked_softmax_fusion=False, init_method_std=0.3, calculate_per_token_loss=False, **experts)
    spec = gpt_layer_specs.get_gpt_layer_local_spec(num_experts=EXPERTS if moe else None, moe_grouped_gemm=False,
                                                    qk_layernorm=True, normalization="RMSNorm")
    parts = spec.submodules
    parts.input_layernorm = Norm
    parts.pre_mlp_layernorm = Norm
    parts.self_attention.submodules.q_layernorm = parts.self_attention.submodules.k_layernorm = Norm
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    block = TransformerBlockSubmodules(layer_specs=[spec, spec], layer_norm=Norm)
    model = GPTModel(config, block, vocab_size=V, max_sequence_length=S, position_embedding_type="rope", rotary_base=10000,
                     share_embeddings_and_output_weights=False).to(dtype)
    assert state.get_tensor_model_parallel_world_size() == case.get("tp", 1)
    return model, config


def config_of(case):
    moe = case.get("moe", False)
    config = dict(
        architectures=["Qwen3MoeForCausalLM" if moe else "Qwen3ForCausalLM"], model_type="qwen3_moe" if moe else "qwen3", vocab_size=V,
        hidden_size=H, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=D, intermediate_size=FF,
        rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=64, tie_word_embeddings=False, hidden_act="silu",
        attention_bias=False)
    if moe:
        config |= dict(num_experts=EXPERTS, num_experts_per_tok=2, moe_intermediate_size=FF, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[], router_aux_loss_coef=0.0)
    return config


def step(case):
    from megatron.core import parallel_state as state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.optimizer.clip_grads import get_grad_norm_fp32

    state.initialize_model_parallel(tensor_model_parallel_size=case.get("tp", 1), expert_model_parallel_size=case.get("ep", 1),
                                    expert_tensor_parallel_size=case.get("etp", 1))
    tensor_parallel.model_parallel_cuda_manual_seed(case["seed"])
    torch.manual_seed(case["seed"])
    model, config = model_of(case)
    ddp = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False), model)
    dp, at, microbatches = state.get_data_parallel_world_size(), state.get_data_parallel_rank(), case.get("microbatches", 2)
    count = dp * microbatches * B
    tokens = torch.randint(V, (count, S + 1), generator=torch.Generator().manual_seed(case["seed"]))
    tap = Tap(case["dump"], model, config=config_of(case), **megatron(model), sequence_length=S, sequences=B, microbatches=microbatches,
              dtype=config.params_dtype, local_scale=dp, trainer="Megatron-Core 0.16.1")
    tap.start(tokens)
    ddp.zero_grad_buffer()
    places, total = torch.arange(S).expand(B, -1), 0.0
    for m in range(microbatches):
        ids = tokens.view(microbatches, dp, B, S + 1)[m, at]
        with tap.microbatch(m):
            losses = ddp(ids[:, :-1].contiguous(), places, None, labels=ids[:, 1:].contiguous())
            loss = losses.float().mean() / microbatches
            if case.get("fault") == "loss_not_divided":
                loss = loss * microbatches
            loss.backward()
            total += float(loss)
    if case.get("fault") == "no_layernorm_sum":
        config.sequence_parallel = False
    if case.get("fault") == "not_finalized":
        ddp.scale_gradients(1.0)
    else:
        finalize_model_grads([ddp])
    if case.get("fault") == "again":
        finalize_model_grads([ddp])
    tap.gradients()
    total = torch.tensor(total)
    dist.all_reduce(total, group=state.get_data_parallel_group())
    tap.norms(loss=total / dp)
    tap.write()
    state.destroy_model_parallel()


def main():
    cases, rank, ranks, store = json.loads(pathlib.Path(sys.argv[1]).read_text()), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    without_gpu()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    for case in cases:
        step(case)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
