#!/usr/bin/env python3
"""What the program reads from outside, broken: one line with place, found and accepted, and nothing for the terminal to obey.

    files_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import subprocess
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOKENIZER = ROOT / "tests/fixtures/tokenizers/gpt2.json"
WRITTEN = json.loads(TOKENIZER.read_text())
HIGHEST_ID = max([*WRITTEN["model"]["vocab"].values(), *(token["id"] for token in WRITTEN["added_tokens"])])


class Files(Program):
    def test_broken_configurations(self):
        def refused(message, content):
            (self.folder / "broken.toml").write_bytes(content)
            self.refused(f"broken.toml:{message}", "inspect", "broken.toml")

        refused("2:1: not TOML: found 'é' outside of quotes; keys there are of the letters A-Z a-z 0-9 _ -, others go "
                "into double quotes", "seed = 1\né = 1\n".encode())
        refused("1:8: not TOML: found the control character '\\x1b'", b"seed = \x1b[31m1")
        refused("1:1: name is 'a\\x1b[31m', which holds the control character '\\x1b'", b'name = "a\\u001b[31m"')
        refused("1:1: unknown key 'a\\x1b[2J'", b'"a\\u001b[2J" = 1')

    def test_broken_models(self):
        (self.folder / "hf.toml").write_text('[model]\nhf = "config.json"\n')
        (self.folder / "config.json").write_text('{\n "a" 1}')
        self.refused("hf.toml:2:1: model.hf: config.json:2:6: not JSON: found '1', ':' is expected between a key and its value",
                     "inspect", "hf.toml")
        (self.folder / "config.json").write_text('{"model_type": "\\u001b[31mllama"}')
        err = self.heddle("inspect", "hf.toml", status=2).stderr
        self.assertRegex(err, r"^heddle: hf.toml:2:1: model.hf: config.json: the architecture is '\\x1b\[31mllama', "
                              r"accepted: 'Deepseek.*', 'Qwen3MoeForCausalLM', .*\n$")

    def test_a_tokenizer_beyond_the_vocabulary(self):
        message = (f"{TOKENIZER}: has token ids up to {HIGHEST_ID}, model.vocab_size is 300: at least "
                   f"{HIGHEST_ID + 1} is needed")
        own = ["--set", f"data.tokenizer={TOKENIZER}", "--set", "output=beyond"]
        self.refused(message, "train", "tiny.toml", *own, "--set", "data.folder=beyond_data")
        self.assertFalse((self.folder / "beyond_data").exists())  # refused before any text is prepared
        self.heddle("data", "text.txt", "--out", "ids", "--vocabulary", "290")
        source = next((self.folder / "ids").glob("*.idx")).with_suffix("").relative_to(self.folder)
        self.refused(message, "train", "tiny.toml", *own, "--set", f"data.source={source}")
        self.heddle("train", "tiny.toml", "--set", "output=whole")
        (self.folder / "whole/tokenizer.json").write_bytes(TOKENIZER.read_bytes())
        self.refused("whole/tokenizer.json" + message[len(str(TOKENIZER)):], "generate", "whole")

    def test_a_token_file_cut_while_in_use(self):
        self.heddle("data", "text.txt", "--out", "cut", "--vocabulary", "290")
        tokens = next((self.folder / "cut").glob("*.bin"))
        size = tokens.stat().st_size
        run = subprocess.Popen([HEDDLE, "train", "tiny.toml", "--steps", "1000000", "--set", "output=cut_run",
                                "--set", f"data.source=cut/{tokens.stem}", "--set", "train.checkpoint_every=1000000"],
                               cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics, end = self.folder / "cut_run/metrics.jsonl", time.monotonic() + MACHINE_SECONDS
        while not (metrics.exists() and metrics.stat().st_size > 0):
            self.assertIsNone(run.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        os.truncate(tokens, 100)
        _, errors = run.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(run.returncode, 1, errors)
        self.assertRegex(errors.splitlines()[-1], rf"^heddle: cut/{tokens.stem}\.bin: cut short while in use: it ends "
                                                  rf"before byte \d+, it had {size} when it was opened$")

    def test_what_is_hardly_meant_is_warned_of(self):
        done = self.heddle("train", "tiny.toml", "--steps", "1", "--set", "model.num_experts_per_tok=1",
                           "--set", "output=warned", "--set", "train.warmup_steps=0", "--set", "train.decay_steps=1")
        warnings = [line for line in done.stderr.splitlines() if "warning" in line]
        self.assertEqual(len(warnings), 1, done.stderr)
        self.assertIn("heddle: warning: tiny.toml: model.norm_topk_prob with model.num_experts_per_tok = 1", warnings[0])


if __name__ == "__main__":
    unittest.main()
