"""One step of Megatron-Core's GPTModel on CPU ranks of Gloo, right or with one fault, which heddle.tap taps.

    megatron_trainer.py CASES.json RANKS STORE      (tests/check/megatron_test.py starts it)

Megatron's own layers, parallel products, experts, schedules, DDP, finalize_model_grads, optimizer and gradient norm run.
Calls that ask for a GPU are answered by the CPU. Three modules are of this file. The norm is, since PyTorch's refuses
sequence parallelism in Megatron-Core. Attention of cp and products of grouped experts are, since Megatron-Core has none
without Transformer Engine.
megatron_faults.py has the faults.
"""
import contextlib
import copy
import functools
import importlib
import json
import os
import pathlib
import sys
import warnings

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

sys.path.insert(0, os.environ["HEDDLE_TAP"])
warnings.filterwarnings("ignore")
from megatron_tap import megatron  # noqa: E402
from ranks import in_ranks  # noqa: E402
from tap import Tap, zigzag  # noqa: E402

V, S, B, H, HEADS, GROUPS, D, FF, EXPERTS, CHOSEN, LAYERS = 48, 16, 2, 32, 4, 2, 8, 32, 4, 2, 2
RULE = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=0.5)
AUX = 0.02


class OnCpu(TorchFunctionMode):
    """Tensors that are asked for on "cuda" are made on the CPU."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "cuda" in str(kwargs.get("device", "")):
            kwargs["device"] = "cpu"
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        return function(*args, **kwargs)


class Idle:
    """A stream or event of no device."""

    def __getattr__(self, name):
        return lambda *_, **__: Idle()


def without_gpu():
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.Stream = torch.cuda.current_stream = torch.cuda.Event = lambda *_, **__: Idle()
    torch.cuda.stream = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.is_available = lambda: False
    torch.cuda.synchronize = lambda *_, **__: None
    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.FloatTensor = torch.FloatTensor
    torch.Tensor.cuda = lambda self, *_, **__: self
    kind = torch.Tensor.type  # which Megatron-Core compares with those of a GPU
    torch.Tensor.type = lambda self, *a, **k: kind(self, *a, **k) if a or k else "torch.cuda." + kind(self).split(".")[-1]
    exchange = dist.all_to_all_single

    def exchange_of_lists(output, input, output_split_sizes=None, input_split_sizes=None, **more):
        sizes = [s.tolist() if isinstance(s, torch.Tensor) else s for s in (output_split_sizes, input_split_sizes)]
        return exchange(output, input, *sizes, **more)

    dist.all_to_all_single = exchange_of_lists
    from megatron.core.tensor_parallel import random
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    from megatron.core.fusions import fused_softmax
    fused_softmax.get_default_causal_mask = lambda rows: torch.ones(rows, rows).triu(1).bool()
    from megatron.core.transformer.moe import moe_utils
    if not hasattr(moe_utils, "te_general_gemm"):  # it is used although it only means something with Transformer Engine
        moe_utils.te_general_gemm = None
    OnCpu().__enter__()


class Norm(torch.nn.Module):
    def __init__(self, config, hidden_size, eps=1e-6, **_):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(hidden_size)), eps
        self.weight.sequence_parallel = config.sequence_parallel

    def forward(self, x):
        return self.normed(x, self.weight, self.eps)

    @staticmethod
    def normed(x, weight, eps):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


class Gather(torch.autograd.Function):
    """Rows of all ranks of a group, one behind the other; its gradient is summed over them."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        parts = [torch.empty_like(x) for _ in range(group.size())]
        dist.all_gather(parts, x.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, gradient):
        whole = gradient.float()
        dist.all_reduce(whole, group=ctx.group)
        return whole.chunk(ctx.group.size())[ctx.group.rank()].to(gradient.dtype), None


def attention_of_cp():
    """Megatron's attention of one rank, on the keys of all ranks of cp."""
    from megatron.core import parallel_state as state
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    class Attention(DotProductAttention):
        def __init__(self, config, *args, **kwargs):
            one = copy.copy(config)
            one.context_parallel_size = 1
            super().__init__(one, *args, **kwargs)

        def forward(self, query, key, value, attention_mask, **_):
            group = state.get_context_parallel_group()
            own = positions_of(group.rank(), group.size())
            keys = torch.cat([positions_of(r, group.size()) for r in range(group.size())])
            mask = own[:, None] < keys[None, :]
            return super().forward(query, Gather.apply(key, group), Gather.apply(value, group), mask[None, None])

    return Attention


class GroupedProduct(torch.nn.Module):
    """A product for each expert in one module, whose weights are called as those of Transformer Engine's GroupedLinear."""

    def __init__(self, count, inputs, outputs, config, init_method, pg_collection, by_rows, is_expert, **_):
        super().__init__()
        from megatron.core.tensor_parallel.layers import set_tensor_model_parallel_attributes

        self.count, etp = count, pg_collection.expt_tp.size()
        shape = (outputs, inputs // etp) if by_rows else (outputs // etp, inputs)
        for n in range(count):
            weight = torch.nn.Parameter(torch.empty(shape, dtype=config.params_dtype))
            init_method(weight)
            weight.allreduce = config.expert_model_parallel_size == 1
            set_tensor_model_parallel_attributes(weight, True, 1 if by_rows else 0, 1)
            setattr(self, f"weight{n}", weight)

    def forward(self, x, rows):
        return torch.cat([torch.nn.functional.linear(part, getattr(self, f"weight{n}")) for n, part in enumerate(x.split(rows))]), None


def grouped_gemm():
    """The one function of the package grouped_gemm, which has kernels for GPUs alone."""

    def gmm(x, weights_EHF, rows, trans_b=False):
        return torch.cat([part @ weight for part, weight in zip(x.split(rows.tolist()), weights_EHF)])

    return type("ops", (), {"gmm": staticmethod(gmm)})


def put_joint_norms(spec, moe):
    """Norms within the products behind them, called as those of Transformer Engine's LayerNormLinear."""
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear
    from megatron.core.transformer.identity_op import IdentityOp

    class Joint(ColumnParallelLinear):
        def __init__(self, inputs, outputs, *, config, **more):
            super().__init__(inputs, outputs, config=config, **more)
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(inputs, dtype=config.params_dtype))
            self.layer_norm_weight.sequence_parallel = config.sequence_parallel

        def forward(self, x, **more):
            return super().forward(Norm.normed(x, self.layer_norm_weight, 1e-6), **more)

    parts = spec.submodules
    parts.input_layernorm, parts.self_attention.submodules.linear_qkv = IdentityOp, Joint
    if not moe:
        parts.pre_mlp_layernorm, parts.mlp.submodules.linear_fc1 = IdentityOp, Joint


def put_grouped_experts(spec, kind):
    """Megatron's own modules of many experts, on the products above: TEGroupedMLP ("te"), or GroupedMLP ("legacy")."""
    from megatron.core.transformer.mlp import MLPSubmodules
    from megatron.core.transformer.moe import experts, grouped_gemm_util
    from megatron.core.transformer.spec_utils import ModuleSpec

    of_experts = spec.submodules.mlp.submodules.experts
    if kind == "legacy":
        grouped_gemm_util.grouped_gemm, grouped_gemm_util.ops = True, grouped_gemm()
        of_experts.module, of_experts.submodules = experts.GroupedMLP, None
        return
    products = [ModuleSpec(module=GroupedProduct, params=dict(by_rows=by_rows)) for by_rows in (False, True)]
    of_experts.module, of_experts.submodules = experts.TEGroupedMLP, MLPSubmodules(linear_fc1=products[0], linear_fc2=products[1])


def positions_of(rank, cp):
    return torch.cat([torch.arange(begin, end) for begin, end in zigzag(S, rank, cp)])


def layers_of(case):
    return LAYERS * case.get("vpp", 1)


def model_of(case):
    """The chunks of the rank's model, of which there are several in an interleaved pipeline, and their configuration."""
    from megatron.core import parallel_state as state
    from megatron.core.models.gpt import gpt_layer_specs
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype, moe = torch.bfloat16 if case.get("dtype") == "bf16" else torch.float32, case.get("moe", False)
    experts = dict(num_moe_experts=EXPERTS, moe_router_topk=CHOSEN, moe_ffn_hidden_size=FF, moe_grouped_gemm=bool(case.get("grouped")),
                   moe_router_load_balancing_type="seq_aux_loss" if case.get("aux") else "none",
                   moe_aux_loss_coeff=AUX if case.get("aux") else 0.0, moe_token_dispatcher_type=case.get("dispatcher", "alltoall"),
                   moe_router_dtype="fp32") if moe else {}
    config = TransformerConfig(
        num_layers=layers_of(case), hidden_size=H, ffn_hidden_size=FF, num_attention_heads=HEADS, num_query_groups=GROUPS, kv_channels=D,
        tensor_model_parallel_size=case.get("tp", 1), expert_model_parallel_size=case.get("ep", 1),
        expert_tensor_parallel_size=case.get("etp", 1), context_parallel_size=case.get("cp", 1),
        pipeline_model_parallel_size=case.get("pp", 1), virtual_pipeline_model_parallel_size=case.get("vpp"), pipeline_dtype=dtype,
        batch_p2p_comm=False,
        sequence_parallel=case.get("sp", False), gated_linear_unit=True, activation_func=torch.nn.functional.silu,
        add_bias_linear=False, normalization="RMSNorm", layernorm_epsilon=1e-6, hidden_dropout=0.0, attention_dropout=0.0,
        qk_layernorm=True, params_dtype=dtype, bf16=dtype == torch.bfloat16, use_cpu_initialization=True,
        gradient_accumulation_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False, init_method_std=0.3,
        calculate_per_token_loss=case.get("per_token", False), **experts)
    spec = gpt_layer_specs.get_gpt_layer_local_spec(num_experts=EXPERTS if moe else None, moe_grouped_gemm=False,
                                                    qk_layernorm=True, normalization="RMSNorm")
    parts = spec.submodules
    parts.input_layernorm = parts.pre_mlp_layernorm = Norm
    attention = parts.self_attention.submodules
    attention.q_layernorm = attention.k_layernorm = Norm
    if case.get("cp", 1) > 1:
        attention.core_attention = attention_of_cp()
    if case.get("joint_norms"):
        put_joint_norms(spec, moe)
    if case.get("grouped"):
        put_grouped_experts(spec, case["grouped"])
    pp, vpp = case.get("pp", 1), case.get("vpp")
    block = TransformerBlockSubmodules(layer_specs=[spec] * (LAYERS // pp), layer_norm=Norm)
    chunks = []
    for stage in range(vpp or 1):
        place = dict(ignore_virtual=False, vp_stage=stage if vpp else None)
        chunks.append(GPTModel(config, block, vocab_size=V, max_sequence_length=S, position_embedding_type="rope", rotary_base=10000,
                               pre_process=state.is_pipeline_first_stage(**place), post_process=state.is_pipeline_last_stage(**place),
                               share_embeddings_and_output_weights=case.get("tied", False), vp_stage=place["vp_stage"]).to(dtype))
    return chunks, config


def subject_of(case):
    """The model as Heddle reads it: a config.json, or Heddle's keys where it has the balance loss."""
    moe = case.get("moe", False)
    config = dict(
        architectures=["Qwen3MoeForCausalLM" if moe else "Qwen3ForCausalLM"], model_type="qwen3_moe" if moe else "qwen3", vocab_size=V,
        hidden_size=H, num_hidden_layers=layers_of(case), num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=D,
        intermediate_size=FF, rms_norm_eps=1e-6, rope_theta=10000.0, max_position_embeddings=512,
        tie_word_embeddings=case.get("tied", False), hidden_act="silu", attention_bias=False)
    if moe:
        config |= dict(num_experts=EXPERTS, num_experts_per_tok=CHOSEN, moe_intermediate_size=FF, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[], router_aux_loss_coef=0.0)
    if not case.get("aux"):
        return dict(config=config)
    path = pathlib.Path(case["dump"] + ".config.json")
    if dist.get_rank() == 0:
        path.write_text(json.dumps(config))
    return dict(toml=f'[model]\nhf = "{path}"\nsequence_aux_loss_alpha = {AUX}\n')


class Run:
    """One case. A fault is a function of megatron_faults.py, which is called once the model, and once DDP is made."""

    def __init__(self, case):
        from megatron_faults import FAULTS
        self.case, self.replaced = case, []
        self.fault = FAULTS[case["fault"]] if case.get("fault") else lambda *_: None
        self.chunks, self.config = model_of(case)
        self.model = self.chunks[0]
        self.ddps = []

    @property
    def ddp(self):
        return self.ddps[0]

    def replace(self, owner, name, new):
        self.replaced.append((owner, name, owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)))
        setattr(owner, name, new)

    def restore(self):
        for owner, name, old in reversed(self.replaced):
            setattr(owner, name, old)


def optimizer_of(run):
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    case = run.case
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=RULE["lr"], weight_decay=RULE["weight_decay"], adam_beta1=RULE["beta1"],
                        adam_beta2=RULE["beta2"], adam_eps=RULE["eps"], clip_grad=RULE["clip_norm"], bf16=case.get("dtype") == "bf16",
                        params_dtype=run.config.params_dtype, use_distributed_optimizer=case.get("sharded", False)), run.ddps)
    for group in optimizer.param_groups:  # what OptimizerParamScheduler does ahead of each step
        group["weight_decay"] = RULE["weight_decay"] * group.get("wd_mult", 1.0)
    return optimizer


def step(case):
    from megatron.core import parallel_state as state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, get_moe_layer_wise_logging_tracker

    tp, cp, pp = (case.get(axis, 1) for axis in ("tp", "cp", "pp"))
    state.initialize_model_parallel(tensor_model_parallel_size=tp, pipeline_model_parallel_size=pp, context_parallel_size=cp,
                                    virtual_pipeline_model_parallel_size=case.get("vpp"),
                                    expert_model_parallel_size=case.get("ep", 1), expert_tensor_parallel_size=case.get("etp", 1))
    tensor_parallel.model_parallel_cuda_manual_seed(case["seed"])
    torch.manual_seed(case["seed"])
    MoEAuxLossAutoScaler.main_loss_backward_scale = None
    get_moe_layer_wise_logging_tracker().clear()  # it is of as many layers as the case before
    run = Run(case)
    run.fault(run, "model")
    kept = DistributedDataParallelConfig(grad_reduce_in_fp32=True, overlap_grad_reduce=False, use_distributed_optimizer=case.get("sharded", False))
    run.ddps = [DistributedDataParallel(run.config, kept, chunk) for chunk in run.chunks]
    run.fault(run, "ddp")
    dp, microbatches = state.get_data_parallel_world_size(), case.get("microbatches", 2)
    count, at, per_token = dp * microbatches * B, state.get_data_parallel_rank(), case.get("per_token", False)
    draw = torch.Generator().manual_seed(case["seed"])
    tokens = torch.randint(V, (count, S + 1), generator=draw)
    mask = torch.ones(count, S, dtype=torch.uint8)
    if case.get("masks"):
        mask = (torch.rand(count, S, generator=draw) < torch.linspace(0.3, 1, count)[:, None]).to(torch.uint8)
    whole = torch.nn.ModuleList(run.chunks) if len(run.chunks) > 1 else run.model
    tap = Tap(case["dump"], whole, **subject_of(case), **megatron(run.chunks), sequence_length=S, sequences=B,
              microbatches=microbatches, dtype=run.config.params_dtype, local_scale=int(mask.sum()) if per_token else dp * cp,
              loss=case.get("loss", "tokens"), optimizer=RULE, trainer="Megatron-Core 0.16.1")
    tap.start(tokens, mask)
    own, losses = positions_of(state.get_context_parallel_rank(), cp), []

    def loss_of(kept, output):
        total, labels = (output.float() * kept).sum(), kept.sum()
        if per_token:
            return total, labels.int(), {}
        if cp > 1:  # of the microbatch's positions on all ranks
            labels = labels.clone()
            dist.all_reduce(labels, group=state.get_context_parallel_group())
        losses.append(float(total / labels) / microbatches)
        return total / labels, {}

    def forward(batches, model):
        m = next(batches)
        ids, kept = (x.view(microbatches, dp, B, -1)[m, at] for x in (tokens, mask.float()))
        with tap.microbatch(m):
            output = model(ids[:, :-1][:, own].contiguous(), own.expand(B, -1), None, labels=ids[:, 1:][:, own].contiguous())
        return output, functools.partial(loss_of, kept[:, own])

    run.config.finalize_model_grads_func = finalize_model_grads
    optimizer = optimizer_of(run)
    for ddp in run.ddps:
        ddp.zero_grad_buffer()
    optimizer.zero_grad()
    get_forward_backward_func()(forward_step_func=forward, data_iterator=[iter(range(microbatches)) for _ in run.ddps], model=run.ddps,
                                num_microbatches=microbatches, seq_length=S, micro_batch_size=B)
    run.fault(run, "step")
    if not case.get("sharded"):  # a rank's own shard is whole there, and the rest of its buffer is not
        tap.gradients()
    total = torch.tensor(sum(losses))
    dist.all_reduce(total, group=state.get_data_parallel_group(with_context_parallel=True))
    _, norm, _ = optimizer.step()
    tap.norms(loss=total / dp if losses else None, grad_norm=norm)
    tap.weights()
    tap.write()
    run.restore()
    state.destroy_model_parallel()


def run_rank(rank, ranks, cases, store):
    torch.set_num_threads(1)
    without_gpu()
    for number, case in enumerate(cases):
        dist.init_process_group("gloo", store=dist.FileStore(f"{store}.{number}", ranks), rank=rank, world_size=ranks)
        step(case)
        dist.destroy_process_group()


if __name__ == "__main__":
    for name in ("models.gpt.gpt_layer_specs", "optimizer", "pipeline_parallel"):  # once for all ranks
        importlib.import_module("megatron.core." + name)
    in_ranks(run_rank)
