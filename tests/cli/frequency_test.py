#!/usr/bin/env python3
"""train.mtbf_hours: how often a run copies and saves, as its first steps and rank 0 have it.

    frequency_test.py PATH_OF_HEDDLE
"""
import json
import re
import unittest

from program import Program

LEARNED = 12    # steps, after which the run chooses


class Frequency(Program):
    def setUp(self):
        self.heddle("data", "text.txt", "--out", "prepared", "--vocabulary", "300")

    def run_of(self, output, *more, steps=40):
        done = self.heddle("train", "tiny.toml", "--steps", f"{steps}", "--set", f"output={output}", "--set", "train.eval_every=0",
                           "--set", "train.keep_checkpoints=99", *more)
        lines = [json.loads(line) for line in (self.folder / output / "metrics.jsonl").read_text().splitlines()]
        lines = [{"step": line["step"], "digest": line["weights_digest"], **line["extra"]} for line in lines]
        saved = sorted(int(p.name[5:]) for p in (self.folder / output / "checkpoints").glob("step-*"))
        return done, lines, saved

    def test_it_is_chosen_after_the_first_steps_by_all_ranks(self):
        done, lines, saved = self.run_of("chosen", "--ranks", "2", "--set", "mesh.ranks=2", "--set", "train.microbatch=1",
                                         "--set", "train.mtbf_hours=1e-5", "--set", "train.snapshot_every=2")
        said = re.findall(r"snapshots in memory every (\d+) steps .*checkpoints every (\d+) steps .*train\.mtbf_hours",
                          done.stdout + done.stderr)
        self.assertTrue(said, done.stdout + done.stderr)
        self.assertEqual({(line["snapshot_every"], line["checkpoint_every"]) for line in lines[:LEARNED - 1]}, {(2, 3)})
        every = {(int(line["snapshot_every"]), int(line["checkpoint_every"])) for line in lines[LEARNED:]}
        self.assertLessEqual(every, {tuple(map(int, one)) for one in said})
        # Checkpoints take all ranks: those that stand are whole, where the log says that one was due. The choice comes at the end
        # of its step, behind the question whether a checkpoint is.
        in_force = {line["step"]: line["checkpoint_every"] for line in lines} | {LEARNED: 3}
        due = [step for step, every in in_force.items() if step % every == 0]
        self.assertEqual(saved, sorted({*due, 40}))
        for step in saved:
            shards = list((self.folder / f"chosen/checkpoints/step-{step:06}").glob("shard-*"))
            self.assertEqual(len(shards), 2)

    # A failure each millisecond: a copy beside each step, a checkpoint behind each.
    def test_what_fails_always_is_saved_after_each_step(self):
        _, lines, saved = self.run_of("always", "--set", "train.mtbf_hours=1e-7", "--set", "train.snapshot_every=4", steps=18)
        self.assertEqual({(line["snapshot_every"], line["checkpoint_every"]) for line in lines[LEARNED:]}, {(1, 1)})
        self.assertLessEqual(set(range(LEARNED + 1, 19)), set(saved))
        _, plain, _ = self.run_of("plain", steps=18)
        self.assertEqual([line["digest"] for line in lines], [line["digest"] for line in plain])

    # One in a thousand years: none until the end.
    def test_what_never_fails_is_hardly_saved(self):
        _, lines, saved = self.run_of("never", "--set", "train.mtbf_hours=1e6", steps=30)
        self.assertGreater(lines[-1]["checkpoint_every"], 30)
        self.assertEqual(saved, [3, 6, 9, 12, 30])

    def test_without_the_key_they_are_as_configured(self):
        done, lines, saved = self.run_of("configured", steps=15)
        self.assertNotIn("checkpoint_every", lines[-1])
        self.assertEqual(saved, [3, 6, 9, 12, 15])
        self.assertNotIn("mtbf", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
