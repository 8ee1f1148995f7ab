"""DeepSeek-V3 whose first layers choose experts by token id: Transformers' own router of DeepSeek-V4 in their place.

A config.json says so in its object "heddle", as Heddle writes it. Any other is plain DeepSeek-V3.
"""
import copy

from transformers import AutoModelForCausalLM, DeepseekV3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HashRouter


class Gate(DeepseekV4HashRouter):
    def __init__(self, config):
        of_v4 = copy.copy(config)
        of_v4.scoring_func = "sqrtsoftplus" if config.heddle.get("softplus_scores") else "sigmoid"
        super().__init__(of_v4)

    def forward(self, hidden_states):
        return super().forward(hidden_states, self.input_ids)


class DeepseekV3ForCausalLM(modeling_deepseek_v3.DeepseekV3ForCausalLM):
    def __init__(self, config):
        super().__init__(config)
        self.gates = []
        for layer in self.model.layers[:getattr(config, "heddle", {}).get("num_hash_layers", 0)]:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate = Gate(config)
                self.gates.append(layer.mlp.gate)

    def forward(self, input_ids=None, **more):
        for gate in self.gates:
            gate.input_ids = input_ids
        return super().forward(input_ids=input_ids, **more)


AutoModelForCausalLM.register(DeepseekV3Config, DeepseekV3ForCausalLM, exist_ok=True)
