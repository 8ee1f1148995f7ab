"""The strongest plain PyTorch training model of the DeepSeek-V3 architecture that we know how to write for CPUs.

Same arithmetic as DeepseekV3ForCausalLM (MLA, sigmoid router with a selection bias, shared experts, no groups), with
the choices that make PyTorch fast on a CPU:
- projections that read the same input are one matrix product;
- attention skips the key blocks above the diagonal and uses library matrix products; its backward is written out;
- experts are grouped by expert. Where experts are small, one batched product over rows padded to the fullest expert
  beats a loop of small products; where they are large, a loop over exact slices does. Whichever costs less is taken
  from the step's counts. No token is dropped. The gate weight is applied before the down projection;
- logits' gradient is made in the forward pass, in chunks that stay in cache, so that log-probabilities are never stored;
- `compiled_pieces` lets TorchInductor fuse the element-wise runs between those calls.

Shape letters: B sequences, S positions, T = B*S tokens, H hidden, h heads, D query/key width of a head, V value width
of a head, E experts, K chosen per token, R rows of the expert buffers, F expert width.
"""
import math

import torch
from torch import nn
from torch.nn import functional as F

ATTENTION_BLOCK = 128       # query rows handled together
LOSS_CHUNK = 256            # token rows whose log-probabilities exist at one time
EXPERT_CALLS_SECONDS = 6 * 40e-6   # what an expert's six products cost more when called one by one, measured
PADDED_SPEED = {torch.float32: 2e11, torch.bfloat16: 1.9e12}   # FLOP/s of the products on padding rows, measured
# oneDNN generates code for every new bfloat16 shape, which takes 1-3 ms: round row counts so that shapes recur.
ROW_ROUNDING = {torch.float32: 8, torch.bfloat16: 64}


class CausalAttention(torch.autograd.Function):
    """softmax(q kT) v with q already scaled; q, k [B*h, S, D], v [B*h, S, V]."""

    @staticmethod
    def forward(ctx, q, k, v):
        sequence = q.shape[1]
        out = torch.empty_like(v)
        hidden = torch.full((ATTENTION_BLOCK, ATTENTION_BLOCK), -math.inf, dtype=q.dtype).triu_(1)
        weights = []
        for start in range(0, sequence, ATTENTION_BLOCK):
            end = min(start + ATTENTION_BLOCK, sequence)
            scores = torch.bmm(q[:, start:end], k[:, :end].transpose(1, 2))
            scores[:, :, start:].add_(hidden[: end - start, : end - start])
            weights.append(torch.softmax(scores, dim=-1))
            out[:, start:end] = torch.bmm(weights[-1], v[:, :end])
        ctx.save_for_backward(q, k, v, *weights)
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, *weights = ctx.saved_tensors
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for i, p in enumerate(weights):
            start = i * ATTENTION_BLOCK
            end = start + p.shape[1]
            do = dout[:, start:end]
            dv[:, :end] += torch.bmm(p.transpose(1, 2), do)
            dp = torch.bmm(do, v[:, :end].transpose(1, 2))
            ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
            dq[:, start:end] = torch.bmm(ds, k[:, :end])
            dk[:, :end] += torch.bmm(ds.transpose(1, 2), q[:, start:end])
        return dq, dk, dv


def gated_swiglu(gate_up_R2F, gate_R):
    gate_RF, up_RF = gate_up_R2F.chunk(2, dim=-1)
    return F.silu(gate_RF) * up_RF * gate_R.to(up_RF.dtype).unsqueeze(-1)


def gated_swiglu_backward(da_RF, gate_up_R2F, gate_R):
    """Returns the gradient of gate_up and of the gate weight."""
    dtype = gate_up_R2F.dtype
    g, u = (part.float() for part in gate_up_R2F.chunk(2, dim=-1))
    da = da_RF.float()
    sigmoid = torch.sigmoid(g)
    silu = g * sigmoid
    dgate_R = (da * silu * u).sum(-1)
    da = da * gate_R.unsqueeze(-1)
    dg = da * u * (sigmoid + silu * (1 - sigmoid))
    return torch.cat([dg.to(dtype), (da * silu).to(dtype)], dim=-1), dgate_R


class Groups:
    """Rows of the expert buffers: expert e owns sizes[e] rows, one expert after the other, padding rows last."""

    def __init__(self, chosen_TK, experts, flops_per_row, dtype):
        tokens, k = chosen_TK.shape
        flat = chosen_TK.reshape(-1)
        order = torch.argsort(flat, stable=True)
        counts = torch.bincount(flat, minlength=experts)
        rounding = ROW_ROUNDING[dtype]
        sizes = (counts + rounding - 1) // rounding * rounding
        capacity = int(sizes.max())
        extra_seconds = (experts * capacity - int(sizes.sum())) * flops_per_row / PADDED_SPEED[dtype]
        self.batched = extra_seconds < experts * EXPERT_CALLS_SECONDS
        if self.batched:
            sizes.fill_(capacity)
        self.experts, self.sizes, rows = experts, sizes.tolist(), int(sizes.sum())
        # Position among the sorted choices, shifted by the padding of the experts before.
        shift = (sizes.cumsum(0) - sizes) - (counts.cumsum(0) - counts)
        row_of_sorted = torch.arange(tokens * k) + shift.repeat_interleave(counts)
        self.row_of_choice = torch.empty_like(order)
        self.row_of_choice[order] = row_of_sorted
        # A padding row repeats some token with gate weight 0, so it adds exactly nothing anywhere.
        self.token_of_row = torch.zeros(rows, dtype=torch.int64)
        self.token_of_row[row_of_sorted] = order // k

    def product(self, x_RA, w_EAB):
        if self.batched:
            return torch.bmm(x_RA.view(self.experts, -1, x_RA.shape[1]), w_EAB).flatten(0, 1)
        out = x_RA.new_empty(x_RA.shape[0], w_EAB.shape[2])
        start = 0
        for expert, size in enumerate(self.sizes):
            if size:
                torch.mm(x_RA[start:start + size], w_EAB[expert], out=out[start:start + size])
            start += size
        return out

    def weight_gradient(self, dy_RB, x_RA):
        """[E, B, A]: per expert dyT x."""
        if self.batched:
            return torch.bmm(dy_RB.view(self.experts, -1, dy_RB.shape[1]).transpose(1, 2),
                             x_RA.view(self.experts, -1, x_RA.shape[1]))
        out = x_RA.new_zeros(self.experts, dy_RB.shape[1], x_RA.shape[1])
        start = 0
        for expert, size in enumerate(self.sizes):
            if size:
                torch.mm(dy_RB[start:start + size].t(), x_RA[start:start + size], out=out[expert])
            start += size
        return out


class Experts(torch.autograd.Function):
    """x_TH, gates_TK (fp32), chosen_TK, w_gate_up [E,2F,H], w_down [E,H,F] -> [T,H]."""

    forward_pointwise = staticmethod(gated_swiglu)
    backward_pointwise = staticmethod(gated_swiglu_backward)

    @staticmethod
    def forward(ctx, x_TH, gates_TK, chosen_TK, w_gate_up, w_down):
        groups = Groups(chosen_TK, w_down.shape[0], 18 * w_down[0].numel(), x_TH.dtype)
        gate_R = gates_TK.new_zeros(len(groups.token_of_row))
        gate_R[groups.row_of_choice] = gates_TK.reshape(-1)
        x_RH = x_TH.index_select(0, groups.token_of_row)
        gate_up = groups.product(x_RH, w_gate_up.transpose(1, 2))
        a_RF = Experts.forward_pointwise(gate_up, gate_R)
        y_RH = groups.product(a_RF, w_down.transpose(1, 2))
        ctx.save_for_backward(x_RH, gate_R, gate_up, a_RF, w_gate_up, w_down)
        ctx.groups = groups
        return y_RH.index_select(0, groups.row_of_choice).view(*chosen_TK.shape, -1).sum(1)

    @staticmethod
    def backward(ctx, dout_TH):
        x_RH, gate_R, gate_up, a_RF, w_gate_up, w_down = ctx.saved_tensors
        groups, tokens = ctx.groups, dout_TH.shape[0]
        dy_RH = dout_TH.index_select(0, groups.token_of_row)
        dw_down = groups.weight_gradient(dy_RH, a_RF)
        dgate_up, dgate_R = Experts.backward_pointwise(groups.product(dy_RH, w_down), gate_up, gate_R)
        dw_gate_up = groups.weight_gradient(dgate_up, x_RH)
        dx_RH = groups.product(dgate_up, w_gate_up)
        dx_TH = dx_RH.index_select(0, groups.row_of_choice).view(tokens, -1, dx_RH.shape[1]).sum(1)
        return dx_TH, dgate_R[groups.row_of_choice].view(tokens, -1), None, dw_gate_up, dw_down


def loss_chunk(logits, labels, weight):
    """Sum of the losses of some rows, and the gradient of weight * that sum in the logits' type."""
    log_p = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    safe = labels.clamp(min=0).unsqueeze(1)
    valid = (labels >= 0).float().unsqueeze(1)
    loss = -(log_p.gather(1, safe) * valid).sum()
    hit = torch.arange(logits.shape[1]).unsqueeze(0) == safe
    return loss, ((log_p.exp() - hit.float()) * (valid * weight)).to(logits.dtype)


def loss_chunk_eager(logits, labels, weight):
    """The same with in-place steps, which is quicker when nothing fuses them."""
    p = torch.log_softmax(logits, dim=-1, dtype=torch.float32)
    safe = labels.clamp(min=0).unsqueeze(1)
    valid = (labels >= 0).float().unsqueeze(1)
    loss = -(p.gather(1, safe) * valid).sum()
    p.exp_().scatter_add_(1, safe, torch.full_like(valid, -1.0)).mul_(valid * weight)
    return loss, p.to(logits.dtype)


class HeadLoss(torch.autograd.Function):
    """Mean cross-entropy of x_TH w_headT over labels >= 0."""

    pointwise = staticmethod(loss_chunk_eager)

    @staticmethod
    def forward(ctx, x_TH, w_head, labels_T):
        weight = 1.0 / int((labels_T >= 0).sum())
        dlogits = x_TH.new_empty(x_TH.shape[0], w_head.shape[0])
        total = 0.0
        for x, labels, d in zip(x_TH.split(LOSS_CHUNK), labels_T.split(LOSS_CHUNK), dlogits.split(LOSS_CHUNK)):
            loss, gradient = HeadLoss.pointwise(F.linear(x, w_head), labels, weight)
            d.copy_(gradient)
            total = total + loss
        ctx.save_for_backward(x_TH, w_head, dlogits)
        return total * weight

    @staticmethod
    def backward(ctx, upstream):
        x_TH, w_head, dlogits = ctx.saved_tensors
        factor = float(upstream)
        dx, dw = torch.mm(dlogits, w_head), torch.mm(dlogits.t(), x_TH)
        return (dx, dw, None) if factor == 1.0 else (dx.mul_(factor), dw.mul_(factor), None)


class Layer(nn.Module):
    def __init__(self, shape, dense):
        super().__init__()
        s = shape
        self.heads, self.nope, self.rope, self.v = (s["num_attention_heads"], s["qk_nope_head_dim"],
                                                    s["qk_rope_head_dim"], s["v_head_dim"])
        self.q_rank, self.kv_rank = s["q_lora_rank"], s["kv_lora_rank"]
        self.eps, self.dense, h = s["rms_norm_eps"], dense, s["hidden_size"]
        qk = self.heads * (self.nope + self.rope)
        weight = lambda *size: nn.Parameter(torch.randn(*size) * s["initializer_range"])
        gain = lambda n: nn.Parameter(torch.ones(n))
        self.norm_1, self.norm_2, self.kv_norm = gain(h), gain(h), gain(self.kv_rank)
        self.w_in = weight((self.q_rank or qk) + self.kv_rank + self.rope, h)
        if self.q_rank:
            self.q_norm, self.w_q = gain(self.q_rank), weight(qk, self.q_rank)
        self.w_kv = weight(self.heads * (self.nope + self.v), self.kv_rank)
        self.w_o = weight(h, self.heads * self.v)
        width = s["intermediate_size"] if dense else s["moe_intermediate_size"] * s["n_shared_experts"]
        self.w_gate_up, self.w_down = weight(2 * width, h), weight(h, width)
        if not dense:
            self.k, self.scale = s["num_experts_per_tok"], s["routed_scaling_factor"]
            self.w_router = weight(s["n_routed_experts"], h)
            self.register_buffer("bias", torch.zeros(s["n_routed_experts"]))
            self.w_experts_gate_up = weight(s["n_routed_experts"], 2 * s["moe_intermediate_size"], h)
            self.w_experts_down = weight(s["n_routed_experts"], h, s["moe_intermediate_size"])

    def norm(self, x, g):
        return F.rms_norm(x, (x.shape[-1],), g, self.eps)

    def turn(self, x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def before_attention(self, x_BSH, cos, sin):
        """q, k [B*h, S, D], v [B*h, S, V]."""
        batch, sequence, _ = x_BSH.shape
        q, latent, k_rope = F.linear(self.norm(x_BSH, self.norm_1), self.w_in).split(
            [self.w_in.shape[0] - self.kv_rank - self.rope, self.kv_rank, self.rope], dim=-1)
        if self.q_rank:
            q = F.linear(self.norm(q, self.q_norm), self.w_q)
        q = q.view(batch, sequence, self.heads, -1).transpose(1, 2) * (self.nope + self.rope) ** -0.5
        q = torch.cat([q[..., :self.nope], self.turn(q[..., self.nope:], cos, sin)], dim=-1)
        kv = F.linear(self.norm(latent, self.kv_norm), self.w_kv).view(batch, sequence, self.heads, -1).transpose(1, 2)
        k_rope = self.turn(k_rope, cos, sin).unsqueeze(1).expand(-1, self.heads, -1, -1)
        k = torch.cat([kv[..., :self.nope], k_rope], dim=-1)
        return q.flatten(0, 1), k.flatten(0, 1), kv[..., self.nope:].contiguous().flatten(0, 1)

    def after_attention(self, x_BSH, o):
        """The residual stream and, normed, what the feed-forward part reads."""
        batch, sequence, _ = x_BSH.shape
        o = o.view(batch, self.heads, sequence, self.v).transpose(1, 2).reshape(batch, sequence, -1)
        x_BSH = x_BSH + F.linear(o, self.w_o)
        return x_BSH, self.norm(x_BSH, self.norm_2).flatten(0, 1)

    def feed_forward(self, x_TH):
        gate, up = F.linear(x_TH, self.w_gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.w_down)

    def route(self, x_TH):
        scores = F.linear(x_TH.float(), self.w_router.float()).sigmoid()
        chosen = torch.topk(scores + self.bias, self.k, dim=-1, sorted=False).indices
        gates = scores.gather(1, chosen)
        return gates / (gates.sum(-1, keepdim=True) + 1e-20) * self.scale, chosen

    def forward(self, x_BSH, cos, sin):
        o = CausalAttention.apply(*self.before_attention(x_BSH, cos, sin))
        x_BSH, y_TH = self.after_attention(x_BSH, o)
        out = self.feed_forward(y_TH)
        if not self.dense:
            gates, chosen = self.route(y_TH)
            out = out + Experts.apply(y_TH, gates, chosen, self.w_experts_gate_up, self.w_experts_down)
        return x_BSH + out.view_as(x_BSH)


class Model(nn.Module):
    """forward(ids_BS) -> mean next-token cross-entropy over the B*(S-1) positions that have a successor."""

    def __init__(self, shape, compiled_pieces=False):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(shape["vocab_size"], shape["hidden_size"]) * shape["initializer_range"])
        self.head = nn.Parameter(torch.randn(shape["vocab_size"], shape["hidden_size"]) * shape["initializer_range"])
        self.norm, self.eps = nn.Parameter(torch.ones(shape["hidden_size"])), shape["rms_norm_eps"]
        self.layers = nn.ModuleList(Layer(shape, dense=i < shape["first_k_dense_replace"])
                                    for i in range(shape["num_hidden_layers"]))
        pair = torch.arange(0, shape["qk_rope_head_dim"], 2) / shape["qk_rope_head_dim"]
        self.angles = torch.outer(torch.arange(shape["sequence"]).float(), shape["rope_theta"] ** -pair)
        self.last_norm = lambda x: F.rms_norm(x, (x.shape[-1],), self.norm, self.eps)
        if compiled_pieces:
            Experts.forward_pointwise = staticmethod(torch.compile(gated_swiglu, dynamic=True))
            Experts.backward_pointwise = staticmethod(torch.compile(gated_swiglu_backward, dynamic=True))
            HeadLoss.pointwise = staticmethod(torch.compile(loss_chunk, dynamic=False))
            self.last_norm = torch.compile(self.last_norm, dynamic=False)
            for piece in ("before_attention", "after_attention", "feed_forward", "route"):
                setattr(Layer, piece, torch.compile(getattr(Layer, piece), dynamic=False))   # shared by the layers

    def forward(self, ids_BS):
        dtype = self.embed.dtype
        cos, sin = self.angles.cos().to(dtype), self.angles.sin().to(dtype)
        x_BSH = F.embedding(ids_BS, self.embed)
        for layer in self.layers:
            x_BSH = layer(x_BSH, cos, sin)
        labels = F.pad(ids_BS[:, 1:], (0, 1), value=-100).flatten()
        return HeadLoss.apply(self.last_norm(x_BSH).flatten(0, 1), self.head, labels)
