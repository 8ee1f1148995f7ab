"""A small plain PyTorch trainer on ranks of Gloo, right or with one fault, which heddle.tap taps.

    plain_trainer.py CASES.json RANKS STORE      (tests/check/tap_test.py starts it)

The model is Qwen3 or Qwen3-MoE by its definition. Ranks: tp fastest, then cp, then dp. tp cuts products as Megatron does,
with or without sequence parallelism; cp has two chunks of each sequence a rank, and gathers keys and values; dp sums
gradients; experts are cut by tp and, with ep, spread over the ranks of dp.
"""
import math
import os
import re
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.environ["HEDDLE_TAP"])
from ranks import in_ranks  # noqa: E402
from tap import PLAIN_CUTS, Tap, zigzag  # noqa: E402

B, S, V, H, D, HEADS, GROUPS, FF, EXPERTS, CHOSEN, EPS = 2, 16, 48, 24, 8, 4, 2, 32, 4, 2, 1e-6
RULE = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, clip_norm=0.5)


def pieces_of(x, dim, group):
    out = [torch.empty_like(x) for _ in range(dist.get_world_size(group))]
    dist.all_gather(out, x.contiguous(), group=group)
    return out


def summed(x, group):
    y = x.contiguous().float() if x.dtype == torch.bfloat16 else x.contiguous().clone()
    dist.all_reduce(y, group=group)
    return y.to(x.dtype)


def share(x, dim, group):
    return x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)].contiguous()


class Move(torch.autograd.Function):
    """One communication ahead, another back: each of "keep", "sum", "gather", "scatter" (sum, then the own share), "slice"."""

    @staticmethod
    def forward(ctx, x, ahead, back, dim, group):
        ctx.back, ctx.dim, ctx.group = back, dim, group
        return Move.one(x, ahead, dim, group)

    @staticmethod
    def backward(ctx, g):
        return Move.one(g, ctx.back, ctx.dim, ctx.group), None, None, None, None

    @staticmethod
    def one(x, what, dim, group):
        if what == "sum":
            return summed(x, group)
        if what == "twice":
            return 2 * summed(x, group)
        if what == "gather":
            return torch.cat(pieces_of(x, dim, group), dim)
        if what == "scatter":
            return share(summed(x, group), dim, group)
        if what == "slice":
            return share(x, dim, group)
        return x.clone()


class Norm(nn.Module):
    def __init__(self, width, dtype):
        super().__init__()
        self.weight, self.dtype = nn.Parameter(torch.empty(width)), dtype

    def forward(self, x):
        y = x.float() if self.dtype == torch.bfloat16 else x
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS) * self.weight).to(self.dtype)


class Product(nn.Module):
    """A product whose result each rank of tp holds in part: of its columns, or of its sum (`rows`)."""

    def __init__(self, out, width, run, name, rows=False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out, width))
        self.run, self.name, self.rows = run, name, rows

    def forward(self, x):
        y = F.linear(x, self.weight.to(x.dtype))
        return self.run.leave(y, self.name) if self.rows else y


class Embedding(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.weight, self.run = nn.Parameter(torch.empty(V // run.tp, H)), run

    def forward(self, ids):
        first = self.run.at["tp"] * self.weight.shape[0]
        own = (ids >= first) & (ids < first + self.weight.shape[0])
        rows = F.embedding((ids - first) * own, self.weight.to(self.run.dtype)) * own[..., None]
        return self.run.leave(rows, "embed_tokens")


class Attention(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.heads, self.groups = HEADS // run.tp, GROUPS // run.tp
        self.q_proj = Product(self.heads * D, H, run, f"{layer}.q_proj")
        self.k_proj = Product(self.groups * D, H, run, f"{layer}.k_proj")
        self.v_proj = Product(self.groups * D, H, run, f"{layer}.v_proj")
        self.o_proj = Product(H, self.heads * D, run, f"{layer}.o_proj", rows=True)
        self.q_norm, self.k_norm = Norm(D, run.dtype), Norm(D, run.dtype)

    def rotated(self, x, positions):
        angle = positions[:, None].double() * 10000.0 ** (-torch.arange(0, D, 2).double() / D)
        cos, sin = (torch.cat([part, part], -1).to(x.dtype)[:, None] for part in (angle.cos(), angle.sin()))
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, n):
        run, place = self.run, f"model.layers.{self.layer}.self_attn."
        q, k, v = (p(n) for p in (self.q_proj, self.k_proj, self.v_proj))
        b, s = q.shape[:2]
        if run.is_at("heads_shifted", self.layer):
            q = q.roll(-D, -1)
        q, k, v = (x.view(b, s, -1, D) for x in (q, k, v))
        positions = run.own if not run.is_at("local_positions", self.layer) else torch.arange(s)
        q, k = self.rotated(self.q_norm(q), positions), self.rotated(self.k_norm(k), positions)
        run.tap.tensor("forward", place + "q_rotated", q.flatten(2))
        run.tap.tensor("forward", place + "k_rotated", k.flatten(2))
        keys = run.all_positions
        back = "slice" if run.is_at("no_gradient_of_keys", self.layer) else "scatter"
        if run.cp > 1:
            k, v = (Move.apply(x, "gather", back, 1, run.groups["cp"]) for x in (k, v))
        sees = run.own[:, None] >= keys[None, :]
        other = (torch.arange(len(keys)) // s) != run.at["cp"]
        if run.is_at("own_chunks", self.layer):
            sees = sees & ~other
        if run.is_at("no_mask_at_boundary", self.layer):
            sees = sees | other
        if run.is_at("mask_by_row", self.layer):
            sees = torch.arange(s)[:, None] >= (torch.arange(len(keys)) % s)[None, :]
        if run.is_at("not_causal", self.layer):
            sees = torch.ones_like(sees)
        k, v = (x.repeat_interleave(self.heads // self.groups, 2) for x in (k, v))
        if run.is_at("groups_by_place", self.layer):
            k, v = (x[:, :, ::self.heads // self.groups].repeat(1, 1, self.heads // self.groups, 1) for x in (k, v))
        scores = torch.einsum("bihd,bjhd->bhij", q, k).float() / math.sqrt(D)
        if run.is_at("no_scale", self.layer):
            scores = scores * math.sqrt(D)
        weights = scores.masked_fill(~sees, -math.inf).softmax(-1).to(v.dtype)
        return self.o_proj(torch.einsum("bhij,bjhd->bihd", weights, v).flatten(2))


class Dense(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.gate_proj = Product(FF // run.tp, H, run, f"{layer}.gate_proj")
        self.up_proj = Product(FF // run.tp, H, run, f"{layer}.up_proj")
        self.down_proj = Product(H, FF // run.tp, run, f"{layer}.down_proj", rows=True)

    def forward(self, n):
        n = self.run.enter(n, f"{self.layer}.mlp")
        g, u = self.gate_proj(n), self.up_proj(n)
        if self.run.is_at("act_of_up", self.layer):
            g, u = u, g
        return self.down_proj(F.silu(g) * u)


class Experts(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.gate = Product(EXPERTS, H, run, f"{layer}.gate")
        for e in run.experts:
            self.add_module(f"expert{e}", nn.ModuleDict({
                "gate_proj": Product(FF // run.tp, H, run, ""), "up_proj": Product(FF // run.tp, H, run, ""),
                "down_proj": Product(H, FF // run.tp, run, "")}))

    def forward(self, n):
        run = self.run
        scores = self.gate(n).float().softmax(-1)
        top, chosen = scores.topk(CHOSEN, -1)
        if not run.is_at("gates_not_normed", self.layer):
            top = top / top.sum(-1, keepdim=True)
        gates = torch.zeros_like(scores).scatter(-1, chosen, top).to(n.dtype)
        n = run.enter(n, f"{self.layer}.experts")
        gates = run.enter(gates, f"{self.layer}.gates")
        if run.ep > 1:
            n, gates = (Move.apply(x, "gather", "scatter", 0, run.groups["dp"]) for x in (n, gates))
        y = torch.zeros_like(n)
        for e in run.experts:
            one = getattr(self, f"expert{e}")
            gate = gates[..., e:e + 1]
            if run.is_at("wrong_gate", self.layer):
                gate = gates[..., (e + 1) % EXPERTS:(e + 1) % EXPERTS + 1] * (gate > 0)
            y = y + gate * one["down_proj"](F.silu(one["gate_proj"](n)) * one["up_proj"](n))
        if run.ep > 1:
            y = Move.apply(y, "scatter", "gather", 0, run.groups["dp"])
        return run.leave(y, f"{self.layer}.experts")


class Layer(nn.Module):
    def __init__(self, run, number):
        super().__init__()
        self.run, self.number = run, number
        self.input_layernorm, self.post_attention_layernorm = Norm(H, run.dtype), Norm(H, run.dtype)
        self.self_attn = Attention(run, number)
        self.mlp = (Experts if run.moe and number > 0 else Dense)(run, number)

    def forward(self, x):
        x = x + self.self_attn(self.run.enter(self.input_layernorm(x), f"{self.number}.attention"))
        return x + self.mlp(self.post_attention_layernorm(x))


class Model(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.model = nn.Module()
        self.model.embed_tokens, self.model.norm = Embedding(run), Norm(H, run.dtype)
        self.model.layers = nn.ModuleList(Layer(run, n) for n in range(2))
        self.lm_head = Product(V // run.tp, H, run, "lm_head")

    def forward(self, ids):
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x)
        logits = self.lm_head(self.run.enter(self.model.norm(x), "lm_head"))
        return Move.apply(logits, "gather", "slice", -1, self.run.groups["tp"]) if self.run.tp > 1 else logits


class Run:
    """One case: its layout, its fault, and the communication of its ranks."""

    def __init__(self, case, groups):
        self.case, self.groups = case, groups
        self.tp, self.cp, self.dp = (case.get(axis, 1) for axis in ("tp", "cp", "dp"))
        self.ep, self.moe, self.sp = case.get("ep", 1), case.get("moe", False), case.get("sp", False) and self.tp > 1
        self.microbatches = case.get("microbatches", 2)
        self.dtype = torch.bfloat16 if case.get("dtype") == "bf16" else torch.float32
        rank = dist.get_rank()
        self.at = dict(tp=rank % self.tp, cp=rank // self.tp % self.cp, dp=rank // self.tp // self.cp)
        if self.moe:
            self.at |= dict(etp=self.at["tp"])
            self.at |= dict(ep=self.at["dp"], edp=self.at["cp"]) if self.ep > 1 else dict(edp=rank // self.tp)
        own = EXPERTS // self.ep
        self.experts = range(self.at.get("ep", 0) * own, (self.at.get("ep", 0) + 1) * own)
        chunks = [torch.cat([torch.arange(a, b) for a, b in zigzag(S, c, self.cp)]) for c in range(self.cp)]
        self.own, self.all_positions = chunks[self.at["cp"]], torch.cat(chunks)

    def is_at(self, kind, place):
        return self.case.get("fault") == kind and re.search(self.case["where"], str(place)) is not None

    def enter(self, x, name):
        """Ahead of products that tp cuts by columns."""
        if self.tp == 1:
            return x
        if self.sp:
            back = "slice" if self.is_at("no_sum_back", name) else "scatter"
            return Move.apply(x, "gather", back, 1, self.groups["tp"])
        back = "keep" if self.is_at("no_sum_back", name) else "twice" if self.is_at("sum_twice_back", name) else "sum"
        return Move.apply(x, "keep", back, 1, self.groups["tp"])

    def leave(self, x, name):
        """Behind products that tp cuts by rows."""
        if self.tp == 1:
            return x
        if self.sp:
            return Move.apply(x, "slice" if self.is_at("no_sum", name) else "scatter", "gather", 1, self.groups["tp"])
        ahead = "keep" if self.is_at("no_sum", name) else "twice" if self.is_at("sum_twice", name) else "sum"
        return Move.apply(x, ahead, "keep", 1, self.groups["tp"])

    def released(self, name):
        return re.sub(r"mlp\.expert(\d+)", r"mlp.experts.\1", name)

    def sums(self, name):
        """The groups over which the gradient of a weight is summed."""
        expert = ".experts." in name
        axes = ["cp"] if expert and self.ep > 1 else ["cp", "dp"]
        replicated = name.endswith("norm.weight") or name.endswith("mlp.gate.weight")
        if name.endswith(("q_norm.weight", "k_norm.weight")) or (self.sp and replicated):
            axes.append("tp")
        return [axis for axis in axes if getattr(self, axis) > 1]


def config_of(run):
    config = dict(
        architectures=["Qwen3MoeForCausalLM" if run.moe else "Qwen3ForCausalLM"], model_type="qwen3_moe" if run.moe else "qwen3",
        vocab_size=V, hidden_size=H, num_hidden_layers=2, num_attention_heads=HEADS, num_key_value_heads=GROUPS, head_dim=D,
        intermediate_size=FF, rms_norm_eps=EPS, rope_theta=10000.0, max_position_embeddings=64, tie_word_embeddings=False,
        hidden_act="silu", attention_bias=False)
    if run.moe:
        config |= dict(num_experts=EXPERTS, num_experts_per_tok=CHOSEN, moe_intermediate_size=FF, norm_topk_prob=True,
                       decoder_sparse_step=1, mlp_only_layers=[0], router_aux_loss_coef=0.0)
    return config


def fill(model, run, seed):
    """Every rank draws the whole of each weight and keeps its own part."""
    for name, parameter in model.named_parameters():
        name, shape = run.released(name), list(parameter.shape)
        dim = next((d for pattern, d in PLAIN_CUTS.items() if re.search(pattern, name)), None)
        if dim is not None:
            shape[dim] *= run.tp
        draw = torch.Generator().manual_seed(seed * 1000003 + sum(ord(c) * (i + 1) for i, c in enumerate(name)))
        whole = (1 if name.endswith("norm.weight") else 0) + 0.3 * torch.randn(shape, generator=draw)
        whole = whole.to(run.dtype).float()
        with torch.no_grad():
            parameter.copy_(whole if dim is None else whole.chunk(run.tp, dim)[run.at["tp"]])


def reduce_gradients(model, run):
    for name, parameter in model.named_parameters():
        name = run.released(name)
        for axis in run.sums(name):
            if run.is_at(f"not_summed.{axis}", name):
                continue
            parameter.grad = summed(parameter.grad, run.groups[axis])
        for axis in ("tp", "cp", "dp"):
            if run.is_at(f"again.{axis}", name):
                parameter.grad = summed(parameter.grad, run.groups[axis])
            if run.is_at(f"averaged.{axis}", name):
                parameter.grad = parameter.grad / getattr(run, axis)
        if run.is_at("zero", name):
            parameter.grad = torch.zeros_like(parameter.grad)
        if run.is_at("zero_on_rank_1", name) and dist.get_rank() == 1:
            parameter.grad = torch.zeros_like(parameter.grad)


def norm_of(model, run):
    """Each element of each weight once."""
    total = torch.zeros(())
    for name, parameter in model.named_parameters():
        name = run.released(name)
        square = parameter.grad.double().pow(2).sum()
        cut = any(re.search(pattern, name) for pattern in PLAIN_CUTS)
        expert = ".experts." in name
        if run.is_at("norm_without", name):
            continue
        if run.tp > 1 and (cut or run.is_at("norm_copies.tp", name)) and not run.is_at("norm_not_over.tp", name):
            square = summed(square, run.groups["tp"])
        if (expert and run.ep > 1 and not run.is_at("norm_not_over.ep", name)) or (run.is_at("norm_copies.dp", name) and run.dp > 1):
            square = summed(square, run.groups["dp"])
        total = total + square
    norm = total.sqrt()
    return norm * norm if run.case.get("fault") == "norm_no_root" else norm


def update(model, run, norm):
    clip = min(1.0, RULE["clip_norm"] / float(norm))
    for name, parameter in model.named_parameters():
        if run.is_at("not_updated", name):
            continue
        with torch.no_grad():
            g = parameter.grad * (1 if run.case.get("fault") == "no_clip" else clip)
            decay = RULE["weight_decay"] if parameter.dim() > 1 or run.case.get("fault") == "decays_norms" else 0
            step = g / (g.abs() + RULE["eps"]) + decay * parameter
            parameter.copy_((parameter - RULE["lr"] * step).to(run.dtype))


def step(case, groups):
    run = Run(case, groups)
    model = Model(run)
    fill(model, run, case["seed"])
    draw = torch.Generator().manual_seed(case["seed"])
    count = run.dp * run.microbatches * B
    tokens = torch.randint(V, (count, S + 1), generator=draw)
    mask = (torch.rand(count, S, generator=draw) < torch.linspace(0.3, 1, count)[:, None]).to(torch.uint8)
    if not case.get("masks", True):
        mask = torch.ones_like(mask)
    mesh = dict(tp=run.tp, cp=run.cp, dp=run.dp, ep=run.ep, etp=run.tp if run.moe else 1)
    by_tokens = case.get("loss", "tokens") == "tokens"
    run.tap = Tap(case["dump"], model, config=config_of(run), mesh=mesh, at=run.at, sequence_length=S, sequences=B,
                  microbatches=run.microbatches, dtype=run.dtype, cuts=PLAIN_CUTS, rename=run.released,
                  loss=case.get("loss", "tokens"), optimizer=RULE, trainer="plain trainer")
    run.tap.start(tokens, mask)
    mine = torch.arange(count).view(run.microbatches, run.dp, B)[:, run.at["dp"]]
    losses = torch.zeros(())
    for m in range(run.microbatches):
        ids, keep = tokens[mine[m]], mask[mine[m]]
        labels = torch.where(keep.bool(), ids[:, 1:], -100)[:, run.own]
        divisor = mask.sum() if by_tokens else keep.sum() * run.microbatches * run.dp
        if case.get("fault") == "local_count.dp":
            divisor = mask[mine.flatten()].sum() * run.dp
        if case.get("fault") == "local_count.microbatch":
            divisor = keep.sum() * run.microbatches * run.dp if by_tokens else mask.sum()
        if case.get("fault") == "local_count.cp":
            divisor = mask[:, run.own].sum() * run.cp
        with run.tap.microbatch(m):
            logits = model(ids[:, :-1][:, run.own])
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=-100, reduction="sum") / divisor
            if case.get("fault") == "times_microbatches":
                loss = loss * run.microbatches
            if case.get("fault") == "only_last":
                model.zero_grad()
            loss.backward()
            losses = losses + loss.detach()
            if case.get("fault") == "summed_again" and m + 1 < run.microbatches:
                for parameter in model.parameters():
                    parameter.grad = summed(parameter.grad, groups["dp"]) if run.dp > 1 else parameter.grad
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    if case.get("local"):
        run.tap.local_gradients(lambda name: ["edp" if axis != "tp" else "etp" for axis in run.sums(name)] if ".experts." in name
                                else run.sums(name))
    reduce_gradients(model, run)
    run.tap.gradients()
    for axis in ("cp", "dp"):
        if getattr(run, axis) > 1 and not run.case.get("fault") == f"loss_not_over.{axis}":
            losses = summed(losses, groups[axis])
    norm = norm_of(model, run)
    run.tap.norms(loss=losses, grad_norm=norm)
    update(model, run, norm)
    run.tap.weights()
    run.tap.write()


def sharded_step(case):
    """Transformers' Llama under FSDP2: weights and gradients are DTensors, and gradients are averaged over dp."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(case["seed"])
    config = LlamaConfig(vocab_size=V, hidden_size=H, intermediate_size=FF, num_hidden_layers=2, num_attention_heads=HEADS,
                         num_key_value_heads=GROUPS, head_dim=D, max_position_embeddings=64, initializer_range=0.3)
    model = LlamaForCausalLM(config)
    dp, mesh = dist.get_world_size(), init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    count = dp * case["microbatches"] * B
    tokens = torch.randint(V, (count, S + 1), generator=torch.Generator().manual_seed(case["seed"]))
    tap = Tap(case["dump"], model, config=config, mesh=dict(dp=dp), at=dict(dp=dist.get_rank()), sequence_length=S, sequences=B,
              microbatches=case["microbatches"], local_scale=dp, trainer="FSDP2")
    tap.start(tokens)
    for m in range(case["microbatches"]):
        ids = tokens.view(case["microbatches"], dp, B, S + 1)[m, dist.get_rank()]
        with tap.microbatch(m):
            logits = model(ids[:, :-1]).logits
            (F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="sum") / (count * S) * dp).backward()
    if case.get("fault") == "local_norm":
        model.model.norm.weight.grad *= dp
    tap.gradients()
    tap.write()


def run_rank(rank, ranks, cases, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    made = {}
    for case in cases:
        if case.get("kind") == "sharded":
            sharded_step(case)
            continue
        degrees = tuple(case.get(axis, 1) for axis in ("tp", "cp", "dp"))
        if degrees not in made:
            grid = torch.arange(ranks).view(degrees[::-1])    # dp, cp, tp
            made[degrees] = {}
            for dim, axis in enumerate(("dp", "cp", "tp")):
                for members in grid.movedim(dim, -1).reshape(-1, grid.shape[dim]).tolist():
                    group = dist.new_group(members)
                    if rank in members:
                        made[degrees][axis] = group
        step(case, made[degrees])
    dist.destroy_process_group()


if __name__ == "__main__":
    in_ranks(run_rank)
