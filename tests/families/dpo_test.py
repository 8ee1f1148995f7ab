#!/usr/bin/env python3
"""Learning from pairs held to PyTorch's writing of the paper's formula. PATH_OF_HEDDLE is the argument.

`tests/fixtures/dpo/pytorch.json` holds losses, rewards and gradient norms of a few steps (`make_dpo_fixture.py`).
"""
import json
import subprocess
import unittest

from dump_test import FIXTURES, HEDDLE, InFolder

DPO = FIXTURES / "dpo"
TORCH = json.loads((DPO / "pytorch.json").read_text())
NEAR = 1e-6    # of f64, after steps of AdamW, which divides gradients by their own size


class Dpo(InFolder):
    def train(self, name, *more, out="run", steps=None):
        """The log of a run of all pairs at once."""
        case, pairs = TORCH["cases"][name], len((DPO / "pairs.jsonl").read_text().splitlines())
        length = (TORCH["longest"] + 3) // 4 * 4
        (self.folder / "run.toml").write_text(f"""
[model]
hf = "{FIXTURES / "qwen3" / "config.json"}"
[data]
source = "{DPO / "pairs.jsonl"}"
tokenizer = "{FIXTURES / "sft"}"
folder = "tokens"
chat = true
heldout_fraction = 0
[train]
objective = "dpo"
dpo_beta = {case["beta"]}
dpo_label_smoothing = {case["label_smoothing"]}
start = "{FIXTURES / "qwen3"}"
steps = {steps or len(case["steps"])}
global_batch = {2 * pairs}
microbatch = 2
sequence_length = {length}
learning_rate = {TORCH["rate"]}
min_learning_rate = {TORCH["rate"]}
warmup_steps = 0
decay_steps = 0
clip_norm = 0
checkpoint_every = 2
eval_every = 0
sample_tokens = 0
[device]
backend = "reference"
dtype = "f64"
""")
        self.heddle("train", "run.toml", "--set", f"output={out}", *more)
        return self.log(out)

    def log(self, out):
        steps = [json.loads(line) for line in (self.folder / out / "metrics.jsonl").read_text().splitlines()]
        return [step | step.get("extra", {}) for step in steps]

    def expect_steps(self, log, steps):
        self.assertEqual(len(log), len(steps))
        names = dict(loss="lm_loss", chosen="reward_chosen", rejected="reward_rejected", margin="reward_margin",
                     accuracy="reward_accuracy", norm="gradient_norm")
        for step, (found, expected) in enumerate(zip(log, steps)):
            for name, key in names.items():
                self.assertAlmostEqual(found[key], expected[name], delta=NEAR * max(1, abs(expected[name])),
                                       msg=f"step {step + 1}: {key}")

    def test_steps_are_those_of_pytorch(self):
        for name in TORCH["cases"]:
            self.expect_steps(self.train(name, out=name), TORCH["cases"][name]["steps"])

    def test_any_layout(self):
        for i, mesh in enumerate(("mesh.dp=2", "mesh.cp=2", "mesh.pp=2", "mesh.dp=2 mesh.pp=2", "mesh.cp=2 mesh.dp=2")):
            words = [word for key in mesh.split() for word in ("--set", key)]
            self.expect_steps(self.train("smoothed", *words, out=f"run{i}"), TORCH["cases"]["smoothed"]["steps"])

    def test_a_run_that_goes_on(self):
        whole = self.train("plain", out="whole")
        self.train("plain", out="parts", steps=2)
        self.heddle("train", "run.toml", "--set", "output=parts", "--resume", "--steps", len(whole))
        told = lambda log: [(step["lm_loss"], step["gradient_norm"]) for step in log]
        self.assertEqual(told(self.log("parts")), told(whole))
        (self.folder / "parts" / "references.bin").unlink()
        done = subprocess.run([HEDDLE, "train", "run.toml", "--set", "output=parts", "--resume", "--steps", "9"], cwd=self.folder,
                              capture_output=True, text=True, timeout=300)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
        self.assertIn("references.bin is gone", done.stderr)

    def test_adapters_are_held_to_what_stands_beneath(self):
        log = self.train("plain", "--set", "lora.rank=2", "--set", "lora.targets=attention")
        self.assertAlmostEqual(log[0]["lm_loss"], 0.6931471805599453, delta=1e-12)
        self.assertEqual(log[0]["reward_margin"], 0)
        self.assertGreater(log[-1]["reward_margin"], 0)


if __name__ == "__main__":
    unittest.main()
