"""Step-3.5's text model as Transformers 5 has it, with the head that it has no class for, and the released names."""
import json
import pathlib

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, GenerationMixin
from transformers.modeling_outputs import CausalLMOutput
from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig
from transformers.models.step3p7.modeling_step3p7 import Step3p7PreTrainedModel, Step3p7TextModel

NAMES = ((".mlp.gate.weight", ".moe.gate.weight"), (".mlp.gate.e_score_correction_bias", ".moe.router_bias"),
         (".mlp.shared_experts.", ".share_expert."), (".mlp.experts.down_proj", ".moe.down_proj.weight"))
JOINT = ".mlp.experts.gate_up_proj"    # of the class here; files hold two tensors


class Step3p5ForCausalLM(Step3p7PreTrainedModel, GenerationMixin):
    config_class = Step3p7TextConfig
    base_model_prefix = "model"
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = Step3p7TextModel(config)
        self.model.embed_tokens.padding_idx = None    # whose row would not be trained
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self):
        return self.model.embed_tokens

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, labels=None, **keys):
        logits = self.lm_head(self.model(input_ids=input_ids, **keys).last_hidden_state)
        loss = None if labels is None else self.loss_function(logits, labels, self.config.vocab_size)
        return CausalLMOutput(loss=loss, logits=logits)

    def save_pretrained(self, folder, **_):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.config.architectures = [type(self).__name__]
        (folder / "config.json").write_text(self.config.to_json_string())
        tensors = {}
        for name, tensor in self.state_dict().items():
            if name == "lm_head.weight" and self.config.tie_word_embeddings:
                continue
            for ours, theirs in NAMES:
                name = name.replace(ours, theirs)
            if JOINT in name:
                for matrix, half in zip(("gate_proj", "up_proj"), tensor.chunk(2, 1)):
                    tensors[name.replace(JOINT, f".moe.{matrix}.weight")] = half.clone()
            else:
                tensors[name] = tensor.clone()
        save_file(tensors, folder / "model.safetensors")

    @classmethod
    def from_pretrained(cls, folder, dtype=None, attn_implementation=None, **keys):
        keys = json.loads((pathlib.Path(folder) / "config.json").read_text())
        config = Step3p7TextConfig(**{k: v for k, v in keys.items() if k not in ("architectures", "model_type")})
        config._attn_implementation = attn_implementation
        config._experts_implementation = "eager"
        model = cls(config)
        tensors = {}
        for name, tensor in load_file(pathlib.Path(folder) / "model.safetensors").items():
            for ours, theirs in NAMES:
                name = name.replace(theirs, ours)
            tensors[name] = tensor
        for name in [name for name in tensors if name.endswith(".moe.gate_proj.weight")]:
            layer = name.removesuffix(".moe.gate_proj.weight")
            tensors[layer + JOINT] = torch.cat([tensors.pop(f"{layer}.moe.{m}.weight") for m in ("gate_proj", "up_proj")], 1)
        model.load_state_dict(tensors, strict=not config.tie_word_embeddings)
        model.tie_weights()
        return model.to(dtype).eval()


AutoModelForCausalLM.register(Step3p7TextConfig, Step3p5ForCausalLM, exist_ok=True)
