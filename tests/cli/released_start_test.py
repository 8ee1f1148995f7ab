#!/usr/bin/env python3
"""`heddle train` with a released model in place of a configuration: a folder, or a name that a made-up cache holds.

    released_start_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import shutil
import tomllib
import unittest

from program import Program
from tiny_toml import tiny_toml

FIXTURES = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures"
MAKE = tiny_toml({"hf": "small.json"}, {"folder": "prepared-made", "heldout_fraction": 0}, name="made", steps=1,
                 global_batch=1, microbatch=1, sequence_length=16, warmup_steps=0, decay_steps=0, eval_every=0,
                 checkpoint_every=0, sample_tokens=0)
FEW = ("--steps", "2", "--set", "train.sequence_length=32", "--set", "train.global_batch=2", "--set",
       "data.heldout_fraction=0", "--set", "device.threads=1")
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"


class ReleasedStart(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.environ["HF_HOME"] = str(cls.folder / "hf")
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            os.environ.pop(name, None)
        (cls.folder / "text.txt").write_text((cls.folder / "text.txt").read_text()[:20000])
        config = json.loads((FIXTURES / "qwen3/config.json").read_text()) | {"vocab_size": 300,
                                                                             "max_position_embeddings": 64}
        (cls.folder / "small.json").write_text(json.dumps(config))
        (cls.folder / "make.toml").write_text(MAKE)
        test = cls("run_all")
        test.heddle("train", "make.toml", "--quiet")
        test.heddle("convert", "runs/made", "--to", "Small", "--dtype", "f32")
        (cls.folder / "Small/chat_template.jinja").write_text(TEMPLATE)
        talk = [{"messages": [{"role": "user", "content": f"the warp {i}?"}, {"role": "assistant", "content": "the weft"}]}
                for i in range(40)]
        (cls.folder / "talk.jsonl").write_text("".join(json.dumps(t) + "\n" for t in talk))
        cls.snapshot = cls.folder / "hf/hub/models--Weaver--Small/snapshots/0123abc"
        cls.snapshot.parent.mkdir(parents=True)
        shutil.copytree(cls.folder / "Small", cls.snapshot)
        refs = cls.snapshot.parents[1] / "refs"
        refs.mkdir()
        (refs / "main").write_text("0123abc")

    def run_all(self):
        """So that the class can run the program."""

    def test_a_name_that_the_cache_holds(self):
        done = self.heddle("train", "Weaver/Small", "--data", "talk.jsonl", "--lora", *FEW, "--json")
        summary = json.loads(done.stdout)
        self.assertEqual(summary["steps"], 2)
        self.assertIn("by default conversations", done.stderr)
        self.assertIn("learning rate 0.0002", done.stderr)
        written = tomllib.loads((self.folder / "runs/small-lora.toml").read_text())
        self.assertEqual(written["train"]["start"], str(self.snapshot))
        self.assertEqual(written["lora"], {"rank": 16, "alpha": 32, "targets": "all"})
        self.assertEqual((written["train"]["epochs"], written["train"]["sequence_length"]), (3, 64))
        self.assertTrue(written["data"]["chat"])
        ran = tomllib.loads((self.folder / "runs/small-lora/config.toml").read_text())
        self.assertEqual(ran["train"]["sequence_length"], 32, "what --set says wins")
        # The file trains again, and the same words go on.
        again = json.loads(self.heddle("train", "runs/small-lora.toml", *FEW, "--set", "output=runs/again",
                                       "--json").stdout)
        self.assertEqual(again["loss"], summary["loss"])
        more = ("--steps", "3", *FEW[2:])
        gone_on = json.loads(self.heddle("train", "Weaver/Small", "--data", "talk.jsonl", "--lora", *more, "--resume",
                                         "--json").stdout)
        self.assertEqual(gone_on["steps"], 3)

    def test_a_folder_with_text(self):
        done = self.heddle("train", "Small", "--data", "text.txt", *FEW, "--json")
        self.assertIn("by default text, 1 epoch", done.stderr)
        written = tomllib.loads((self.folder / "runs/small.toml").read_text())
        self.assertNotIn("lora", written)
        self.assertEqual(written["train"]["learning_rate"], 2e-5)
        self.assertNotIn("chat", written["data"])
        # A file that says otherwise stays as it is.
        (self.folder / "runs/small.toml").write_text("name = \"mine\"\n")
        self.refused("train: runs/small.toml exists and differs: `heddle train runs/small.toml` trains it as it is; "
                     "--set name=NAME begins another run", "train", "Small", "--data", "text.txt")
        self.assertEqual((self.folder / "runs/small.toml").read_text(), "name = \"mine\"\n")
        self.heddle("train", "Small", "--data", "text.txt", *FEW, "--set", "name=other")
        self.assertTrue((self.folder / "runs/other.toml").exists())

    def test_a_model_without_a_tokenizer(self):
        shutil.copytree(self.folder / "Small", self.folder / "Mute",
                        ignore=lambda _, names: [n for n in names if "token" in n or "vocab" in n or "merges" in n])
        said = "has no tokenizer (tokenizer.json, tokenizer.model): --set data.tokenizer=FILE names one"
        self.refused(f"train: Mute {said}", "train", "Mute", "--data", "text.txt")
        held = self.folder / "hf/hub/models--Weaver--Mute"
        shutil.copytree(self.folder / "Mute", held / "snapshots/1")
        (held / "refs").mkdir()
        (held / "refs/main").write_text("1")
        self.refused(f"train: {held}/snapshots/1 {said}, `hf download Weaver/Mute` completes it", "train", "Weaver/Mute",
                     "--data", "text.txt")
        self.assertFalse((self.folder / "runs/mute.toml").exists())
        self.heddle("train", "Mute", "--data", "text.txt", *FEW, "--set", "data.tokenizer=Small/tokenizer.json")

    def test_a_refused_try_leaves_nothing_in_the_way(self):
        words = ("--data", "talk.jsonl", *FEW, "--set", "name=tried")
        self.heddle("train", "Small", *words, "--set", "data.tokenizer=none.json", status=2)
        self.heddle("train", "Small", "--lora", *words)
        self.assertIn("lora", tomllib.loads((self.folder / "runs/tried.toml").read_text()))
        self.heddle("train", "Small", *words, status=2)  # now a run is there
        # Nor is what somebody has changed overwritten, with a run or without.
        self.heddle("train", "Small", "--data", "talk.jsonl", *FEW, "--set", "name=mine", "--set",
                    "data.tokenizer=none.json", status=2)
        file = self.folder / "runs/mine.toml"
        file.write_text(file.read_text() + "# mine\n")
        self.heddle("train", "Small", "--lora", "--data", "talk.jsonl", *FEW, "--set", "name=mine", status=2)
        self.assertTrue(file.read_text().endswith("# mine\n"))

    def test_names(self):
        before = set(self.folder.iterdir())
        for name, near in (("Über Model", "ber-model"), ("../../evil", "evil"), (".", "model"), ("-x", "x"), ("", "model")):
            self.refused(f"train: --set name={name}: a file is named so; accepted: letters, digits, '.', '-' and '_', "
                         f"such as {near}", "train", "Small", "--data", "text.txt", "--set", f"name={name}")
        self.assertLessEqual(set(self.folder.iterdir()) - before, {self.folder / "runs"})
        self.heddle("train", "Small", "--data", "text.txt", *FEW, "--set", "name=My_run")
        self.assertTrue((self.folder / "runs/My_run.toml").exists())
        self.assertTrue((self.folder / "runs/My_run/config.toml").exists())

    def test_pairs(self):
        (self.folder / "pairs.jsonl").write_text("".join(json.dumps(
            {"prompt": f"the warp {i}? ", "chosen": "the weft", "rejected": "no"}) + "\n" for i in range(8)))
        done = self.heddle("train", "Small", "--data", "pairs.jsonl", *FEW, "--json")
        self.assertIn("by default pairs of answers", done.stderr)
        self.assertEqual(tomllib.loads((self.folder / "runs/small-dpo.toml").read_text())["train"]["objective"], "dpo")

    def test_what_is_refused(self):
        cache = self.folder / "hf/hub"
        self.refused(f"train: Weaver/Other is neither a folder nor in the cache {cache}; nothing is downloaded: "
                     "`hf download Weaver/Other` does it", "train", "Weaver/Other", "--data", "talk.jsonl")
        part = cache / "models--Weaver--Part"
        (part / "snapshots/1").mkdir(parents=True)
        (part / "refs").mkdir()
        (part / "refs/main").write_text("1")
        self.refused(f"train: {part}/snapshots/1 lacks config.json or the weights (safetensors): `hf download "
                     "Weaver/Part` completes it", "train", "Weaver/Part", "--data", "talk.jsonl")
        self.refused("train: Small is a model; --data FILE names what it learns, such as --data talk.jsonl", "train",
                     "Small")
        self.refused("train: --data none.jsonl: nothing is there", "train", "Small", "--data", "none.jsonl")
        self.refused("train: --lora goes with a released model in place of CONFIG; a configuration has lora.rank (--set "
                     "lora.rank=…)", "train", "tiny.toml", "--lora")
        for words in (("gpt2",), ("gpt2", "--data", "talk.jsonl"), ("Smal", "--data", "talk.jsonl", "--lora")):
            self.refused(f"train: no file or folder '{words[0]}'; a name on the Hub is OWNER/MODEL[@REVISION]", "train",
                         *words)
        (self.folder / "bare").mkdir()
        self.refused("train: the folder bare holds no released model (config.json)", "train", "bare", "--data",
                     "talk.jsonl")
        (self.folder / "talk.jsonl.gz").write_bytes(b"\x1f\x8b")
        self.refused("train: --data talk.jsonl.gz: compressed samples are not recognized; --set data.chat=true or false "
                     "says what they are", "train", "Small", "--data", "talk.jsonl.gz")


if __name__ == "__main__":
    unittest.main()
