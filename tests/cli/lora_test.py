"""Runs with adapters: what stays frozen, checkpoints, other layouts, PEFT's files and merged models."""
import json
import shutil
import struct
import unittest

from program import Program
from tiny_toml import TINY_MODEL, tiny_toml

MODEL = dict(vocab_size=300, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, attention="grouped",
             num_key_value_heads=1, head_dim=8, qk_norm=True, rope_interleave=False, n_routed_experts=4,
             num_experts_per_tok=2, n_shared_experts=0, first_k_dense_replace=0, moe_intermediate_size=32,
             sigmoid_scores=False, topk_bias=False)
LORA = ["--set", "lora.rank=3", "--set", "lora.alpha=6", "--set", "lora.targets=attention, experts"]
MODULES = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


def adapters(model):
    return tiny_toml(model, {"folder": "prepared-adapters"}, {"dtype": "f32"}, "adapters", steps=4, global_batch=4,
                     microbatch=2, sequence_length=32, warmup_steps=1, decay_steps=1, learning_rate=0.01, eval_every=4,
                     eval_sequences=4, checkpoint_every=2, keep_checkpoints=9, sample_tokens=0)


def tensors(path):
    """Of a safetensors file: name to (shape, values in f32)."""
    raw = path.read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, t in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = t["data_offsets"]
        assert t["dtype"] == "F32", (name, t["dtype"])
        found[name] = (t["shape"], struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size + begin:8 + size + end]))
    return found


class Lora(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "adapters.toml").write_text(adapters(MODEL))
        test = cls("run_all")
        test.heddle("train", "adapters.toml", "--set", "output=base")
        test.train("run")

    def run_all(self):
        """So that the class can run the program."""

    def train(self, run, *more, base="base"):
        return self.heddle("train", "adapters.toml", "--set", f"output={run}", "--set", f"train.start={base}",
                           "--set", "lora.rank=3", *LORA, *more)

    def state(self, run, step=4):
        return json.loads((self.folder / run / f"checkpoints/step-{step:06}/state.json").read_text())["state"]

    def weights(self, run, step=4):
        return tensors(self.folder / run / f"checkpoints/step-{step:06}/model.safetensors")

    def test_a_checkpoint_holds_adapters_alone_and_says_beside_what(self):
        weights = self.weights("run")
        masters = {name for name in weights if not name.startswith(("m.", "v."))}
        self.assertTrue(masters and all("lora_" in name for name in masters), masters)
        self.assertEqual(set(weights), {prefix + name for name in masters for prefix in ("", "m.", "v.")})
        adapters = self.state("run")["adapters"]
        self.assertEqual((adapters["rank"], adapters["alpha"]), ("3", "6"))
        self.assertTrue(adapters["base"].endswith("base/checkpoints/step-000004"))
        for name in masters:
            self.assertTrue(any(weights[name][1]), name)  # B has left its zeros

    def test_a_run_goes_on_in_another_layout(self):
        self.train("part")
        shutil.rmtree(self.folder / "part/checkpoints/step-000004")    # as if it had been stopped after step 2
        whole = self.losses("run")
        done = self.heddle("train", "adapters.toml", "--set", "output=part", "--set", "train.start=base", *LORA, "--resume",
                           "--ranks", "2", "--set", "mesh.ep=2", "--set", "train.microbatch=1")
        part = self.losses("part")
        self.assertEqual(sorted(part), [1, 2, 3, 4], done.stderr)
        self.assertEqual((part[1], part[2]), (whole[1], whole[2]))
        for step in (3, 4):
            self.assertAlmostEqual(part[step], whole[step], places=4)

    def test_frozen_weights_of_the_seed_in_bf16_come_again(self):
        options = ("--set", "device.dtype=bf16", *LORA, "--set", "train.start=")
        self.heddle("train", "adapters.toml", "--set", "output=drawn", *options)
        self.assertEqual(self.state("drawn")["adapters"]["base"], "")
        logged = json.loads((self.folder / "drawn/metrics.jsonl").read_text().splitlines()[-1])["held_out_loss"]
        scored = json.loads(self.heddle("eval", "drawn", "--limit", "4", "--json").stdout)["texts"][0]["loss"]
        self.assertAlmostEqual(scored["mean"] if isinstance(scored, dict) else scored, logged, places=6)
        self.assertIn("drawn from the seed", self.heddle("convert", "drawn", "--to", "x", "--merge", status=2).stderr)

    def test_what_does_not_go_together_is_refused(self):
        for says, arguments in (
                ("holds adapters alone", ("train", "adapters.toml", "--set", "output=x", "--set", "train.start=run")),
                ("--adapter writes them", ("convert", "run", "--to", "x")),
                ("holds no adapters", ("convert", "base", "--to", "x", "--merge")),
                ("the model has no 'z_proj'",
                 ("inspect", "adapters.toml", "--set", "lora.rank=2", "--set", "lora.targets=z_proj")),
                ("gate_proj and up_proj are one product",
                 ("inspect", "adapters.toml", "--set", "lora.rank=2", "--set", "lora.targets=gate_proj")),
                ("lora.dropout", ("inspect", "adapters.toml", "--set", "lora.dropout=0.1"))):
            with self.subTest(says):
                self.assertIn(says, self.heddle(*arguments, status=2).stderr)

    def test_other_weights_beneath_are_noticed(self):
        self.heddle("train", "adapters.toml", "--set", "output=other", "--set", "seed=2")
        self.train("moved", base="other")
        state = self.folder / "other/checkpoints"
        for step in ("step-000002", "step-000004"):
            (state / step).rename(state / f"away-{step}")
        source = self.folder / "base/checkpoints/step-000004"
        (state / "step-000004").mkdir()
        for name in ("model.safetensors", "state.json"):
            (state / "step-000004" / name).write_bytes((source / name).read_bytes())
        self.assertIn("belong to other frozen weights", self.heddle("eval", "moved", status=2).stderr)

    def test_pefts_files_have_published_names_and_come_back(self):
        self.heddle("convert", "run", "--to", "adapter", "--adapter")
        config = json.loads((self.folder / "adapter/adapter_config.json").read_text())
        self.assertEqual((config["r"], config["lora_alpha"], config["target_modules"]), (3, 6, MODULES))
        found, own = tensors(self.folder / "adapter/adapter_model.safetensors"), self.weights("run")
        prefix = "base_model.model.model.layers.1."
        self.assertEqual(found[prefix + "self_attn.q_proj.lora_A.weight"],
                         own["model.layers.1.self_attn.q_proj.lora_A.weight"])
        shape, joint = own["model.layers.1.mlp.experts.gate_up_proj.lora_A.weight"]  # [4, 2·3, 32]
        self.assertEqual(shape, [4, 6, 32])
        self.assertEqual(found[prefix + "mlp.experts.2.up_proj.lora_A.weight"],
                         ([3, 32], joint[2 * 192 + 96:3 * 192]))
        # A run that begins from them, and at a rate of zero stays there, leaves the same file.
        self.train("again", "--set", "train.start_adapter=adapter", "--steps", "2", "--set", "train.learning_rate=0",
                   "--set", "train.min_learning_rate=0", "--ranks", "2", "--set", "mesh.tp=1")
        self.heddle("convert", "again", "--to", "adapter-again", "--adapter")
        self.assertEqual(tensors(self.folder / "adapter-again/adapter_model.safetensors"), found)

    def test_an_adapter_names_weights_beneath_that_can_be_loaded(self):
        base = lambda folder: json.loads((self.folder / folder / "adapter_config.json").read_text())[
            "base_model_name_or_path"]
        # Over a run that was trained: exported beside the adapter, and a model with the run's own weights.
        told = self.heddle("convert", "run", "--to", "over-run", "--adapter", "--dtype", "f32").stderr
        self.assertIn("base_model_name_or_path is", told)
        self.assertEqual(base("over-run"), str((self.folder / "over-run/base").resolve()))
        self.heddle("convert", "base", "--to", "base-itself", "--dtype", "f32")
        self.assertEqual(tensors(self.folder / "over-run/base/model.safetensors"),
                         tensors(self.folder / "base-itself/model.safetensors"))
        # Over a released folder, and over what heddle convert has made of one: that folder.
        for start in ("base-itself", "base-taken-in"):
            if start == "base-taken-in":
                self.heddle("convert", "base-itself", "--to", start)
            self.train(f"on-{start}", "--steps", "1", base=start)
            self.heddle("convert", f"on-{start}", "--to", f"over-{start}", "--adapter")
            self.assertEqual(base(f"over-{start}"), str((self.folder / "base-itself").resolve()))
            self.assertFalse((self.folder / f"over-{start}/base").exists())
        self.heddle("convert", "run", "--to", "named", "--adapter", "--base", "somebody/model")
        self.assertEqual(base("named"), "somebody/model")
        self.assertFalse((self.folder / "named/base").exists())
        self.assertIn("--base is for an adapter", self.heddle("convert", "base", "--to", "x", "--base", "y", status=2).stderr)

    def test_text_is_generated_with_an_adapter_beside_a_run(self):
        options = ("--prompt", "the", "--tokens", "12", "--temperature", "0", "--json", "--set", "device.dtype=f32",
                   "--set", "train.sequence_length=32")
        self.heddle("convert", "run", "--to", "beside", "--adapter", "--base", "base")
        said = lambda *arguments: json.loads(self.heddle("generate", *arguments, *options).stdout)
        both, own = said("base", "--adapter", "beside"), said("run")
        self.assertEqual(both["continuation"], own["continuation"])
        self.assertEqual((both["step"], both["adapter"], both["cache"]), (4, "beside", True))
        self.assertNotEqual(both["continuation"], said("base")["continuation"])
        self.assertIn("has adapters of its own",
                      self.heddle("generate", "run", "--adapter", "beside", status=2).stderr)
        config = self.folder / "beside/adapter_config.json"
        whole = json.loads(config.read_text())
        for change, says in (({"r": 0}, "'r' is 0, accepted: a number"), ({"use_dora": True}, "use_dora"), ({"use_qalora": True}, "use_qalora"),
                             ({"layer_replication": [[0, 1], [0, 1]]}, "layer_replication"),
                             ({"peft_type": "IA3"}, '\'peft_type\' is "IA3"')):
            config.write_text(json.dumps({**whole, **change}))
            self.assertIn(says, self.heddle("generate", "base", "--adapter", "beside", status=2).stderr)

    def test_the_cache_of_latents_has_adapters_too(self):
        """Of DeepSeek's attention, whose up-projection a cache reads in the absorbed form."""
        (self.folder / "latent.toml").write_text(adapters(TINY_MODEL))
        self.heddle("train", "latent.toml", "--set", "output=latent-base")
        self.heddle("train", "latent.toml", "--set", "output=latent", "--set", "train.start=latent-base", "--set",
                    "lora.rank=3", "--set", "lora.alpha=90", "--set", "lora.targets=attention, experts.down_proj")
        self.heddle("convert", "latent", "--to", "latent-adapter", "--adapter", "--base", "latent-base")
        options = ("--prompt", "the shuttle", "--tokens", "20", "--temperature", "0", "--set", "device.dtype=f32")
        texts = [self.heddle("generate", *arguments, *options).stdout for arguments in (
            ("latent",), ("latent", "--no-cache"), ("latent-base", "--adapter", "latent-adapter"), ("latent-base",))]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0], texts[3])

    def test_a_merged_model_says_the_same(self):
        self.heddle("convert", "run", "--to", "merged", "--merge", "--dtype", "f32")
        self.heddle("convert", "base", "--to", "base-released", "--dtype", "f32")
        self.heddle("convert", "merged", "--to", "merged-run")
        options = ("--text", "text.txt", "--limit", "4", "--no-heldout", "--json")
        both = [json.loads(self.heddle("eval", run, *options, "--set", "device.dtype=f32", "--set",
                                       "train.sequence_length=32").stdout) for run in ("run", "merged-run", "base")]
        loss = [of["texts"][0]["loss"]["mean"] if isinstance(of["texts"][0]["loss"], dict) else of["texts"][0]["loss"]
                for of in both]
        self.assertAlmostEqual(loss[0], loss[1], places=5)
        self.assertGreater(abs(loss[0] - loss[2]), 1e-3)
        words = [self.heddle("generate", run, "--prompt", "the", "--tokens", "8", "--temperature", "0", "--set",
                             "device.dtype=f32", "--set", "train.sequence_length=32").stdout
                 for run in ("run", "merged-run")]
        self.assertEqual(*words)

    def test_peft_loads_those_of_dense_layers_and_shared_experts_beside_the_routed_ones(self):
        (self.folder / "beside.toml").write_text(adapters(
            {**TINY_MODEL, "num_hidden_layers": 3, "first_k_dense_replace": 1, "n_shared_experts": 1}))
        for targets in ("all", "mlp, shared"):
            run = "beside-" + targets[:3]
            self.heddle("train", "beside.toml", "--set", f"output={run}-base", "--steps", "1")
            self.heddle("train", "beside.toml", "--set", f"output={run}", "--set", f"train.start={run}-base", "--set",
                        "lora.rank=3", "--set", "lora.alpha=60", "--set", f"lora.targets={targets}")
            self.heddle("convert", run, "--to", f"{run}-adapter", "--adapter", "--dtype", "f32")
            self.heddle("convert", run, "--to", f"{run}-merged", "--merge", "--dtype", "f32")
            config = json.loads((self.folder / f"{run}-adapter/adapter_config.json").read_text())
            self.assertIn("model.layers.0.mlp.gate_proj.weight", config["target_parameters"])
            self.assertIn("model.layers.1.mlp.shared_experts.down_proj.weight", config["target_parameters"])
            self.assertEqual("down_proj" in config["target_modules"], targets == "all")
            self.heddle("generate", f"{run}-base", "--adapter", f"{run}-adapter", "--tokens", "2")
        try:
            import peft
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError as missing:
            self.skipTest(f"without PEFT: {missing}")
        tokens = torch.tensor([[(7 * i + 3 * j) % 300 for i in range(24)] for j in range(2)])
        for run in ("beside-all", "beside-mlp"):
            with torch.no_grad():
                merged = AutoModelForCausalLM.from_pretrained(self.folder / f"{run}-merged", dtype=torch.float32)
                expected = merged(tokens).logits
                adapted = peft.AutoPeftModelForCausalLM.from_pretrained(self.folder / f"{run}-adapter",
                                                                        dtype=torch.float32)
                found = adapted(tokens).logits
                self.assertLess(((found - expected).norm() / expected.norm()).item(), 1e-4)
                with adapted.disable_adapter():
                    beneath = adapted(tokens).logits
            self.assertGreater(((beneath - expected).norm() / expected.norm()).item(), 1e-2)

    def test_peft_loads_them_with_equal_logits(self):
        try:
            import peft
            import torch
            from safetensors.torch import load_file
            from transformers import AutoModelForCausalLM
        except ImportError as missing:
            self.skipTest(f"without PEFT: {missing}")
        for name, arguments in (("to-peft", ("run", "--adapter")), ("beneath", ("base", "--dtype", "f32"))):
            self.heddle("convert", arguments[0], "--to", name, *arguments[1:])
        tokens = [[(7 * i + 3 * j) % 300 for i in range(24)] for j in range(2)]
        (self.folder / "tokens.json").write_text(json.dumps(tokens))
        self.heddle("dump", "beneath", "--tokens", "tokens.json", "--out", "dump.safetensors", *LORA, "--set",
                    "train.start_adapter=to-peft")
        ours = load_file(self.folder / "dump.safetensors")["logits"]
        model = AutoModelForCausalLM.from_pretrained(self.folder / "beneath", dtype=torch.float32)
        beneath = model(torch.tensor(tokens)).logits
        model = peft.PeftModel.from_pretrained(model, self.folder / "to-peft")
        theirs = model(torch.tensor(tokens)).logits
        distance = ((ours - theirs).norm() / theirs.norm()).item()
        self.assertLess(distance, 1e-5)
        self.assertGreater(((beneath - theirs).norm() / theirs.norm()).item(), 1e-3)


if __name__ == "__main__":
    unittest.main()
