#!/usr/bin/env python3
"""Ranks of one job that were told different things, that are asked to stop, or that fail: what the user gets.

    ranks_test.py PATH_OF_HEDDLE
"""
import signal
import subprocess
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program


def said(text):
    return [line for line in text.splitlines() if line.startswith("heddle")]


class Disagree(Program):
    def setUp(self):
        self.needs_mpi()
        self.heddle("data", "text.txt", "--out", "prepared", "--vocabulary", "300")

    # In whichever process it is found first: one line, and the same status.
    def test_what_differs_is_named(self):
        train = ["train", "tiny.toml", "--set", "output=differ", "--set", "device.dtype=bf16"]
        for more, message in (
                (["--set", "seed=2"], "seed is 1 on rank 0 and 2 on rank 1"),
                (["--set", "train.learning_rate=0.5"], r"train\.learning_rate is [0-9.e-]+ on rank 0 and 0\.5 on rank 1"),
                (["--set", "train.microbatch=1"], r"train\.microbatch is 2 on rank 0 and 1 on rank 1"),
                (["--set", "model.num_experts_per_tok=1"], r"model\.num_experts_per_tok is 2 on rank 0 and 1 on rank 1"),
                (["--steps", "9"], r"train\.steps is 6 on rank 0 and 9 on rank 1"),
                (["--set", "train.eval_every=1"], r"train\.eval_every is 3 on rank 0 and 1 on rank 1"),
                (["--mode", "auto"], r"--mode is  on rank 0 and auto on rank 1"),
                (["--set", "device.dtype=f32"], r"device\.dtype is bf16 on rank 0 and f32 on rank 1")):
            with self.subTest(more):
                done = self.mpirun(*train, own=([], more), fails=2)
                self.assertEqual(len(said(done.stderr)), 1, done.stderr)
                self.assertRegex(said(done.stderr)[0], "the ranks received different things: " + message)
        self.assertFalse((self.folder / "differ").exists())
        self.mpirun(*train, own=([], ["--set", "device.threads=2"]))  # a rank's own affair

    def test_bad_input_has_one_status(self):
        for own in (([], ["--set", "train.steps=0"]), (["--set", "train.steps=0"], [])):
            for _ in range(3):
                done = self.mpirun("train", "tiny.toml", "--set", "output=wrong", own=own, fails=2)
                self.assertEqual(len(said(done.stderr)), 1, done.stderr)
                self.assertIn("train.steps is 0, must be an integer of 1 or more", done.stderr)


class Asked(Program):
    def start(self, output, command, environment=None):
        running = subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env=environment, start_new_session=True)
        log = self.folder / output / "metrics.jsonl"
        until = time.monotonic() + MACHINE_SECONDS
        while not (log.exists() and log.read_text().count("\n") >= 2):
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(running.poll(), running.stderr.read() if running.poll() is not None else "")
            time.sleep(0.05)
        return running

    def train(self, output):
        return ["train", "tiny.toml", "--set", f"output={output}", "--set", f"data.folder=data-{output}", "--set",
                "train.steps=1000000", "--set", "train.eval_every=0", "--set", "train.checkpoint_every=0"]

    def saved(self, output):
        """The newest checkpoint's step is the log's last."""
        newest = max((self.folder / output / "checkpoints").iterdir())
        return int(newest.name.removeprefix("step-")), len(self.losses(output))

    def ended(self, running, output, status=130):
        out, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, status, f"{out}\n{err}")
        self.assertEqual(*self.saved(output), msg=err)
        return out + err

    def test_every_signal_that_ends_saves_first(self):
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR2):
            output = f"ended-{number.name}"
            running = self.start(output, [HEDDLE, *self.train(output)])
            running.send_signal(number)
            self.assertIn("go on with --resume", self.ended(running, output))

    def test_usr1_saves_and_goes_on(self):
        running = self.start("usr1", [HEDDLE, *self.train("usr1")])
        running.send_signal(signal.SIGUSR1)
        until = time.monotonic() + MACHINE_SECONDS
        while not list((self.folder / "usr1" / "checkpoints").glob("step-*")):
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        self.assertIsNone(running.poll())
        running.send_signal(signal.SIGINT)
        self.ended(running, "usr1")

    def test_nobody_reads_any_more(self):
        command = [HEDDLE, *self.train("unread")]
        command[command.index("train.steps=1000000")] = "train.steps=30"
        running = self.start("unread", command)
        running.stderr.close()
        running.stdout.close()
        running.wait(timeout=MACHINE_SECONDS)
        self.assertEqual(self.saved("unread"), (30, 30))

    def test_nohup_stays(self):
        command = [HEDDLE, *self.train("nohup")]
        command[command.index("train.steps=1000000")] = "train.steps=60"
        running = self.start("nohup", ["sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command])
        running.send_signal(signal.SIGHUP)
        self.assertIn("done after 60 steps", self.ended(running, "nohup", 0))

    # mpirun passes SIGUSR2 on and waits; after SIGTERM it kills what is left when the time is over, and not before.
    def test_signals_to_mpirun(self):
        self.needs_mpi()
        for number, options in ((signal.SIGUSR2, ()), (signal.SIGTERM, ("--mca", "odls_base_sigkill_timeout", "10"))):
            self.MPIRUN = options
            output = f"mpi-{number.name}"
            command, environment = self.job(*self.train(output))
            running = self.start(output, command, environment)
            running.send_signal(number)
            out, err = running.communicate(timeout=MACHINE_SECONDS)
            self.assertNotEqual(running.returncode, 0)
            self.assertEqual(*self.saved(output), msg=err)
        self.MPIRUN = ()

    def test_a_launcher_that_will_not_wait_is_told_of(self):
        self.needs_mpi()
        self.MPIRUN = ("--mca", "odls_base_sigkill_timeout", "0")
        done = self.mpirun("train", "tiny.toml", "--set", "output=impatient")
        self.MPIRUN = ()
        self.assertRegex(done.stderr, r"warning: mpirun kills its ranks 0 s after Ctrl-C, a step takes .*"
                                      r"--mca odls_base_sigkill_timeout \d+")


if __name__ == "__main__":
    unittest.main()
