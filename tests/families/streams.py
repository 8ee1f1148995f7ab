"""DeepSeek-V3 and LLaMA with several streams of the residual: Transformers' own hyper-connections of DeepSeek-V4 around
the blocks of their layers.

A config.json says so in its object "heddle", as Heddle writes it. Any other is the plain model.
"""
import types

from hashed_v3 import DeepseekV3ForCausalLM as HashedV3
from transformers import AutoModelForCausalLM, DeepseekV3Config, LlamaConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3DecoderLayer
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection, DeepseekV4HyperHead
from transformers.models.llama import modeling_llama


def within(connection, streams, block):
    """The streams behind a block, as DeepseekV4DecoderLayer.forward has them."""
    post, comb, x = connection(streams)
    y = block(x)
    y = y[0] if isinstance(y, tuple) else y
    return (post.to(y.dtype).unsqueeze(-1) * y.unsqueeze(-2)
            + comb.to(y.dtype).transpose(-1, -2) @ streams)


def with_streams(layer):
    class Layer(layer):
        def forward(self, hidden_states, **kwargs):
            kwargs.pop("use_cache", None)
            streams = within(self.attn_hc, hidden_states,
                             lambda x: self.self_attn(hidden_states=self.input_layernorm(x), **kwargs))
            return within(self.ffn_hc, streams, lambda x: self.mlp(self.post_attention_layernorm(x)))
    return Layer


LAYERS = {layer: with_streams(layer) for layer in (DeepseekV3DecoderLayer, modeling_llama.LlamaDecoderLayer)}


def give_streams(model, config):
    ours = getattr(config, "heddle", None) or {}
    streams = ours.get("hyper_connections", 0)
    if not streams:
        return
    sizes = types.SimpleNamespace(hc_mult=streams, hidden_size=config.hidden_size, rms_norm_eps=config.rms_norm_eps,
                                  hc_sinkhorn_iters=ours.get("hyper_connections_iterations", 20),
                                  hc_eps=ours.get("hyper_connections_eps", 1e-6))
    for layer in model.layers:
        layer.__class__ = LAYERS[type(layer)]
        layer.attn_hc, layer.ffn_hc = DeepseekV4HyperConnection(sizes), DeepseekV4HyperConnection(sizes)
    model.hc_head = DeepseekV4HyperHead(sizes)
    spread = lambda _, given: (given[0].unsqueeze(2).expand(-1, -1, streams, -1).contiguous(), *given[1:])
    model.layers[0].register_forward_pre_hook(spread)
    model.norm.register_forward_pre_hook(lambda _, given: (model.hc_head(given[0]),))


class DeepseekV3ForCausalLM(HashedV3):
    def __init__(self, config):
        super().__init__(config)
        give_streams(self.model, config)


class LlamaForCausalLM(modeling_llama.LlamaForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        give_streams(self.model, config)


AutoModelForCausalLM.register(DeepseekV3Config, DeepseekV3ForCausalLM, exist_ok=True)
AutoModelForCausalLM.register(LlamaConfig, LlamaForCausalLM, exist_ok=True)
