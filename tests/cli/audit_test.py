#!/usr/bin/env python3
"""Runs whose steps are trained again: what agrees, what differs, and what can't be audited.

    audit_test.py HEDDLE
"""
import json
import re
import shutil
import struct
import unittest

from program import Program

RANKS = ["--ranks", "4", "--set", "mesh.pp=2", "--set", "mesh.ep=2"]


class Audit(Program):
    def run_of(self, name, *more):
        summary = json.loads(self.heddle("train", "tiny.toml", "--quiet", "--json", "--set", f"name={name}", *more).stdout)
        lines = [json.loads(line) for line in (self.folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(summary["weights_digest"], lines[-1]["weights_digest"])
        return [line.get("weights_digest") for line in lines]

    def audit(self, name, *more, status=0):
        return json.loads(self.heddle("audit", f"runs/{name}", "--json", *more, status=status).stdout)

    def tamper(self, name, step):
        log = self.folder / "runs" / name / "metrics.jsonl"
        lines = log.read_text().splitlines()
        lines[step - 1] = re.sub(r'("weights_digest":")(\w{8})', r"\g<1>00000000", lines[step - 1])
        log.write_text("\n".join(lines) + "\n")

    def test_layouts(self):
        """With exact sums every layout leaves the same digests, and audits each other's."""
        one = self.run_of("exact", "--set", "train.exact_sums=true")
        self.assertEqual(len(set(one)), 6)
        self.assertEqual(self.run_of("exact-4", "--set", "train.exact_sums=true", *RANKS), one)
        for run, ranks in (("exact", 1), ("exact", 2), ("exact-4", 1), ("exact-4", 4)):
            found = self.audit(run, "--steps", "2-6", "--ranks", str(ranks))
            self.assertTrue(found["agrees"], found)
            self.assertEqual(found["from_step"], 0)
            self.assertEqual([step["audited"] for step in found["steps"]], one[1:])
        self.assertEqual(self.audit("exact-4", "--steps", "5")["from_step"], 3)
        done = self.heddle("audit", "runs/exact", "--steps", "2", "--ranks", "64", status=2)  # more than there are microbatches
        self.assertEqual(len(done.stderr.strip().splitlines()), 1)
        self.assertIn("not a multiple of train.microbatch", done.stderr)

    def test_a_digest_that_differs(self):
        self.run_of("bent", "--set", "train.record_ops=3")
        self.assertTrue(self.audit("bent", "--steps", "1-6")["agrees"])
        self.tamper("bent", 5)
        found = self.audit("bent", "--steps", "4-6", status=1)
        self.assertEqual(found["first_step_that_differs"], 5)
        self.assertIsNone(found["first_op_that_differs"])  # the ops made what they had made
        self.assertEqual([step["step"] for step in found["steps"]], [4, 5])
        self.assertIn("the weights differ from step 5 on", self.heddle("audit", "runs/bent", "--steps", "5", status=1).stdout)

    def test_goes_on(self):
        """A run that was continued, and one by the clock, whose rates follow the time."""
        constant = ["--set", "train.decay_steps=0"]  # the rates of six steps are those of three
        self.run_of("cut", "--steps", "3", *constant)
        self.run_of("cut", "--resume", *constant)
        self.assertEqual(self.audit("cut", "--steps", "1-6")["compared"], 6)
        self.run_of("clock", "--minutes", "0.005", "--set", "train.checkpoint_every=0")
        self.assertTrue(self.audit("clock", "--steps", "1-4")["agrees"])

    def test_refused(self):
        self.run_of("plain")
        for words, told in (
                (["--steps", "4-9"], "has steps 1 to 6"), (["--steps", "7"], "has steps 1 to 6"), (["--steps", "0"], "expected a step"),
                (["--steps", "five"], "expected a step, or two as in 3-9"),
                (["--steps", "2", "--ranks", "2"], "train.exact_sums is off")):
            done = self.heddle("audit", "runs/plain", *words, status=2)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1)
            self.assertIn(told, done.stderr)
        self.assertIn("no run folder", self.heddle("audit", "runs", "--steps", "1", status=2).stderr)
        shutil.rmtree(self.folder / "runs" / "plain" / "checkpoints")
        self.assertEqual(self.audit("plain", "--steps", "6")["from_step"], 0)

    def test_replay(self):
        """What an op was given and made: rows of the table that the ids name."""
        self.run_of("seen", *RANKS, "--set", "device.dtype=f32")
        done = json.loads(self.heddle("replay", "runs/seen", "--step", "5", "--op", "embedding", "--rank", "1",
                                      "--microbatch", "0", "--out", "seen.safetensors", "--json").stdout)
        self.assertEqual(len(done["ops"]), 1)
        ids, table, made = (self.tensor("seen.safetensors", name) for name in done["ops"][0]["tensors"])
        rows = [table[32 * row:32 * row + 32] for row in ids]
        self.assertEqual([x for row in rows for x in row], list(made))
        done = self.heddle("replay", "runs/seen", "--step", "5", "--op", "embeding", "--out", "x", status=2)
        self.assertIn("did you mean 'embedding'?", done.stderr)
        for words in (["--rank", "4"], ["--microbatch", "9"], ["--step", "7"]):
            self.heddle("replay", "runs/seen", *(["--step", "5"] if "--step" not in words else []), "--op",
                        "embedding", "--out", "x", *words, status=2)
        self.assertFalse((self.folder / "x").exists())

    def tensor(self, path, name):
        data = (self.folder / path).read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        heading = json.loads(data[8:8 + size])[name]
        first, last = (8 + size + at for at in heading["data_offsets"])
        kind = {"F32": "f", "I32": "i"}[heading["dtype"]]
        return struct.unpack(f"<{(last - first) // 4}{kind}", data[first:last])

    def test_under_mpi(self):
        self.needs_mpi()
        self.run_of("mpi", "--set", "train.exact_sums=true")
        done = self.mpirun("audit", "runs/mpi", "--steps", "4-6", "--json")
        self.assertEqual(json.loads(done.stdout)["compared"], 3)
        self.tamper("mpi", 6)
        self.mpirun("audit", "runs/mpi", "--steps", "4-6", "--json", fails=True)


if __name__ == "__main__":
    unittest.main()
