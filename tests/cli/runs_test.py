#!/usr/bin/env python3
"""A run's folder as others find it: two runs at once, runs that go on with other data, links, broken logs, full disks.

    runs_test.py HEDDLE
"""
import fcntl
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import tempfile
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS
from tiny_toml import TINY_MODEL, tiny_toml

PAIRS = 20

CONFIG = tiny_toml({**TINY_MODEL, "vocab_size": 270}, output="run", steps=40, global_batch=2, microbatch=2,
                   sequence_length=16, warmup_steps=1, decay_steps=1, eval_every=20, eval_sequences=2,
                   checkpoint_every=10, keep_checkpoints=9, sample_tokens=2)


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-runs-")).resolve()
        cls.template = cls.base / "template"
        cls.template.mkdir()
        (cls.template / "tiny.toml").write_text(CONFIG)
        (cls.template / "text.txt").write_text(cls.text(1))

    @staticmethod
    def text(seed):
        draw = random.Random(seed)
        words = "the shuttle passes between warp and weft".split()
        return "\n\n".join(" ".join(draw.choices(words, k=30)) + "." for _ in range(60))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base)

    def setUp(self):
        self.folder = self.base / "now"
        shutil.copytree(self.template, self.folder)

    def tearDown(self):
        shutil.rmtree(self.folder)

    def begin(self, *flags, launcher=()):
        own = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_WAIT_POLICY": "passive"}
        return subprocess.Popen([*launcher, HEDDLE, "train", "tiny.toml", *flags], cwd=self.folder, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, **own})

    def train(self, *flags, status=0):
        running = self.begin(*flags)
        out, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, status, f"{flags}\n{out}\n{err}")
        return err

    def refused(self, pattern, *flags):
        said = self.train(*flags, status=2)
        self.assertRegex(said, f"^heddle: {pattern}\n$")

    def weights(self, step=40):
        path = self.folder / f"run/checkpoints/step-{step:06}/model.safetensors"
        return hashlib.sha256(path.read_bytes()).hexdigest()

    def held(self):
        with open(self.folder / "run/.lock") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return True

    def wait_for_step(self, step):
        log = self.folder / "run/metrics.jsonl"
        until = time.monotonic() + MACHINE_SECONDS
        while not (log.exists() and log.read_text().count("\n") >= step):
            self.assertLess(time.monotonic(), until, "the run does not come on")
            time.sleep(0.01)

    # Started together on one folder, one runs and the other is refused; half of them go on with a run.
    def test_pairs(self):
        self.train()
        expected = self.weights()
        half = self.base / "half"
        shutil.move(self.folder / "run", half)
        for step in (20, 30, 40):
            shutil.rmtree(half / f"checkpoints/step-{step:06}")
        for pair in range(PAIRS):
            if pair % 2 == 0:
                shutil.rmtree(self.folder / "prepared", ignore_errors=True)  # which both will prepare
            else:
                shutil.copytree(half, self.folder / "run")
            both = [self.begin(*(["--resume"] if pair % 2 else [])) for _ in range(2)]
            said = [one.communicate(timeout=MACHINE_SECONDS)[1] for one in both]
            self.assertEqual(sorted(one.returncode for one in both), [0, 2], said)
            lines = [line for line in said[both[0].returncode == 0].splitlines() if line.startswith("heddle: ")]
            self.assertEqual(len(lines), 1, said)
            # Late, it finds the run of the other done.
            self.assertRegex(lines[0], r"^heddle: (run is in use: process \d+ on host \S+, since .* UTC writes there; "
                             r"--set output=FOLDER takes another|run holds a run already: --resume goes on with it, .*|"
                             r"--resume: run has done 40 steps, .*: nothing is left to do)$")
            self.assertEqual(self.weights(), expected)
            self.train("--resume", "--steps", "41")
            shutil.rmtree(self.folder / "run")
        shutil.rmtree(half)

    def test_a_run_that_is_used_is_refused_and_one_that_was_killed_is_not(self):
        running = self.begin("--steps", "1000000", "--set", "train.eval_every=0")
        try:
            self.wait_for_step(12)
            holder = f"process {running.pid} on host {os.uname().nodename}, since .* UTC"
            self.refused(f"run is in use: {holder} writes there; --set output=FOLDER takes another", "--resume")
            self.refused(f"run is in use: {holder} writes there; --set output=FOLDER takes another")
            self.train("--set", "output=other", "--steps", "1")
        finally:
            running.kill()
            running.communicate()
        self.assertFalse(self.held())
        done = max(int(p.name[5:]) for p in (self.folder / "run/checkpoints").glob("step-*"))
        self.train("--resume", "--steps", str(done + 1))

    # Rank 0 holds the folder for all, whether ranks are threads or processes.
    def test_ranks_hold_one_folder(self):
        doctor = json.loads(subprocess.run([HEDDLE, "doctor", "--json"], capture_output=True, check=True).stdout)
        by_mpi = {f["what"]: f["found"] for f in doctor["backends"]}["messages by MPI"]
        launchers = [((), ["--ranks", "2"])]
        if shutil.which("mpirun") and not by_mpi.startswith("not available"):
            launchers.append((("mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none"), []))
        ranks = ["--set", "train.microbatch=1", "--set", "train.eval_every=0"]
        for launcher, flags in launchers:
            with self.subTest(launcher):
                shutil.rmtree(self.folder / "run", ignore_errors=True)
                running = self.begin(*ranks, *flags, "--steps", "1000000", launcher=launcher)
                try:
                    self.wait_for_step(5)
                    other = self.begin(*ranks, *flags, launcher=launcher)
                    said = [line for line in other.communicate(timeout=MACHINE_SECONDS)[1].splitlines() if line.startswith("heddle: ")]
                    self.assertNotEqual(other.returncode, 0)
                    self.assertEqual(len(said), 1)
                    self.assertRegex(said[0], r"^heddle: run is in use: process \d+ on host ")
                finally:
                    running.send_signal(signal.SIGINT)
                    running.communicate(timeout=MACHINE_SECONDS)
                self.assertFalse(self.held(), "the lock outlives the run")

    def test_runs_without_a_folder_of_their_own_take_the_next(self):
        (self.folder / "tiny.toml").write_text(CONFIG.replace('output = "run"\n', ""))
        both = [self.begin() for _ in range(2)]
        said = [one.communicate(timeout=MACHINE_SECONDS) for one in both]
        self.assertEqual([one.returncode for one in both], [0, 0], said)
        self.assertEqual(sorted(p.name for p in (self.folder / "runs").iterdir()), ["tiny", "tiny-2"])

    def test_what_must_be_the_same(self):
        heddle = [HEDDLE, "data"]
        for out, seed in (("ids", 1), ("others", 2)):
            (self.folder / f"{out}.txt").write_text(self.text(seed))
            subprocess.run([*heddle, f"{out}.txt", "--out", out, "--vocabulary", "270"], cwd=self.folder, check=True,
                           capture_output=True)
        ids = ["--set", "data.source=ids/text"]
        tokenizer = ["--set", "data.tokenizer=ids/tokenizer.json"]
        self.train(*ids, *tokenizer, "--steps", "10")
        on = ["--resume", "--steps", "20"]
        at = "run/checkpoints/step-000010"
        self.refused(f"--resume: {at} was trained with another seed: seed is 77, was \\d+", *ids, *tokenizer, *on,
                     "--set", "seed=77")
        self.refused(f"--resume: {at} was trained with another tokenizer: hash of tokenizer.json is \\w+, was \\w+",
                     *ids, *on, "--set", "data.tokenizer=others/tokenizer.json")
        whole = (self.folder / "ids/text.bin").read_bytes()
        place = next(i for i in range(0, len(whole), 2) if whole[i:i + 2] != whole[i + 2:i + 4])
        turned = whole[:place] + whole[place + 2:place + 4] + whole[place:place + 2] + whole[place + 4:]
        (self.folder / "ids/text.bin").write_bytes(turned)
        self.refused(f"--resume: {at} was trained on other data: hash of the token ids is \\w+, was \\w+",
                     *ids, *tokenizer, *on)
        (self.folder / "ids/text.bin").write_bytes(whole)
        self.refused(f"--resume: {at} consumed 20 sequences in 10 steps, train.global_batch is 4", *ids, *tokenizer,
                     *on, "--set", "train.global_batch=4")
        self.refused(f"{at}: a checkpoint of another model: .*", *ids, *tokenizer, *on, "--set",
                     "model.moe_intermediate_size=48")
        # The same data elsewhere is the same data, a tokenizer only serves the samples; and what changed is told.
        shutil.move(self.folder / "ids", self.folder / "moved")
        said = self.train("--set", "data.source=moved/text", *on, "--set", "train.learning_rate=1e-4")
        self.assertRegex(said, r"warning: other settings than before: .*train.learning_rate 0.0001 \(was ")

    def test_a_checkpoint_keeps_its_name_and_its_bytes(self):
        self.train("--steps", "20")
        folder = self.folder / "run/checkpoints"
        shutil.move(folder / "step-000020", folder / "step-000030")
        said = self.train("--resume", "--steps", "21")
        self.assertIn("warning: passed over: run/checkpoints/step-000030: named as of step 30, it holds step 20", said)
        shutil.rmtree(folder)
        shutil.rmtree(self.folder / "run")
        self.train("--steps", "10")
        for name in ("state.json", "model.safetensors"):
            whole = (folder / "step-000010" / name).read_bytes()
            for more in (b"\0", b" ", b"\n", b"\0{}"):
                (folder / "step-000010" / name).write_bytes(whole + more)
                self.refused(r"run/checkpoints: none of 1 checkpoints can be used; the newest: "
                             rf"run/checkpoints/step-000010/{name}: .*", "--resume")
            (folder / "step-000010" / name).write_bytes(whole)
        self.train("--resume", "--steps", "11")

    def test_links_are_not_followed(self):
        self.train("--steps", "10")
        outside = self.folder / "outside"
        for name in ("checkpoints", "tensorboard", "metrics.jsonl"):
            shutil.move(self.folder / "run" / name, outside)
            (self.folder / "run" / name).symlink_to(outside)
            self.refused(f"run/{name} is a symbolic link, .*", "--resume", "--steps", "20")
            (self.folder / "run" / name).unlink()
            shutil.move(outside, self.folder / "run" / name)
        # The folder itself may be one, and files that are replaced are not written through.
        outside.write_text("precious")
        (self.folder / "run/report.html").unlink()
        (self.folder / "run/report.html").symlink_to(outside)
        (self.folder / "run/config.toml").rename(self.folder / "run.toml")
        (self.folder / "run/config.toml").symlink_to(self.folder / "run.toml")
        before = (self.folder / "run.toml").read_text()
        shutil.move(self.folder / "run", self.folder / "disk")
        (self.folder / "run").symlink_to("disk")
        self.train("--resume", "--steps", "20")
        self.assertEqual(outside.read_text(), "precious")
        self.assertEqual((self.folder / "run.toml").read_text(), before)
        self.assertIn("steps = 20", (self.folder / "run/config.toml").read_text())
        (self.folder / "run/checkpoints/step-000020").rename(outside.with_name("away"))
        (self.folder / "run/checkpoints/step-000020").symlink_to(outside.with_name("away"))
        said = self.train("--resume", "--steps", "21")
        self.assertIn("passed over: run/checkpoints/step-000020 is a symbolic link", said)

    def test_weights_are_their_owners(self):
        self.train("--steps", "10")
        for path in (self.folder / "run/checkpoints/step-000010").iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)

    def test_broken_lines_of_the_log_do_not_matter(self):
        self.train("--steps", "10")
        log = self.folder / "run/metrics.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        for broken in ("nonsense\n", "\0\0\0\n", '{"step": "two"}\n', "x" * (17 << 20) + "\n"):
            log.write_text("".join(lines[:4]) + broken + "".join(lines[4:10]))
            shutil.rmtree(self.folder / "run/checkpoints/step-000020", ignore_errors=True)
            said = self.train("--resume", "--steps", "20")
            self.assertRegex(said, r"warning: run/metrics.jsonl:5: .*; the line is skipped")
        self.assertEqual(len(log.read_text().splitlines()), 21)

    # What is only looked at may be refused by the disk: told once each, and the run goes on to the same weights.
    def test_logs_that_cannot_be_written(self):
        self.train()
        expected = self.weights()
        shutil.rmtree(self.folder / "run")
        (self.folder / "run/metrics.jsonl").mkdir(parents=True)
        (self.folder / "run/tensorboard").write_text("a file")
        (self.folder / "run/report.html").mkdir()
        (self.folder / "run/trace.perfetto").mkdir()
        said = self.train("--trace")
        for name in ("metrics.jsonl", "tensorboard", "report.html", "trace.perfetto"):
            self.assertEqual(sum(f"run/{name}" in line for line in said.splitlines() if line.startswith("warning:")), 1,
                             said)
        self.assertEqual(self.weights(), expected)
        self.assertNotIn("heddle: ", said)

    def test_a_folder_of_checkpoints_that_cannot_be_read_is_not_empty(self):
        self.train("--steps", "10")
        shutil.rmtree(self.folder / "run/checkpoints")
        (self.folder / "run/checkpoints").write_text("")
        said = self.train("--resume", "--steps", "20", status=1)
        self.assertEqual(said, "heddle: cannot read run/checkpoints: Not a directory\n")

    def test_killed_before_the_first_checkpoint(self):
        self.train()
        expected = self.weights()
        shutil.rmtree(self.folder / "run")
        running = self.begin("--steps", "1000000", "--set", "train.checkpoint_every=0")
        self.wait_for_step(3)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        self.refused("run holds a run already: --resume goes on with it, .*")
        said = self.train("--resume")
        self.assertIn("warning: run: the run ended before its first checkpoint; it begins anew", said)
        self.assertEqual(self.weights(), expected)
        steps = [json.loads(line)["step"] for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(steps, list(range(1, 41)))


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
