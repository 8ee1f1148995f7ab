#!/usr/bin/env python3
"""Ends a run at every call into the file system, lets every call fail, and starts pairs of runs on one folder.

    crash_test.py HEDDLE LIBFAIL_CALLS [--count]

After each the folder is started anew or gone on with, as its own message says, from no checkpoint older than the last
that was there, and must end with the weights of a run that nothing happened to, bit for bit, with a whole log and no
stray files. Where a call fails that only concerns what is looked at, the run itself must end well and say what it
lacks. HEDDLE_CRASH_POINTS=all takes every call; else as many, evenly spread, as fit in some seconds. --count prints
how many points end how, and fails none.
"""
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from program import HEDDLE, MACHINE_SECONDS
from tiny_toml import TINY_MODEL, tiny_toml

COUNT = "--count" in sys.argv
if COUNT:
    sys.argv.remove("--count")
SHIM = pathlib.Path(sys.argv.pop(1)).resolve()
ALL = os.environ.get("HEDDLE_CRASH_POINTS") == "all"
FEW = 10  # points of a mode where not all are taken

CONFIG = tiny_toml({**TINY_MODEL, "vocab_size": 320}, output="run", steps=3, global_batch=2, microbatch=2,
                   sequence_length=16, warmup_steps=1, decay_steps=1, eval_every=2, eval_sequences=2, checkpoint_every=1,
                   keep_checkpoints=2, sample_tokens=2)
STEPS = 3
LOOKED_AT = re.compile(r"/run/(metrics\.jsonl|tensorboard(/.*)?|\.?report\.html.*|\.?trace\.perfetto.*)$")
CHECKPOINT = re.compile(r"^\d+ rename\w* .*/run/checkpoints/step-(\d+)$")
OURS = {"config.toml", "metrics.jsonl", "tokenizer.json", "report.html", "trace.perfetto", "checkpoints", "tensorboard",
        ".lock", "text.bin", "text.idx", "data.json"}


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FAIL_")}
    # Sanitizers want to be loaded first; that this comes before them is meant.
    return {**kept, "NO_COLOR": "1", "ASAN_OPTIONS": "verify_asan_link_order=0", **more}


class Crashes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-crash-")).resolve()
        cls.template = cls.base / "template"
        cls.template.mkdir()
        (cls.template / "tiny.toml").write_text(CONFIG)
        draw = random.Random(1)
        words = "the shuttle passes between warp and weft".split()
        (cls.template / "text.txt").write_text(
            "\n\n".join(" ".join(draw.choices(words, k=30)) + "." for _ in range(60)))
        cls.whole = cls.base / "whole"
        shutil.copytree(cls.template, cls.whole)
        done = cls.train(cls.whole)
        assert done.returncode == 0, done.stderr
        cls.expected = cls.weights(cls.whole)
        made = json.loads((cls.whole / "prepared/data.json").read_text())
        assert made["vocabulary"] < 320, "little text: fewer tokens than asked for, as a crash must not forget"
        cls.half = cls.base / "half"
        shutil.copytree(cls.template, cls.half)
        done = cls.train(cls.half, "--set", "train.keep_checkpoints=9")
        assert done.returncode == 0, done.stderr
        for step in range(2, STEPS + 1):
            shutil.rmtree(cls.half / f"run/checkpoints/step-{step:06}")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base)

    @staticmethod
    def train(folder, *flags, **more):
        return subprocess.run([HEDDLE, "train", "tiny.toml", *flags], cwd=folder, env=environment(**more),
                              capture_output=True, text=True, errors="replace", timeout=MACHINE_SECONDS)

    @staticmethod
    def weights(folder):
        path = folder / f"run/checkpoints/step-{STEPS:06}/model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else None

    def struck(self, folder, number, how, flags):
        return self.train(folder, *flags, LD_PRELOAD=str(SHIM), FAIL_FOLDER=str(folder), FAIL_AT=str(number), FAIL_HOW=how)

    def calls(self, start, flags):
        """The calls of a run that nothing happens to, and its weights."""
        folder, log = self.base / "counted", self.base / "log"
        shutil.copytree(start, folder)
        done = self.train(folder, *flags, LD_PRELOAD=str(SHIM), FAIL_FOLDER=str(folder), FAIL_LOG=str(log))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines, weights = log.read_text().splitlines(), self.weights(folder)
        log.unlink()
        shutil.rmtree(folder)
        return lines, weights

    @staticmethod
    def last_checkpoint(start, calls):
        """The step of the last checkpoint that is there after these calls; 0: there is none."""
        steps = [int(path.name.removeprefix("step-")) for path in start.glob("run/checkpoints/step-*")]
        return max([0, *steps, *(int(found.group(1)) for found in map(CHECKPOINT.match, calls) if found)])

    def go_on(self, folder, layout, expected, checkpoint):
        """Does what the program's message says until the run is done; what is wrong with the result, or ''."""
        done = self.train(folder, *layout)
        went_on = 0
        if done.returncode == 2 and "holds a run already: --resume" in done.stderr:
            done = self.train(folder, "--resume", *layout)
            said = re.search(r"going on after step (\d+)", done.stderr)
            went_on = int(said.group(1)) if said else 0
            if done.returncode == 2 and "nothing is left to do" in done.stderr:
                done.returncode, went_on = 0, STEPS
        if done.returncode != 0:
            return f"dead: {done.stderr.strip()}"
        if went_on < checkpoint:
            return f"lost checkpoint: went on after step {went_on}, there was one of step {checkpoint}"
        if self.weights(folder) != expected:
            return "other weights"
        strays = [str(p.relative_to(folder)) for p in folder.glob("run/*") if p.name not in OURS]
        strays += [str(p.relative_to(folder)) for p in folder.glob("prepared/*") if p.name not in OURS]
        strays += [str(p.relative_to(folder)) for p in folder.glob("run/checkpoints/*") if not p.name.startswith("step-") and p.name != "latest"]
        if strays:
            return f"strays: {strays}"
        return ""

    def log_of(self, folder):
        steps = [json.loads(line)["step"] for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        return "" if steps == list(range(1, STEPS + 1)) else f"log of the steps {steps}"

    @staticmethod
    def drawn(numbers):
        """All of them, or a few that are evenly spread."""
        if ALL or COUNT or len(numbers) <= FEW:
            return numbers
        stride = len(numbers) / FEW
        return [numbers[int(i * stride + stride / 2)] for i in range(FEW)]

    def strike_all(self, start, how, *flags):
        calls, expected = self.calls(start, flags)
        layout = [flag for flag in flags if flag != "--resume"]
        if not layout:
            self.assertEqual(expected, self.expected)  # resumed or not
        numbers = self.drawn(range(1, len(calls) + 1))
        found = collections.Counter()
        examples = {}
        for number in numbers:
            folder = self.base / "struck"
            shutil.copytree(start, folder)
            struck = self.struck(folder, number, how, flags)
            wrong = ""
            if how == "kill":
                if struck.returncode != 137:
                    wrong = f"status {struck.returncode} where it was killed: {struck.stderr}"
            elif struck.returncode not in (0, 1, 2):
                wrong = f"status {struck.returncode}: {struck.stderr}"
            elif struck.returncode != 0 and sum(l.startswith("heddle: ") for l in struck.stderr.splitlines()) != 1:
                wrong = f"not one message: {struck.stderr}"
            wrong = wrong or self.go_on(folder, layout, expected, self.last_checkpoint(start, calls[:number - 1]))
            if not wrong and how == "kill":
                wrong = self.log_of(folder)
            kind = wrong.split(":")[0] if wrong else "well"
            found[kind] += 1
            if kind != "well":
                examples.setdefault((kind, wrong[-60:]), f"call {calls[number - 1]}: {wrong}")
            shutil.rmtree(folder)
        if COUNT:
            print(f"{how}, {start.name} {' '.join(flags)}: {len(calls)} calls, {dict(found)}")
            for example in list(examples.values())[:6]:
                print("   ", example)
        else:
            self.assertEqual(list(examples.values()), [])

    def lose_what_is_looked_at(self, start, how, *flags):
        calls, expected = self.calls(start, flags)
        numbers = [number for number, call in enumerate(calls, 1) if LOOKED_AT.search(call)]
        self.assertGreater(len(numbers), FEW, calls)
        for number in self.drawn(numbers):
            _, call, path = calls[number - 1].split(" ", 2)
            with self.subTest(how=how, call=call, path=path):
                folder = self.base / "struck"
                shutil.copytree(start, folder)
                struck = self.struck(folder, number, how, flags)
                weights = self.weights(folder)
                shutil.rmtree(folder)
                self.assertEqual(struck.returncode, 0, struck.stderr)
                self.assertEqual(weights, expected)
                if call != "close":  # whose bytes have arrived before
                    self.assertRegex(struck.stderr, r"warning: .*; training goes on")

    def test_what_is_looked_at_may_be_lost(self):
        for how in ("ENOSPC", "EIO"):
            self.lose_what_is_looked_at(self.template, how, "--trace", "--set", "train.trace_step=2")
            self.lose_what_is_looked_at(self.half, how, "--resume", "--trace", "--set", "train.trace_step=1")

    def test_killed(self):
        self.strike_all(self.template, "kill")

    def test_killed_when_resuming(self):
        self.strike_all(self.half, "kill", "--resume")

    def test_killed_on_two_ranks(self):
        self.strike_all(self.half, "kill", "--resume", "--ranks", "2", "--set", "train.microbatch=1")

    def test_no_space(self):
        self.strike_all(self.template, "ENOSPC")

    def test_no_space_when_resuming(self):
        self.strike_all(self.half, "ENOSPC", "--resume")

    def test_no_space_from_then_on(self):
        self.strike_all(self.half, "onwards", "--resume")

    def test_broken_disk(self):
        self.strike_all(self.template, "EIO")

    def test_broken_disk_when_resuming(self):
        self.strike_all(self.half, "EIO", "--resume")


if __name__ == "__main__":
    unittest.main()
