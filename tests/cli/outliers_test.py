#!/usr/bin/env python3
"""Runs that leave outliers out and go back behind them, whole and in two parts.

    outliers_test.py PATH_OF_HEDDLE
"""
import json
import os
import shutil
import unittest

from program import Program


class Outliers(Program):
    # A limit just above the median leaves many a step out, and now and then two in a row.
    RULE = ["--steps", "30", "--json"]
    for setting in ("skip_norm_above=1.01", "skip_window=3", "roll_back_after=2", "keep_checkpoints=20",
                    "warmup_steps=0", "decay_steps=0", "eval_every=0"):
        RULE += ["--set", f"train.{setting}"]

    def metrics(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return [{key: step[key] for key in ("step", "lm_loss", "gradient_norm", "extra")}
                for step in map(json.loads, lines)]

    def test_a_run_that_goes_on_leaves_the_same_steps_out(self):
        whole = self.heddle("train", "tiny.toml", *self.RULE, "--set", "output=whole")
        told = json.loads(whole.stdout)
        steps = self.metrics("whole")
        self.assertEqual([step["step"] for step in steps], list(range(1, 31)))
        self.assertGreater(told["rolled_back"], 0)
        self.assertGreater(told["skipped_steps"], 2 * told["rolled_back"] - 1)
        self.assertLess(told["skipped_steps"], 27)
        self.assertEqual((steps[-1]["extra"]["skipped_steps"], steps[-1]["extra"]["rolled_back"]),
                         (told["skipped_steps"], told["rolled_back"]))
        self.assertEqual(whole.stderr.count("2 left out in a row: back to the checkpoint of step"), told["rolled_back"])
        first = next(step for step in steps if step["extra"]["skipped_steps"] == 1)
        self.assertIn(f"step {first['step']}: gradient norm {first['gradient_norm']:.4g}, of at most", whole.stderr)
        self.assertIn("steps left out as outliers", (self.folder / "whole/report.html").read_text())

        middle = first["step"] // 3 * 3 + 3
        shutil.copytree(self.folder / "whole", self.folder / "parts")
        for path in (self.folder / "parts/checkpoints").glob("step-*"):
            if int(path.name.removeprefix("step-")) > middle:
                shutil.rmtree(path)
        self.heddle("train", "tiny.toml", "--resume", *self.RULE, "--set", "output=parts")
        left, right = self.metrics("parts"), steps
        for step in left + right:
            step["extra"].pop("bias_update_rate", None)
        self.assertEqual(left, right)

    def test_what_does_nothing_is_remarked(self):
        done = self.heddle("train", "tiny.toml", "--set", "output=idle", "--set", "train.roll_back_after=2")
        self.assertIn("but neither train.skip_norm_above nor train.skip_loss_above leaves a step out", done.stderr)
        self.refused("--set train.skip_loss_above=2: train.skip_loss_above = 2 with train.exact_sums: each layout "
                     "rounds the last bit of the loss its own way (train.skip_norm_above has no such bit); "
                     "train.skip_loss_above = 0 goes with it",
                     "train", "tiny.toml", "--set", "train.skip_loss_above=2", "--set", "train.exact_sums=true")


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
