#!/usr/bin/env python3
"""Nothing is silent: what a run says of its text, its settings, a signal, and of what takes long.

    command_config_test.py PATH_OF_HEDDLE
"""
import json
import os
import pty
import signal
import subprocess
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program


class Told(Program):
    def train(self, output, *more, status=0):
        return self.heddle("train", "tiny.toml", "--set", f"output={output}", *more, status=status)

    def started(self, output, *more, **how):
        command = [HEDDLE, "train", "tiny.toml", "--set", f"output={output}", "--set", f"data.folder=data-{output}",
                   "--steps", "1000000", "--set", "train.eval_every=0", *more]
        running = subprocess.Popen(command, cwd=self.folder, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                                                                "text": True, **how})
        self.addCleanup(lambda: running.poll() is None and running.kill())
        return running

    def steps(self, output, least):
        log = self.folder / output / "metrics.jsonl"
        until = time.monotonic() + MACHINE_SECONDS
        while not log.exists() or log.read_text().count("\n") < least:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_an_interrupt_is_heard_at_once(self):
        running = self.started("heard", "--set", "train.checkpoint_every=0")
        self.steps("heard", 2)
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, 130, err)
        self.assertRegex(err, r"\nstopping: waiting for .*, then for a checkpoint; asked again it ends at once, and ")
        self.assertEqual(err.count("stopping: "), 1)

    # A process that is held up between two signals can't end by itself: the second finds it as the first left it.
    def test_the_second_interrupt_says_what_is_lost(self):
        for checkpoints, said in (("0", r"ended at once: the state is not saved: no checkpoint was written yet, \d+ steps? "
                                        r"(are|is) lost\n"),
                                  ("2", r"ended at once: (steps after the checkpoint of step \d+ are lost; --resume "
                                        r"goes on from there|the checkpoint of step \d+ holds all that was done)\n")):
            output = f"second-{checkpoints}"
            # Long steps, so that the second signal comes before the first has been answered by ending.
            running = self.started(output, "--set", f"train.checkpoint_every={checkpoints}", "--set",
                                   "train.global_batch=400")
            self.steps(output, 3)
            running.send_signal(signal.SIGINT)
            time.sleep(0.01)
            running.send_signal(signal.SIGINT)
            _, err = running.communicate(timeout=MACHINE_SECONDS)
            if running.returncode == 130:
                continue  # it had ended before: the machine was busy elsewhere
            self.assertEqual(running.returncode, -signal.SIGINT, err)
            self.assertRegex(err, said)

    def test_on_a_terminal_the_answer_takes_the_bars_line(self):
        master, slave = pty.openpty()
        running = self.started("bar", stderr=slave, text=False, env={**os.environ, "TERM": "xterm"})
        os.close(slave)
        self.steps("bar", 2)
        running.send_signal(signal.SIGINT)
        out = b""
        try:
            while piece := os.read(master, 65536):
                out += piece
        except OSError:
            pass
        running.wait(timeout=MACHINE_SECONDS)
        self.assertIn(b"\r\x1b[Kstopping: waiting for ", out)

    def test_text_that_is_none(self):
        (self.folder / "photo.txt").write_bytes(b"words\n" * 2000 + b"\x89PNG\r\n\x1a\n\0\0")
        refused = self.heddle("data", "photo.txt", "--out", "photo", "--vocabulary", "300", status=2).stderr
        self.assertEqual(refused, "heddle: photo.txt:2001: no text: holds the byte '\\x89', which is no UTF-8; --any-bytes "
                                  "(data.any_bytes = true) trains on it all the same\n")
        self.heddle("data", "photo.txt", "--out", "photo", "--vocabulary", "300", "--any-bytes")
        text = (self.folder / "text.txt").read_bytes()
        (self.folder / "bell.txt").write_bytes(text + b"\n\nding\a\n")
        of_bell = ("--set", "data.source=bell.txt", "--set", "data.folder=bell", "--steps", "2")
        self.assertIn("no text: holds the control character '\\x07'", self.train("bell", *of_bell, status=2).stderr)
        self.train("bell", *of_bell, "--set", "data.any_bytes=true")

    def test_a_text_too_small(self):
        (self.folder / "small.txt").write_text("the shuttle passes between warp and weft\n" * 40)
        small = ("--set", "data.source=small.txt", "--set", "data.folder=small")
        said = self.train("small", *small).stderr
        self.assertRegex(said, r"warning: none of the text's 1 document that fills a sequence was held out .*: no held-out loss will be measured")
        said = self.train("often", *small, "--steps", "60").stderr
        self.assertRegex(said, r"warning: the text has \S+( \S)? tokens to train on: in 60 steps it is read \d+\.\d times")
        out = self.heddle("data", "small.txt", "--out", "small-alone", "--vocabulary", "270").stdout
        self.assertIn("warning: no document was held out", out)
        self.assertNotIn("warning", self.train("enough").stderr)

    def test_a_warm_up_longer_than_the_run(self):
        said = self.train("warm", "--set", "train.warmup_steps=50").stderr
        self.assertIn("train.warmup_steps is 50, the run has 6 steps: the learning rate rises until the end, to 0.00012",
                      said)
        self.assertEqual(said.count("train.warmup_steps is 50"), 1)
        self.assertIn("train.warmup_steps is 50", self.heddle("inspect", "tiny.toml", "--set",
                                                              "train.warmup_steps=50").stderr)

    def test_what_changes_where_a_run_goes_on(self):
        self.train("goes-on", "--set", "device.dtype=f32")
        more = ("--resume", "--set", "device.dtype=f32")
        said = self.train("goes-on", *more, "--steps", "9").stderr
        self.assertRegex(said, r"warning: the checkpoint lies in the decay of the run as it was: the learning rate goes from "
                               r"0\.0001 back up to 0\.001; an earlier checkpoint")
        said = self.train("goes-on", *more, "--steps", "12", "--set", "train.learning_rate=2e-3").stderr
        self.assertRegex(said, r"warning: other settings than before: .*train\.learning_rate 0\.002 \(was 0\.001\)")
        self.assertIn("--resume: goes-on/checkpoints/step-000012 was trained with another seed: seed is 7, was 1",
                      self.train("goes-on", *more, "--steps", "15", "--set", "seed=7", status=2).stderr)
        said = self.train("goes-on", "--resume", "--steps", "15", "--set", "device.dtype=bf16", "--set",
                          "train.learning_rate=2e-3").stderr
        self.assertIn("warning: weights and activations are bf16 from here on, f32 before (device.dtype)", said)

    def test_a_trace_says_where_it_is_and_what_opens_it(self):
        done = self.train("traced", "--trace", "--set", "train.trace_step=2")
        self.assertIn("trace of step 2: traced/trace.perfetto; open it at https://ui.perfetto.dev\n", done.stderr)
        self.assertIn("trace       traced/trace.perfetto  (open it at https://ui.perfetto.dev)\n", done.stdout)
        self.assertIn("--trace: train.trace_step is 0, so no step is traced",
                      self.train("untraced", "--trace", "--set", "train.trace_step=0").stderr)

    def test_measuring_says_so_off_a_terminal(self):
        done = self.heddle("profile", "--seconds", "1", "--out", "machine.json", "--json")
        self.assertIn("measuring this machine for about 1 s", done.stderr)
        json.loads(done.stdout)
        traced = self.heddle("simulate", "tiny.toml", "--profile", "machine.json", "--trace", "step.perfetto")
        self.assertIn("trace: step.perfetto; open it at https://ui.perfetto.dev\n", traced.stderr)


if __name__ == "__main__":
    unittest.main()
