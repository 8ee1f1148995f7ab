"""A trainer of DTensors on ranks of Gloo, in the way of torchtitan: parallelize_module over tp, fully_shard over dp.

    dtensor_trainer.py CASES.json RANKS STORE      (tests/check/tap_test.py starts it)

The model is Qwen3 by its definition, on torch.nn.Linear and torch.nn.Embedding, and knows nothing of ranks. Cases say tp,
dp, sequence parallelism (sp), the loss of cut logits (loss_parallel), and mixed precision (dtype bf16).
"""
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.environ["HEDDLE_TAP"])
from ranks import in_ranks  # noqa: E402
from tap import Tap  # noqa: E402

B, S, V, H, D, HEADS, GROUPS, FF, LAYERS, EPS = 2, 16, 48, 32, 8, 4, 2, 32, 2, 1e-6
RULE = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=0.5)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS) * self.weight.float()).to(x.dtype)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj, self.o_proj = nn.Linear(H, HEADS * D, bias=False), nn.Linear(HEADS * D, H, bias=False)
        self.k_proj, self.v_proj = (nn.Linear(H, GROUPS * D, bias=False) for _ in range(2))
        self.q_norm, self.k_norm = Norm(D), Norm(D)

    def forward(self, x):
        q, k, v = (p(x).unflatten(-1, (-1, D)) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k, v = (y.transpose(1, 2) for y in (self.rotated(self.q_norm(q)), self.rotated(self.k_norm(k)), v))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(2))

    def rotated(self, x):
        angle = torch.arange(x.shape[1])[:, None].double() * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
        cos, sin = (torch.cat([part, part], -1).to(x.dtype)[:, None] for part in (angle.cos(), angle.sin()))
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = nn.Linear(H, FF, bias=False), nn.Linear(H, FF, bias=False), nn.Linear(FF, H, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm, self.post_attention_layernorm, self.self_attn, self.mlp = Norm(H), Norm(H), Attention(), Dense()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens, self.model.norm = nn.Embedding(V, H), Norm(H)
        self.model.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.lm_head = nn.Linear(H, V, bias=False)

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        return self.lm_head(self.model.norm(x))


CONFIG = dict(
    architectures=["Qwen3ForCausalLM"], model_type="qwen3", vocab_size=V, hidden_size=H, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
    num_key_value_heads=GROUPS, head_dim=D, intermediate_size=FF, rms_norm_eps=EPS, rope_theta=10000.0, max_position_embeddings=64,
    tie_word_embeddings=False, hidden_act="silu", attention_bias=False)


def cut(model, mesh, case):
    """Over tp as torchtitan's parallelize_llama does; sp: between products a rank has a part of the positions."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

    sp, parallel_loss = case.get("sp", False), case.get("loss_parallel", False)
    between = Shard(1) if sp else Replicate()
    columns, rows = ColwiseParallel(), RowwiseParallel(output_layouts=between)
    ends = {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=between),
            "lm_head": ColwiseParallel(input_layouts=between, output_layouts=Shard(-1) if parallel_loss else Replicate(),
                                       use_local_output=not parallel_loss)}
    layer = {"self_attn.q_proj": columns, "self_attn.k_proj": columns, "self_attn.v_proj": columns, "self_attn.o_proj": rows,
             "mlp.gate_proj": columns, "mlp.up_proj": columns, "mlp.down_proj": rows}
    heads = SequenceParallel(sequence_dim=2, use_local_output=True)  # norms of the heads that a rank has
    layer |= {"self_attn.q_norm": heads, "self_attn.k_norm": heads}
    if sp:
        ends["model.norm"] = SequenceParallel()
        whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        layer |= {"input_layernorm": SequenceParallel(), "post_attention_layernorm": SequenceParallel(), "self_attn": whole, "mlp": whole}
    parallelize_module(model, mesh, ends)
    for block in model.model.layers:
        parallelize_module(block, mesh, layer)


def clip(parameters):
    """By the norm of all gradients, of which some may be of another mesh than others."""
    meshes = {}
    for parameter in parameters:
        meshes.setdefault(getattr(parameter.grad, "device_mesh", None), []).append(parameter)
    norms = [torch.nn.utils.get_total_norm([p.grad for p in of_mesh]) for of_mesh in meshes.values()]
    norm = torch.stack([n.full_tensor() if hasattr(n, "full_tensor") else n for n in norms]).pow(2).sum().sqrt()
    for of_mesh in meshes.values():
        torch.nn.utils.clip_grads_with_norm_(of_mesh, RULE["clip_norm"], norm)
    return norm


def step(case):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import loss_parallel

    tp, dp, microbatches = case.get("tp", 1), case.get("dp", 1), case.get("microbatches", 2)
    dtype = torch.bfloat16 if case.get("dtype") == "bf16" else torch.float32
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(case["seed"])
    model = Model()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, 0.0 if parameter.dim() > 1 else 1.0, 0.3)
    if tp > 1:
        cut(model, mesh["tp"], case)
    if dp > 1:
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for layer in model.model.layers:
            fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
        fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    own = mesh["dp"].get_local_rank()
    count = dp * microbatches * B
    tokens = torch.randint(V, (count, S + 1), generator=torch.Generator().manual_seed(case["seed"]))
    tap = Tap(case["dump"], model, config=CONFIG, mesh=dict(tp=tp, dp=dp), at=dict(tp=mesh["tp"].get_local_rank(), dp=own),
              sequence_length=S, sequences=B, microbatches=microbatches, dtype=dtype, local_scale=dp, optimizer=RULE, trainer="DTensors")
    tap.start(tokens)
    total = torch.zeros(())
    for m in range(microbatches):
        ids = tokens.view(microbatches, dp, B, S + 1)[m, own]
        with tap.microbatch(m), loss_parallel():
            logits = model(ids[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="sum") / (count * S)
            (loss * dp).backward()
            total += loss.full_tensor().detach() if hasattr(loss, "full_tensor") else loss.detach()
    if case.get("fault") == "norms_scaled":  # as a reduction over tp that comes twice
        for name, parameter in model.named_parameters():
            if "layernorm" in name:
                parameter.grad *= tp
    tap.gradients()
    dist.all_reduce(total, group=mesh["dp"].get_group())
    norm = clip(list(model.parameters()))
    tap.norms(loss=total, grad_norm=norm)
    rule = dict(lr=RULE["lr"], betas=(RULE["beta1"], RULE["beta2"]), eps=RULE["eps"])
    groups = [dict(params=[p for p in model.parameters() if (p.dim() > 1) == wide], weight_decay=RULE["weight_decay"] if wide else 0.0)
              for wide in (True, False)]
    torch.optim.AdamW(groups, foreach=False, **rule).step()
    tap.weights()
    tap.write()


def run_rank(rank, ranks, cases, store):
    torch.set_num_threads(1)
    for number, case in enumerate(cases):
        dist.init_process_group("gloo", store=dist.FileStore(f"{store}.{number}", ranks), rank=rank, world_size=ranks)
        step(case)
        dist.destroy_process_group()


if __name__ == "__main__":
    in_ranks(run_rank)
