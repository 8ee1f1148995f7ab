"""Runs that begin from a released folder: in every layout, named once, counted in epochs, with adapters that PEFT's
files cannot hold."""
import json
import pathlib
import shutil
import unittest

from program import Program
from tiny_toml import tiny_toml

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures"
TOML = tiny_toml({}, {"folder": "prepared-begun", "heldout_fraction": 0}, {"dtype": "f32"}, "begun", start="{start}",
                 steps=2, global_batch=4, microbatch=2, sequence_length=16, warmup_steps=0, decay_steps=0, eval_every=0,
                 checkpoint_every=0, sample_tokens=0)


class StartFolder(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Names of tokens for the vocabulary of the fixtures, which is smaller than that of any text.
        (cls.folder / "text.txt").write_text((cls.folder / "text.txt").read_text()[:6000])
        for name in ("qwen3_moe", "gpt_oss"):
            cls.released(name)

    @classmethod
    def released(cls, name):
        """A folder of the fixture's sizes, of as many tokens as bytes need."""
        test = cls("run_all")
        config = json.loads((FIXTURES / name / "config.json").read_text()) | {"vocab_size": 300}
        (cls.folder / f"{name}.json").write_text(json.dumps(config))
        made = TOML.format(start="") + f'[model]\nhf = "{name}.json"\n'
        (cls.folder / f"make-{name}.toml").write_text(made)
        test.heddle("train", f"make-{name}.toml", "--set", f"output=made-{name}")
        test.heddle("convert", f"made-{name}", "--to", f"released-{name}", "--dtype", "f32")
        (cls.folder / f"from-{name}.toml").write_text(TOML.format(start=f"released-{name}"))

    def run_all(self):
        """So that the class can run the program."""

    def begin(self, name, output, *more, launch=None):
        arguments = ("train", f"from-{name}.toml", "--set", f"output={output}", *more)
        (launch or self.heddle)(*arguments)
        return list(self.losses(output).values())

    def expect_near(self, found, wanted):
        for a, b in zip(found, wanted, strict=True):
            self.assertAlmostEqual(a, b, places=4)

    def test_every_axis_begins_from_the_same_weights(self):
        for name in ("qwen3_moe", "gpt_oss"):
            one = self.begin(name, f"one-{name}")
            for mesh in (dict(tp=2), dict(ep=2, dp=2), dict(etp=2, dp=2), dict(pp=2)):
                with self.subTest(name, **mesh):
                    sets = [word for axis, size in mesh.items() for word in ("--set", f"mesh.{axis}={size}")]
                    output = f"{name}-" + "-".join(mesh)
                    self.expect_near(self.begin(name, output, *sets, "--set", "train.microbatch=1"), one)

    def test_so_do_processes_of_mpi(self):
        self.needs_mpi()
        one = self.begin("qwen3_moe", "alone", "--set", "lora.rank=2", "--set", "train.checkpoint_every=1")
        for axis in ("tp", "ep"):
            many = self.begin("qwen3_moe", f"mpi-{axis}", "--set", f"mesh.{axis}=2", "--set", "train.microbatch=1",
                              "--set", "lora.rank=2", "--set", "train.checkpoint_every=1", launch=self.mpirun)
            self.expect_near(many, one)
        shutil.rmtree(self.folder / "mpi-tp/checkpoints/step-000002")
        self.begin("qwen3_moe", "mpi-tp", "--resume", "--set", "mesh.tp=2", "--set", "train.microbatch=1", "--set",
                   "lora.rank=2", launch=self.mpirun)
        self.expect_near(list(self.losses("mpi-tp").values()), one)

    def test_a_folder_is_named_once(self):
        losses = self.begin("qwen3_moe", "named-once")
        config = (self.folder / "named-once/config.toml").read_text()
        self.assertIn("released-qwen3_moe/tokenizer.json", config)
        self.assertIn("hidden_size = 24", config)
        self.assertFalse((self.folder / "prepared-begun/none").exists())
        thrice = self.begin("qwen3_moe", "named-thrice", "--set", "model.hf=released-qwen3_moe/config.json", "--set",
                            "data.tokenizer=released-qwen3_moe")
        self.assertEqual(losses, thrice)
        # A model that is named holds; where it is another, the weights do not fit it.
        other = self.heddle("train", "from-qwen3_moe.toml", "--set", "output=other", "--set", "model.preset=demo",
                            status=2)
        self.assertIn("not this model", other.stderr)

    def test_generate_and_eval_name_the_command_that_makes_a_run(self):
        for command in ("generate", "eval", "audit"):
            with self.subTest(command):
                self.refused("released-qwen3_moe: a released model, and no run: `heddle convert released-qwen3_moe --to "
                             "RUN` makes a run of it", command, "released-qwen3_moe",
                             *(("--steps", "1") if command == "audit" else ()))

    def test_epochs_become_steps_when_the_data_is_known(self):
        self.assertIn("train.epochs and train.steps are both given",
                      self.heddle("train", "from-qwen3_moe.toml", "--set", "train.epochs=1.5", "--set", "train.steps=9",
                                  status=2).stderr)
        (self.folder / "epochs.toml").write_text(TOML.format(start="").replace("steps = 2\n", "epochs = 1.5\n")
                                                 + '[model]\nhf = "qwen3_moe.json"\n')
        done = self.heddle("train", "epochs.toml", "--set", "output=epochs")
        sequences = int(next(line for line in done.stderr.splitlines() if line.startswith("data: ")).split(" sequences")[0]
                        .split()[-1].replace(",", ""))
        steps = -(-3 * sequences // (2 * 4))
        self.assertIn(f"length: 1.5 epochs of these, {steps:,} steps", done.stderr)
        self.assertEqual(max(self.losses("epochs")), steps)
        last = json.loads((self.folder / "epochs/metrics.jsonl").read_text().splitlines()[-1])
        self.assertAlmostEqual(last["extra"]["epoch"], 4 * steps / sequences)
        config = (self.folder / "epochs/config.toml").read_text()
        self.assertIn("epochs = 1.5\n", config)
        self.assertIn(f"epoch_steps = {steps}\n", config)
        self.assertIn("comes to", self.heddle("train", "epochs.toml", "--set", "output=epochs", "--resume", status=2).stderr)
        more = self.heddle("train", "epochs.toml", "--set", "output=epochs", "--set", "train.epochs=2", "--resume")
        self.assertEqual(max(self.losses("epochs")), -(-2 * sequences // 4), more.stderr)
        agrees = json.loads(self.heddle("audit", "epochs", "--steps", f"1-{steps}", "--json").stdout)
        self.assertEqual(agrees["compared"], steps)
        two = self.heddle("train", "epochs.toml", "--set", "output=two-ranks", "--set", "mesh.dp=2")
        self.assertIn(f"{steps:,} steps", two.stderr)

    def test_adapters_that_no_file_of_peft_holds_are_told_at_the_start(self):
        lora = ("--set", "lora.rank=2", "--set", "train.checkpoint_every=2")
        told = self.heddle("train", "from-gpt_oss.toml", "--set", "output=all", *lora, "--set", "lora.targets=all")
        warning = next(line for line in told.stderr.splitlines() if "lora.targets" in line)
        self.assertIn("are of no module in files of GptOssForCausalLM", warning)
        self.assertIn("--merge", warning)
        self.assertIn("are of no module", self.heddle("convert", "all", "--to", "adapter", "--adapter", status=2).stderr)
        self.heddle("convert", "all", "--to", "merged", "--merge")
        told = self.heddle("train", "from-gpt_oss.toml", "--set", "output=some", *lora, "--set", "lora.targets=attention")
        self.assertNotIn("lora.targets", told.stderr)
        self.heddle("convert", "some", "--to", "some-adapter", "--adapter")


if __name__ == "__main__":
    unittest.main()
