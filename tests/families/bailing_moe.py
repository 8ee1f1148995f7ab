"""Ling 2.0 in PyTorch, which Transformers lacks: the maths and names of the released modeling_bailing_moe_v2.py. Queries,
keys and values are one matrix; the first part of a head has positions; a group of experts counts by its best two.
"""
import torch
from torch import nn
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput


class BailingMoeConfig(PretrainedConfig):
    model_type = "bailing_moe"

    def __init__(self, vocab_size=64, hidden_size=32, num_hidden_layers=2, intermediate_size=48, rms_norm_eps=1e-6,
                 max_position_embeddings=64, tie_word_embeddings=False, num_attention_heads=4, num_key_value_heads=2,
                 head_dim=8, rope_theta=600000.0, rope_scaling=None, partial_rotary_factor=1.0, use_qkv_bias=False,
                 num_experts=8, num_experts_per_tok=2, num_shared_experts=1, moe_intermediate_size=12,
                 first_k_dense_replace=0, n_group=8, topk_group=4, routed_scaling_factor=1.0, **more):
        for name, value in locals().items():
            if name not in ("self", "more", "__class__", "tie_word_embeddings"):
                setattr(self, name, value)
        super().__init__(tie_word_embeddings=tie_word_embeddings, **more)


class Rotary(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = int(config.head_dim * config.partial_rotary_factor)
        steps = torch.arange(0, width, 2, dtype=torch.get_default_dtype()) / width
        rope = config.rope_parameters    # where Transformers 5 puts all rotary keys
        self.inv_freq = 1.0 / rope["rope_theta"] ** steps / rope.get("factor", 1.0)    # "linear", the only one drawn

    def forward(self, x):    # [B, heads, S, D]
        angles = torch.arange(x.shape[-2])[:, None] * self.inv_freq
        angles = torch.cat((angles, angles), -1)
        turned, rest = x[..., :angles.shape[-1]], x[..., angles.shape[-1]:]
        first, second = turned.chunk(2, -1)
        other = torch.cat((-second, first), -1)
        return torch.cat((turned * angles.cos().to(x.dtype) + other * angles.sin().to(x.dtype), rest), -1)


class RMSNorm(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps))


class MLP(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(hidden, width, bias=False), nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.num_experts, config.hidden_size))
        self.expert_bias = nn.Buffer(torch.zeros(config.num_experts))

    def forward(self, x_TH):
        c = self.config
        scores = functional.linear(x_TH, self.weight).sigmoid()
        wanted = (scores + self.expert_bias).detach()
        groups = wanted.view(len(x_TH), c.n_group, -1).topk(2, -1)[0].sum(-1).topk(c.topk_group, -1)[1]
        open_to = torch.zeros(len(x_TH), c.n_group, dtype=torch.bool).scatter(1, groups, True)
        wanted = wanted.masked_fill(~open_to.repeat_interleave(c.num_experts // c.n_group, 1), float("-inf"))
        chosen = wanted.topk(c.num_experts_per_tok, -1)[1]
        gates = scores.gather(1, chosen)
        if c.num_experts_per_tok > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        return chosen, gates * c.routed_scaling_factor


class Experts(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = Gate(config)
        self.experts = nn.ModuleList(MLP(config.hidden_size, config.moe_intermediate_size)
                                     for _ in range(config.num_experts))
        if config.num_shared_experts:
            self.shared_experts = MLP(config.hidden_size, config.num_shared_experts * config.moe_intermediate_size)

    def forward(self, x):
        rows = x.flatten(0, 1)
        chosen, gates = self.gate(rows)
        parts = []
        for e, expert in enumerate(self.experts):
            parts.append(expert(rows) * (gates * (chosen == e)).sum(-1, keepdim=True))
        y = torch.stack(parts).sum(0).view_as(x)
        return y + self.shared_experts(x) if hasattr(self, "shared_experts") else y


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.heads, self.kv_heads, self.width = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.query_key_value = nn.Linear(config.hidden_size, (self.heads + 2 * self.kv_heads) * self.width,
                                         bias=config.use_qkv_bias)
        self.query_layernorm = RMSNorm(self.width, config.rms_norm_eps)
        self.key_layernorm = RMSNorm(self.width, config.rms_norm_eps)
        self.dense = nn.Linear(self.heads * self.width, config.hidden_size, bias=False)

    def forward(self, x, mask, rotary):
        joint = self.query_key_value(x).unflatten(-1, (-1, self.width)).transpose(1, 2)
        q, k, v = joint.split([self.heads, self.kv_heads, self.kv_heads], 1)
        q, k = rotary(self.query_layernorm(q)), rotary(self.key_layernorm(k))
        k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        scores = q @ k.transpose(-1, -2) / self.width ** 0.5 + mask
        return self.dense((scores.softmax(-1) @ v).transpose(1, 2).flatten(-2))


class Layer(nn.Module):
    def __init__(self, config, index):
        super().__init__()
        self.attention = Attention(config)
        self.mlp = (MLP(config.hidden_size, config.intermediate_size) if index < config.first_k_dense_replace
                    else Experts(config))
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x, mask, rotary):
        x = x + self.attention(self.input_layernorm(x), mask, rotary)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, l) for l in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.rotary_emb = Rotary(config)

    def forward(self, ids, mask):
        x = self.word_embeddings(ids)
        for layer in self.layers:
            x = layer(x, mask, self.rotary_emb)
        return self.norm(x)


class BailingMoeV2ForCausalLM(PreTrainedModel, GenerationMixin):
    config_class = BailingMoeConfig
    _tied_weights_keys = {"lm_head.weight": "model.word_embeddings.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.word_embeddings

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, labels=None, attention_mask=None, **_):
        length = input_ids.shape[1]
        if attention_mask is None:
            unseen = torch.ones(length, length).triu(1).bool()
            attention_mask = torch.zeros(length, length, dtype=self.dtype).masked_fill(unseen, torch.finfo(self.dtype).min)
        logits = self.lm_head(self.model(input_ids, attention_mask))
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size)
        return CausalLMOutput(loss=loss, logits=logits)


AutoConfig.register(BailingMoeConfig.model_type, BailingMoeConfig)
AutoModelForCausalLM.register(BailingMoeConfig, BailingMoeV2ForCausalLM)
