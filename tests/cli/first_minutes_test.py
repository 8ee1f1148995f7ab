#!/usr/bin/env python3
"""What somebody meets who has just built the program: words tried as commands, numbers that don't go together, names
where a folder is wanted. Each is answered by one line that says what would do.

    first_minutes_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import re
import subprocess
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program

ROOT = pathlib.Path(__file__).resolve().parents[2]


class FirstMinutes(Program):
    def alone(self, message, *arguments):
        """Refused by this line and nothing beside it."""
        done = self.heddle(*arguments, status=2)
        self.assertEqual((done.stdout, done.stderr), ("", f"heddle: {message}\n"))

    def test_version_and_help_are_commands(self):
        self.assertEqual(self.heddle("version").stdout, self.heddle("--version").stdout)
        self.assertIn("as --version", self.heddle("help", "version").stdout)
        self.assertEqual(self.heddle("help", "help").stdout, self.heddle("help", "--help").stdout)
        self.alone("version: unexpected argument 'please' (see heddle version --help)", "version", "please")
        self.alone("unknown command 'versoin', did you mean 'version'?", "versoin")
        self.alone("unknown command 'hlep', did you mean 'help'?", "hlep")
        self.alone("unknown command 'trian', did you mean 'train'?", "help", "trian")

    def test_the_program_says_what_it_is(self):
        out = " ".join(self.heddle().stdout.split())
        families = json.loads(self.heddle("explain", "model.hf", "--json").stdout)["meaning"].split(" of ", 1)[1]
        count = len(families.split(";")[0].split(","))
        self.assertIn(f"trains language models, dense and mixture-of-experts, of {count} families", out)

    def test_completion(self):
        script = self.heddle("completion", "bash").stdout
        (self.folder / "complete.sh").write_text(script)

        def completed(*words):
            """What bash offers for the last of the words."""
            line = ("set -eu; compopt() { :; }; . ./complete.sh; COMP_WORDS=(" + " ".join(f"'{w}'" for w in words) +
                    f"); COMP_CWORD={len(words) - 1}; _heddle; printf '%s\\n' \"${{COMPREPLY[@]+${{COMPREPLY[@]}}}}\"")
            done = subprocess.run(["bash", "-c", line], cwd=self.folder, capture_output=True, text=True,
                                  timeout=MACHINE_SECONDS)
            self.assertEqual(done.returncode, 0, done.stderr)
            return done.stdout.split()

        self.assertEqual(completed("heddle", "tr"), ["train"])
        self.assertEqual(completed("heddle", "help", "sched"), ["schedule"])
        self.assertEqual(completed("heddle", "schedule", "--mic"), ["--microbatches"])
        self.assertEqual(completed("heddle", "train", "x.toml", "--set", "train.warmup_s"), ["train.warmup_steps="])
        self.assertEqual(completed("heddle", "explain", "mesh.t"), ["mesh.tp"])
        self.assertEqual(completed("heddle", "search", "--precision", "fp1"), ["fp16"])
        self.assertEqual(completed("heddle", "predict", "--held-out", "mo"), ["models"])
        self.assertEqual(completed("heddle", "train", "tiny"), [])  # files, which bash itself completes
        self.assertEqual(completed("heddle", "train", "--profile", "x"), [])
        self.alone("completion: SHELL is 'csh', accepted: bash, zsh, fish, did you mean 'zsh'?", "completion", "csh")
        for command in re.findall(r"^  heddle (\w+)", self.heddle().stdout, re.M):
            self.assertIn(f"    {command})\n", script)

    def test_numbers_that_do_not_go_together(self):
        """On sizes of the demo: 4 heads, 16 experts, steps of 16 sequences, 8 at a time."""
        demo = str(ROOT / "examples/demo.toml")
        place = f"{demo}:{1 + (ROOT / 'examples/demo.toml').read_text().splitlines().index('global_batch = 16')}:1"
        for message, arguments in (
                (f"{place}: train.global_batch is 16, not a multiple of train.microbatch × the data parallel ranks that "
                 "mesh.ranks leaves (8 × 4); train.microbatch = 4 goes with it", ["--ranks", "4"]),
                (f"{place}: train.global_batch is 16, not a multiple of train.microbatch × the data parallel ranks that "
                 "mesh.ranks leaves (8 × 3); train.global_batch = 24 goes with it", ["--ranks", "3"]),
                (f"{place}: train.global_batch is 16, not a multiple of train.microbatch (6); train.microbatch = 4 goes "
                 "with it", ["--set", "train.microbatch=6"]),
                ("--set mesh.tp=3: "
                 "model.num_attention_heads (4) is not a multiple of mesh.tp (3); mesh.tp goes with the model as 1, 2, 4",
                 ["--set", "mesh.tp=3"]),
                ("--set mesh.tp=2: "
                 "model.vocab_size (8191) is not a multiple of mesh.tp (2); mesh.tp goes with the model as 1, and 2 with "
                 "model.vocab_size = 8192", ["--set", "mesh.tp=2", "--set", "model.vocab_size=8191"]),
                ("--set mesh.ep=4: "
                 "mesh: ep × etp (4 × 1) does not divide tp × cp × dp (1 × 1 × 2 = 2); it goes with mesh.ranks = 4, and 2 "
                 "ranks a stage with a product of 1, 2", ["--ranks", "2", "--set", "mesh.ep=4"]),
                ("--set mesh.ep=3: "
                 "model.n_routed_experts (16) is not a multiple of mesh.ep (3); mesh.ep goes with the model as 1, 2, 4, 8, "
                 "16", ["--ranks", "3", "--set", "mesh.ep=3", "--set", "train.microbatch=1", "--set",
                        "train.global_batch=3"]),
                ("--set train.sequence_length=250: "
                 "train.sequence_length (250) is not a multiple of 2 × mesh.cp × mesh.tp (4); train.sequence_length = 252 "
                 "goes with it", ["--set", "mesh.cp=2", "--set", "train.sequence_length=250"]),
                ("--set mesh.ranks=3: mesh.ranks is 3, not a multiple of mesh.tp × mesh.cp × mesh.pp (2 × 1 × 1 = 2); "
                 "mesh.ranks = 4 goes with it", ["--ranks", "3", "--set", "mesh.tp=2"]),
                ("--set parallel.schedule=dual_pipe: "
                 "parallel.schedule: schedule dual_pipe: 2 microbatches on 2 ranks, accepted an even number of at least 4 "
                 "(mesh.pp is 2; the microbatches of a step are train.global_batch ÷ (train.microbatch × mesh.dp) = 16 ÷ "
                 "(8 × 1))", ["--set", "mesh.pp=2", "--set", "parallel.schedule=dual_pipe"])):
            for command in ("train", "simulate"):
                self.alone(message, command, demo, *arguments)
            # The remedy is one.
            remedy = re.search(r"; (train[a-z_.]+) = (\d+) goes with it$", message)
            if remedy:
                done = self.heddle("train", demo, *arguments, "--set", f"{remedy[1]}={remedy[2]}", "--set",
                                   "data.source=nowhere", status=2)
                self.assertIn("nowhere", done.stderr)

    def test_a_refusal_stands_alone(self):
        """What is hardly meant is told of configurations that are accepted."""
        hardly = ["--set", "train.warmup_steps=6"]
        self.assertIn("heddle: warning: ", self.heddle("inspect", "tiny.toml", *hardly).stderr)
        for command in ("inspect", "train", "simulate"):
            self.alone("--set mesh.tp=4: model.num_attention_heads (2) is not a multiple of mesh.tp (4); mesh.tp goes with the "
                       "model as 1, 2",
                       command, "tiny.toml", *hardly, "--set", "mesh.tp=4")

    def test_what_refusals_advise_is_accepted(self):
        """Every `key = value` in a message of the program is a value that the key takes."""
        keys = {e["key"] for e in json.loads(self.heddle("explain", "--json").stdout)}
        advised = {}
        for path in sorted((ROOT / "src").rglob("*.cpp")):
            literals = re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*\n\s*"', "", path.read_text()))
            for key, value in re.findall(r'\b([a-z]+(?:\.[a-z_0-9]+)+) = (\\"[\w-]+\\"|true|false|\d+)', "\n".join(literals)):
                if key in keys:
                    advised.setdefault((key, value.strip('\\"')), path.relative_to(ROOT))
        self.assertGreater(len(advised), 15)
        for (key, value), path in advised.items():
            for attention in ([], ["--set", "model.attention=grouped"]):
                done = subprocess.run([HEDDLE, "inspect", "/dev/null", *attention, "--set", f"{key}={value}"], cwd=self.folder,
                                      capture_output=True, text=True, timeout=MACHINE_SECONDS)
                if "is of grouped" not in done.stderr:
                    break
            self.assertNotRegex(done.stderr, rf"^heddle: --set {re.escape(key)}=\S+: {re.escape(key)}(:| is| takes)",
                                f"{path} advises {key} = {value}")

    def test_switches_that_do_not_go_together_say_what_does(self):
        for message, settings in (
                ("--set train.average_decay=0.9: "
                 "train.average_decay = 0.9 with memory.master = \"split\": masters that are averaged are whole; "
                 "memory.master = \"full\" goes with it", ["train.average_decay=0.9", "memory.master=split"]),
                ("--set moe.migrate_every=3: "
                 "moe.migrate_every = 3 with memory.optimizer = \"swap\": experts take their state from device to device; "
                 "memory.optimizer = \"device\", memory.weights = \"device\" goes with it",
                 ["moe.migrate_every=3", "memory.optimizer=swap"]),
                ("--set moe.product=batched: "
                 "moe.product = \"batched\" with moe.capacity_factor = 0: it wants as many rows for each expert, as a "
                 "moe.capacity_factor above 0 gives them; moe.product = \"auto\" goes with it", ["moe.product=batched"]),
                ("--set train.average_decay=0.5: "
                 "train.average_decay = 0.5 with memory.master = \"split\": masters that are averaged are whole; "
                 "memory.master = \"full\" goes with it", ["train.average_decay=0.5", "memory.master=split"])):
            self.alone(message, "train", "tiny.toml", *(word for s in settings for word in ("--set", s)))

    def test_an_empty_configuration_is_remarked(self):
        (self.folder / "empty.toml").write_text("")
        done = self.heddle("inspect", "empty.toml")
        self.assertEqual(done.stderr, "heddle: warning: empty.toml: no key of [model] is given, and the model has the usual "
                                      "sizes (4 layers, hidden 256); model.preset, model.hf or keys of its own name another\n")
        self.assertEqual(self.heddle("inspect", "empty.toml", "--set", "model.preset=demo").stderr, "")
        self.assertEqual(self.heddle("inspect", "tiny.toml").stderr, "")

    def test_a_name_where_a_folder_is_wanted(self):
        hint = ("; nothing is downloaded: where this is a name on the Hugging Face Hub, `hf download Qwen/Qwen3-0.6B "
                "--local-dir Qwen3-0.6B` gets the folder Qwen3-0.6B")
        self.alone(f"--set model.hf=Qwen/Qwen3-0.6B: model.hf: Qwen/Qwen3-0.6B: no such file or folder{hint}",
                   "train", "tiny.toml", "--set", "model.hf=Qwen/Qwen3-0.6B")
        self.assertNotIn("downloaded", self.heddle("inspect", "tiny.toml", "--set", "model.hf=./Qwen/x", status=2).stderr)
        # The folder does as well as its file.
        (self.folder / "gpt2").mkdir()
        (self.folder / "gpt2/config.json").write_text(json.dumps(
            dict(architectures=["GPT2LMHeadModel"], model_type="gpt2", n_embd=64, n_layer=2, n_head=4, n_positions=64,
                 vocab_size=300)))
        for path in ("gpt2", "gpt2/config.json"):
            self.assertIn("2 layers, hidden 64", self.heddle(
                "inspect", "/dev/null", "--set", f"model.hf={path}", "--set", "train.sequence_length=32").stdout)

    def test_odd_heads_where_nothing_turns(self):
        """Learned positions turn no pairs of elements."""
        odd = ["--set", "model.attention=grouped", "--set", "model.num_key_value_heads=2", "--set", "model.head_dim=5"]
        learned = ["--set", "model.positions=learned", "--set", "model.num_nextn_predict_layers=0"]
        tiny = (self.folder / "tiny.toml").read_text()
        grouped = re.sub(r"(?m)^(kv_lora_rank|qk_\w+|v_head_dim) = .*\n", "", tiny).replace("num_nextn_predict_layers = 1\n",
                                                                                            "")
        (self.folder / "odd.toml").write_text(grouped)
        self.alone("--set model.head_dim=5: model.head_dim is 5, must be even: positions turn pairs of elements", "train",
                   "odd.toml", *odd)
        self.heddle("train", "odd.toml", *odd, *learned, "--steps", "2", "--set", "output=odd")

    def test_a_profile_that_is_not_there(self):
        self.alone("missing.json: there is no such profile; `heddle profile --out missing.json` measures this machine and "
                   "writes it", "simulate", "tiny.toml", "--profile", "missing.json")



if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
