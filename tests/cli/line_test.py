#!/usr/bin/env python3
"""What a user types: words, numbers, names and files in whatever way people write them, and what is answered.

    line_test.py PATH_OF_HEDDLE
"""
import fcntl
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import termios
import unicodedata
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program

COMMANDS = ("train", "generate", "dump", "inspect", "simulate", "profile", "data", "explain", "search", "schedule", "predict",
            "claims", "doctor")


class Line(Program):
    def on_a_terminal(self, *arguments, columns=80):
        """What is printed on a terminal of so many columns."""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        running = subprocess.Popen([HEDDLE, *arguments], cwd=self.folder, stdout=slave, stderr=subprocess.DEVNULL,
                                   stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm"})
        os.close(slave)
        out = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:  # Linux's end of a terminal
                break
            if not piece:
                break
            out += piece
        os.close(master)
        self.assertEqual(running.wait(timeout=MACHINE_SECONDS), 0, out)
        return re.sub(r"\x1b\[[0-9;]*m", "", out.decode()).replace("\r\n", "\n")

    def piped(self, text, *arguments, status=0):
        done = subprocess.run([HEDDLE, *arguments], cwd=self.folder, input=text, capture_output=True, text=True,
                              timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def test_names_of_commands_are_words_like_any_other(self):
        keys = [e["key"] for e in json.loads(self.heddle("explain", "train", "--json").stdout)]
        self.assertIn("train.learning_rate", keys)
        self.assertTrue(all(key.startswith("train.") for key in keys))
        self.assertEqual([e["key"] for e in json.loads(self.heddle("explain", "schedule", "--json").stdout)],
                         ["train.schedule", "parallel.schedule"])
        self.refused("unknown schedule 'search', accepted: ", "schedule", "search", begins=True)
        self.refused("inspect: unexpected argument 'train' (see heddle inspect --help)", "inspect", "tiny.toml", "train")

    def refused(self, message, *arguments, begins=False):
        if not begins:
            return super().refused(message, *arguments)
        said = self.heddle(*arguments, status=2).stderr
        self.assertTrue(said.startswith("heddle: " + message), said)
        return said

    def test_the_command_line_beats_the_file(self):
        (self.folder / "keys.toml").write_text("[model]\nhidden_size = 64\nnum_hidden_layers = 2\n")
        done = self.heddle("inspect", "keys.toml", "--set", "model.preset=deepseek-v2-lite", "--json")
        self.assertEqual(round(json.loads(done.stdout)["parameters"]["without_mtp"]["total"] / 1e9), 16)
        warnings = "".join(line for line in done.stderr.splitlines(True) if "warning" in line)  # it may take its time
        self.assertEqual(warnings, "heddle: warning: --set model.preset=deepseek-v2-lite takes the place of the whole "
                                      "model of keys.toml, which sets model.hidden_size, model.num_hidden_layers\n")
        # What is set beside it holds, whichever comes first.
        for order in (1, -1):
            more = ["model.preset=deepseek-v2-lite", "model.num_hidden_layers=3"][::order]
            text = self.heddle("inspect", "keys.toml", *(word for each in more for word in ("--set", each))).stdout
            self.assertIn("3 layers, hidden 2048", text)
        self.assertIn("2 layers, hidden 64", self.heddle("inspect", "keys.toml").stdout)
        # --set takes one value, wherever it stands.
        self.assertIn("2 layers", self.heddle("inspect", "--set", "model.num_hidden_layers=2", "tiny.toml").stdout)

    def test_numbers_out_of_bounds(self):
        for flag, accepted in (("--steps", "a whole number of 1 or more"), ("--minutes", "a number above 0")):
            for value in ("-5", "0"):
                for words in ((flag, value), (f"{flag}={value}",)):
                    self.refused(f"train: {flag} is {value}, accepted: {accepted}", "train", "tiny.toml", *words)
        unknown = "accepted: a whole number of 1 or more, such as 1000, 1e3 or 500M"
        for value in ("ten", "1.5", "1e99", "1,00", "1__0", "5Q"):
            self.refused(f"train: --steps is '{value}', {unknown}", "train", "tiny.toml", "--steps", value)
        self.refused(f"train: --steps is empty, {unknown}", "train", "tiny.toml", "--steps=")
        self.refused("train: --minutes is 'nan', accepted: a number above 0", "train", "tiny.toml", "--minutes", "nan")
        self.refused("simulate: --draws is 100001, accepted: a whole number from 1 to 100000", "simulate", "tiny.toml",
                     "--draws", "100001")

    def test_counts(self):
        tokens = lambda *set_: json.loads(self.heddle("inspect", "tiny.toml", "--json", *set_).stdout)["tokens_per_step"]
        for count in ("2000", "2K", "2k", "2e3", "2_000", "2,000", "0.002M"):
            self.assertEqual(tokens("--set", f"train.global_batch={count}"), 2000 * 32, count)
        self.assertEqual(tokens("--set", "train.global_batch=2Ki"), 2048 * 32)
        (self.folder / "counts.toml").write_text((self.folder / "tiny.toml").read_text().replace(
            "steps = 6\n", 'steps = "500M"\n').replace("global_batch = 4\n", "global_batch = 4e1\n"))
        self.assertEqual(json.loads(self.heddle("inspect", "counts.toml", "--json").stdout)["tokens_per_step"], 40 * 32)
        self.refused("search: --devices is '8X', accepted: a whole number from 1 to 1048576, such as 1000, 1e3 or 500M",
                     "search", "--model", "DeepSeek-V3", "--cluster", "H800", "--devices", "8X")

    def test_words_of_the_trade(self):
        for word, key in {"lr": "train.learning_rate", "batch_size": "train.global_batch",
                          "seq_len": "train.sequence_length", "n_layers": "model.num_hidden_layers",
                          "top_k": "model.num_experts_per_tok", "d_model": "model.hidden_size",
                          "train.lr": "train.learning_rate", "LR": "train.learning_rate",
                          "max_grad_norm": "train.clip_norm", "tensor-model-parallel-size": "mesh.tp"}.items():
            self.refused(f"--set {word}=3: unknown key '{word}', did you mean '{key}'?", "train", "tiny.toml", "--set",
                         f"{word}=3")
            self.assertTrue(self.heddle("explain", word).stdout.startswith(key + "\n"), word)
        self.refused("train: unknown flag '--lr', did you mean --set train.learning_rate=…?", "train", "tiny.toml",
                     "--lr", "1e-3")
        (self.folder / "trade.toml").write_text("[train]\nlr = 1e-3\n")
        self.refused("trade.toml:2:1: unknown key 'train.lr', did you mean 'train.learning_rate'?", "inspect",
                     "trade.toml")
        self.refused("explain: unknown key 'xyzzy' (`heddle explain` lists all)", "explain", "xyzzy")
        self.assertIn("  also     lr, max_lr, peak_lr\n", self.heddle("explain", "train.learning_rate").stdout)

    def test_names_in_any_case(self):
        for name in ("DeepSeek-V3", "deepseek_v3", "DEEPSEEK-V3"):
            self.assertIn("61 layers", self.heddle("inspect", "tiny.toml", "--set", f"model.preset={name}").stdout)
        self.assertIn("bf16 weights", self.heddle("inspect", "tiny.toml", "--set", "device.dtype=BF16").stdout)
        self.assertEqual(self.heddle("schedule", "1F1B", "--ranks", "2", "--microbatches", "2", "--text").stdout,
                         self.heddle("schedule", "1f1b", "--ranks", "2", "--microbatches", "2", "--text").stdout)
        search = ("search", "--devices", "8", "--global-batch", "8", "--sequence", "1K", "--restrict", "microbatch=1",
                  "--restrict", "schedule=1f1b", "--json")
        found = [json.loads(self.heddle(*search, "--model", model, "--cluster", cluster).stdout)["plans"][0]
                 for model, cluster in (("DeepSeek-V2-Lite", "H800"), ("deepseek_v2_lite", "h800"))]
        self.assertEqual(*found)
        self.refused("--cluster: no accelerator 'h8000', did you mean 'H800'?", "search", "--model",
                     "DeepSeek-V3", "--cluster", "h8000", "--devices", "8", "--global-batch", "8", "--sequence", "1024")

    def test_what_is_no_toml_is_shown_whole_with_its_key(self):
        for line, column, said in (
                ("schedule = cosine", 12, 'train.schedule = cosine: a text needs quotes, "cosine"'),
                ("learning_rate =", 16, "train.learning_rate = : a value is missing"),
                ("steps = 500M", 12, 'train.steps = 500M: a number with a unit needs quotes, "500M"'),
                ("exact_sums = True", 14, "train.exact_sums = True: TOML writes true"),
                ("steps = None", 9, "train.steps = None: TOML has no empty value; leave the key out"),
                ('schedule = "cosine', 19, 'train.schedule = "cosine: the quotes are not closed'),
                ("learning_rate = 1e-3x", 21, "train.learning_rate = 1e-3x: floating-point: expected decimal digit, "
                                              "saw 'x'"),
                ("steps = 1\nsteps = 2", None, "train.steps = 2: key-value pair: cannot redefine existing integer")):
            (self.folder / "broken.toml").write_text(f"name = \"a\"\n[train]\n{line}\n")
            err = self.heddle("inspect", "broken.toml", status=2).stderr
            self.assertRegex(err, r"^heddle: broken\.toml:[34]:\d+: not TOML: ")
            self.assertIn("not TOML: " + said, err)
            if column:
                self.assertIn(f"broken.toml:3:{column}:", err)

    def test_tables_fit_the_terminal(self):
        def width(line):
            return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
                       for c in line)

        for columns in (80, 120):
            for command in (("explain",), ("explain", "parallel.schedule"), ("schedule",), ("claims",),
                            ("inspect", "tiny.toml"), ("inspect", "tiny.toml", "--passes"), *((c, "--help") for c in
                                                                                             COMMANDS), ("--help",)):
                widest = max(self.on_a_terminal(*command, columns=columns).splitlines(), key=width)
                self.assertLessEqual(width(widest), columns, f"{command}: {widest}")
        # Nothing is lost in the folds, and off a terminal a row stays a line.
        flat = self.heddle("explain").stdout
        folded = self.on_a_terminal("explain", columns=100)
        for word in ("train.min_learning_rate", "model.rope_scaling.original_max_position_embeddings"):
            self.assertTrue(any(line.startswith(word + " ") for line in flat.splitlines()), word)
        letters = lambda text: sorted(re.sub(r"[\s─-]", "", text))
        self.assertEqual(letters(folded), letters(flat))

    def test_thousands_are_parted_alike(self):
        self.assertIn("1,280 tokens", self.on_a_terminal("inspect", "tiny.toml", "--set", "train.global_batch=40"))
        self.assertIn("1,280 tokens", self.heddle("inspect", "tiny.toml", "--set", "train.global_batch=40").stdout)
        self.assertIn("671,026,419,200", self.heddle("inspect", "--model", "DeepSeek-V3").stdout)

    def test_help_and_version(self):
        for ask in (["--help"], ["-h"], ["help"], []):
            out = self.heddle(*ask).stdout
            for command in COMMANDS:
                self.assertIn(f"  heddle {command}", out)
        for command in COMMANDS:
            out = self.heddle(command, "--help").stdout
            self.assertEqual(out, self.heddle("help", command).stdout)
            self.assertTrue(out.startswith(f"heddle {command}"), out)
        said = self.heddle("--version").stdout
        self.assertRegex(said, r"^heddle \d+\.\d+\.\d+ \((commit [0-9a-f]{7,}(-dirty)?; )?\w+(, sanitizers "
                               r"\S+)?, (GCC|Clang) .+\)\n$")
        root = pathlib.Path(__file__).resolve().parents[2]
        if commit := re.search(r"commit ([0-9a-f]+)", said):
            self.assertEqual(subprocess.run(["git", "-C", root, "cat-file", "-e", commit[1]]).returncode, 0)

    def test_flags(self):
        self.refused("inspect: --after needs --program", "inspect", "tiny.toml", "--after", "fuse")
        self.refused("inspect: --passes excludes --program", "inspect", "tiny.toml", "--passes", "--program")
        self.refused("train: --steps lacks its value, found --json (see heddle train --help)", "train", "tiny.toml",
                     "--steps", "--json")
        self.refused("train: --steps lacks its value (see heddle train --help)", "train", "tiny.toml", "--steps")
        self.refused("train: --steps is given twice", "train", "tiny.toml", "--steps", "1", "--steps", "2")
        self.refused("train: --json takes no value, found '--json=1'", "train", "tiny.toml", "--json=1")
        self.refused("train: CONFIG is required (see heddle train --help)", "train")
        self.refused("search: --precision is 'bf61', accepted: bf16, fp16, fp8, mxfp8, block8, nvfp4, did you mean "
                     "'bf16'?", "search", "--precision", "bf61")
        self.refused("--strange.toml: cannot be read: No such file or directory", "inspect", "--", "--strange.toml")

    def test_standard_input(self):
        tiny = (self.folder / "tiny.toml").read_text()
        self.assertEqual(self.piped(tiny, "inspect", "-").stdout, self.heddle("inspect", "tiny.toml").stdout)
        self.assertEqual(self.piped("[train]\nstepz = 1\n", "inspect", "-", status=2).stderr,
                         "heddle: standard input:2:1: unknown key 'train.stepz', did you mean 'train.steps'?\n")
        done = self.piped(tiny, "train", "-", "--json", "--steps", "3", "--set", "output=piped")
        self.assertEqual(json.loads(done.stdout)["steps"], 3)
        made = self.heddle("schedule", "zb_v", "--ranks", "3", "--microbatches", "7", "--text").stdout
        self.assertEqual(self.piped(made, "schedule", "-", "--text").stdout, made)
        text = (self.folder / "text.txt").read_text()
        ours, theirs = (json.loads(self.piped(text, "data", source, "--out", out, "--vocabulary", "290", "--json").stdout)
                        for source, out in (("-", "from-input"), ("text.txt", "from-file")))
        for key in ("tokens", "documents", "unigram_nats_per_token"):
            self.assertEqual(ours[key], theirs[key])
        self.assertEqual((self.folder / "from-input/input.txt").read_text(), text)
        self.piped('{"text": "one two"}\n' * 3 + '{"text": "three"}\n', "data", "-", "--out", "lines", "--vocabulary",
                   "260")
        self.assertTrue((self.folder / "lines/input.jsonl").exists())
        self.assertEqual(self.piped("", "data", "-", "--out", "none", status=2).stderr,
                         "heddle: the standard input is empty\n")
        self.refused("data.source is -: a run may go on later, so its text must stay; `heddle data - --out DIR` keeps it",
                     "train", "tiny.toml", "--set", "data.source=-", "--set", "output=nothing")


if __name__ == "__main__":
    unittest.main()
