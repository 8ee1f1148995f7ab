#!/usr/bin/env python3
"""What befalls a run from outside: its folder renamed, removed or taken away, outputs that nobody reads, disks that fail
for a moment, hostile files, signals; and what is refused before anything long begins.

    faults_test.py HEDDLE LIBFAIL_CALLS
"""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program

SHIM = pathlib.Path(sys.argv.pop(1)).resolve()


class Faults(Program):
    def setUp(self):
        self.place = self.folder / self._testMethodName
        self.place.mkdir()
        for name in ("tiny.toml", "text.txt"):
            shutil.copy(self.folder / name, self.place)

    def heddle(self, *arguments, status=0, **how):
        done = subprocess.run([HEDDLE, *map(str, arguments)], cwd=self.place, text=True, timeout=MACHINE_SECONDS,
                              **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how})
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def started(self, *more, **how):
        running = subprocess.Popen([HEDDLE, "train", "tiny.toml", "--set", "train.eval_every=0", *more], cwd=self.place,
                                   **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **how})
        self.addCleanup(lambda: running.poll() is None and running.kill())
        return running

    def until(self, what):
        end = time.monotonic() + MACHINE_SECONDS
        while not what():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def lines(self, run):
        log = self.place / run / "metrics.jsonl"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []

    def checkpoints(self, run):
        return sorted(path.name for path in (self.place / run / "checkpoints").glob("step-*"))

    @staticmethod
    def content(folder):
        return {path.relative_to(folder): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.rglob("*")) if path.is_file()}

    # --- the folder

    def renamed(self, *ranks):
        """Renames a run's folder and begins another of its name; what there is of both."""
        ended = []
        running = self.started("--set", "output=run", "--steps", "80", "--set", "train.checkpoint_every=10", "--set",
                               "train.keep_checkpoints=3", "--set", "train.global_batch=40", *ranks)
        self.until(lambda: len(self.lines("run")) >= 15)
        os.rename(self.place / "run", self.place / "old")
        if running.poll() is None:
            ended.append(len(self.lines("old")))
        self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "8", "--set", "train.checkpoint_every=4",
                    "--set", "train.learning_rate=0.0001")
        before = self.content(self.place / "run")
        out, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, 0, err)
        self.assertTrue(ended and ended[0] < 80, "the run had ended before its folder was renamed")
        self.assertEqual(self.content(self.place / "run"), before)
        self.assertEqual(self.checkpoints("run"), ["step-000004", "step-000008"])
        self.assertEqual(self.checkpoints("old"), ["step-000060", "step-000070", "step-000080"])
        self.assertEqual([line["step"] for line in self.lines("old")], list(range(1, 81)))
        self.assertEqual(err.count("the run goes on in there"), 1, err)
        self.assertIn(f"run has become {self.place / 'old'}", err)
        self.assertIn(f"checkpoint  {self.place / 'old'}/checkpoints/step-000080", out)
        self.assertEqual([p for p in (self.place / "old").iterdir() if p.name.endswith(".part")], [])
        self.assertFalse((self.place / "old/ranks").exists())

    def test_a_renamed_folder_is_gone_on_with(self):
        self.renamed()

    def test_a_renamed_folder_of_several_ranks(self):
        self.renamed("--ranks", "2")

    def test_a_removed_folder_ends_the_run_in_one_line(self):
        running = self.started("--set", "output=run", "--steps", "100000", "--set", "train.checkpoint_every=20")
        self.until(lambda: len(self.lines("run")) >= 5)
        shutil.rmtree(self.place / "run", ignore_errors=True)
        shutil.rmtree(self.place / "run", ignore_errors=True)  # what came while it was emptied
        _, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, 1, err)
        said = [line for line in err.splitlines() if line.startswith("heddle: ")]
        self.assertEqual(len(said), 1, err)
        self.assertRegex(said[0], r"the folder was removed while the run wrote into it|its folder run was removed")
        self.assertFalse((self.place / "run").exists())

    def test_a_checkpoint_beyond_the_log_is_remarked(self):
        self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "6")
        log = self.place / "run/metrics.jsonl"
        whole = log.read_text().splitlines(keepends=True)
        log.write_text("".join(whole[:4]))
        err = self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "7", "--resume").stderr
        self.assertIn("the log ends with step 4, and the run goes on after step 6", err)
        log.write_text("".join(whole[:2] + whole[4:]))
        err = self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "9", "--resume").stderr
        self.assertIn("2 steps have no line, the first is 3", err)

    def test_a_link_in_the_place_of_ops_is_refused(self):
        (self.place / "run").mkdir()
        (self.place / "elsewhere").mkdir()
        (self.place / "run/ops").symlink_to(self.place / "elsewhere")
        err = self.heddle("train", "tiny.toml", "--set", "output=run", "--set", "train.record_ops=2", status=2).stderr
        self.assertIn("heddle: run/ops is a symbolic link", err)
        self.assertEqual(list((self.place / "elsewhere").iterdir()), [])

    # --- outputs that nobody reads

    def test_a_full_disk_behind_the_outputs_ends_nothing(self):
        with open("/dev/full", "w") as full:
            self.assertEqual(self.heddle("inspect", "no.toml", stderr=full, status=2).stdout, "")
            err = self.heddle("inspect", "tiny.toml", stdout=full, status=1).stderr
            self.assertEqual(err, "heddle: the output could not be written: No space left on device\n")
            self.heddle("inspect", "tiny.toml", stdout=full, stderr=full, status=1)
            self.heddle("train", "tiny.toml", "--set", "output=quiet", stderr=full)
            self.heddle("train", "tiny.toml", "--set", "output=mute", "--ranks", "2", stdout=full, stderr=full)
            self.heddle("train", "tiny.toml", "--set", "output=json", "--json", stdout=full, stderr=full, status=1)
            for run in ("quiet", "mute"):
                self.assertEqual(self.checkpoints(run), ["step-000003", "step-000006"])

    def test_a_closed_output_is_no_files(self):
        self.heddle("inspect", "no.toml", status=2, preexec_fn=lambda: os.close(2))
        self.heddle("inspect", "tiny.toml", status=1, preexec_fn=lambda: os.close(1))
        self.heddle("train", "tiny.toml", "--set", "output=run", preexec_fn=lambda: os.close(2))
        self.assertEqual(self.checkpoints("run"), ["step-000003", "step-000006"])
        for path in (self.place / "run").rglob("*.toml"):
            self.assertNotIn(b"data: ", path.read_bytes())

    def test_a_reader_that_goes_ends_no_training(self):
        running = self.started("--set", "output=run", "--verbose", "--steps", "40")
        running.stderr.readline()
        running.stderr.close()
        running.stdout.close()
        self.assertEqual(running.wait(timeout=MACHINE_SECONDS), 0)
        self.assertEqual(len(self.lines("run")), 40)

    def test_a_job_whose_output_fails_goes_on(self):
        self.needs_mpi()
        command = [HEDDLE, "launch", "tiny.toml", "--ranks", "2", "--set", "output=run", "--set", "train.eval_every=0"]
        environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, cwd=self.place, stdout=full, stderr=full, env=environment,
                                  timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(self.checkpoints("run")[-1], "step-000006")
        events = [json.loads(line)["event"] for line in (self.place / "run/job.jsonl").read_text().splitlines()]
        self.assertEqual(events[-1], "over")

    # --- disks that fail for a moment

    def shim(self, point, how, at=1):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("FAIL_")}
        return {**kept, "LD_PRELOAD": str(SHIM), "ASAN_OPTIONS": "verify_asan_link_order=0",
                "FAIL_FOLDER": str(self.place.resolve()), "FAIL_AT": str(at), "FAIL_HOW": how, "FAIL_POINT": point}

    def struck(self, point, how, *arguments, status=0):
        return self.heddle(*arguments, status=status, env=self.shim(point, how))

    def test_a_passing_error_costs_no_checkpoint(self):
        self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "6")
        resumed = ("train", "tiny.toml", "--set", "output=run", "--steps", "7", "--resume")
        err = self.struck("open run/checkpoints/step-000006/state.json", "EIO", *resumed).stderr
        self.assertIn("going on after step 6", err)
        self.assertNotIn("passed over", err)

    def test_a_lasting_error_is_no_damage(self):
        self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "6")
        before = self.content(self.place / "run/checkpoints")
        err = self.struck("open run/checkpoints/step-000006/state.json", "always", "train", "tiny.toml", "--set",
                          "output=run", "--steps", "7", "--resume", status=1).stderr
        self.assertIn("state.json: Stale file handle (tried 5 times)", err)
        self.assertIn("is not skipped", err)
        self.assertEqual(self.content(self.place / "run/checkpoints"), before)

    # The record says that a vocabulary was asked for that the text does not fill.
    def test_an_unread_record_is_a_fault(self):
        few = ("train", "tiny.toml", "--set", "model.vocab_size=2000")
        self.heddle(*few, "--set", "output=run")
        err = self.struck("open prepared/data.json", "EIO", *few, "--set", "output=two", status=1).stderr
        self.assertIn("heddle: cannot open prepared/data.json: Input/output error", err)

    def test_whose_fault_it_is(self):
        self.heddle("train", "tiny.toml", "--set", "output=run")
        err = self.struck("open prepared/text.idx", "EIO", "train", "tiny.toml", "--set", "output=two", status=1).stderr
        self.assertIn("heddle: cannot open prepared/text.idx: Input/output error", err)
        self.assertFalse((self.place / "two").exists(), "a run that never began leaves nothing")
        err = self.heddle("train", "tiny.toml", "--set", "output=two", "--set", "data.source=nowhere", status=2).stderr
        self.assertIn("nowhere", err)
        self.assertFalse((self.place / "two").exists())

    # --- how long ranks wait for one another

    def limits_at(self, point, at):
        """The step, and how long ranks would wait, while the call at that point takes long."""
        run = self.place / "run"
        shutil.rmtree(run, ignore_errors=True)
        running = self.started("--set", "output=run", "--ranks", "2", "--set", "train.checkpoint_every=3", "--steps", "6",
                               env=self.shim(point, "once", at) | {"FAIL_SLOW_MS": "5000", "FAIL_LOG": str(self.place / "log")})
        seen = []

        def page():
            path = run / "ranks/rank-00000"
            with contextlib.suppress(FileNotFoundError, struct.error):
                seen.append(struct.unpack_from("<qqq", path.read_bytes(), 104))    # as in comm/calls/call_page.h
            return running.poll() is not None or len(seen) > 100 and len({*seen[-100:]}) == 1
        self.until(page)
        self.assertIsNone(running.poll(), running.stderr)
        step, _, patience_ms = seen[-1]
        running.kill()
        running.communicate()
        return step, patience_ms / 1000

    def test_patience_goes_by_what_comes(self):
        self.heddle("train", "tiny.toml", "--set", "output=first", "--steps", "1")    # prepares the text
        self.assertEqual(self.limits_at("write run/metrics.jsonl", 4), (4, 60), "behind a checkpoint")
        self.assertEqual(self.limits_at("fsync run/checkpoints/.step-000003*/*", 1), (3, 300), "in the checkpoint")

    # --- hostile files

    def test_op_times_are_not_believed(self):
        running = self.started("--set", "output=run", "--steps", "1000000")
        self.until(lambda: len(self.lines("run")) >= 2)
        out = self.heddle("watch", "run", "--ops", "2").stdout
        self.assertIn("all ops are in run/op_times.json", out)
        running.kill()
        running.wait()
        end = time.monotonic()
        err = self.heddle("watch", "run", "--ops", "2", status=2).stderr
        self.assertEqual(err, "heddle: run: no run trains there\n")
        self.assertLess(time.monotonic() - end, MACHINE_SECONDS / 2)
        self.assertIn("ended", self.heddle("watch", "run").stdout.splitlines()[0])

    def test_a_file_that_is_no_model_is_not_shown(self):
        (self.place / "shadow").write_text("root:$6$hash:19000:0:99999:7:::\n")
        err = self.heddle("inspect", "tiny.toml", "--set", "model.hf=shadow", status=2).stderr
        self.assertNotIn("root", err)
        self.assertIn("shadow: not JSON", err)

    def test_a_long_checksum_is_cut(self):
        self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "3")
        path = self.place / "run/checkpoints/step-000003/state.json"
        path.write_text(re.sub(r'("checksum": ")\w+"', lambda m: m.group(1) + "f" * 70000 + '"', path.read_text(), count=1))
        err = self.heddle("train", "tiny.toml", "--set", "output=run", "--steps", "5", "--resume", status=2).stderr
        self.assertIn("the file is damaged", err)
        self.assertLess(max(map(len, err.splitlines())), 500)

    # --- signals

    def test_limits_of_time_end_a_run_with_a_checkpoint(self):
        for number in (signal.SIGXCPU, signal.SIGALRM):
            run = f"run-{number}"
            running = self.started("--set", f"output={run}", "--steps", "1000000", "--set", "train.checkpoint_every=0")
            self.until(lambda: len(self.lines(run)) >= 2)
            running.send_signal(number)
            running.send_signal(number)  # the first of them comes again each second
            _, err = running.communicate(timeout=MACHINE_SECONDS)
            self.assertEqual(running.returncode, 130, err)
            self.assertEqual(len(self.checkpoints(run)), 1, err)

    def test_a_stop_while_data_is_prepared_ends_at_once(self):
        running = self.started("--set", "output=run",
                               env=self.shim("* text.txt", "slow") |
                               {"FAIL_SLOW_MS": "600000", "FAIL_LOG": str(self.place / "log")})
        self.until(lambda: (self.place / "log").exists() and (self.place / "log").read_text())
        self.assertIsNone(running.poll())
        running.send_signal(signal.SIGTERM)
        begin = time.monotonic()
        _, err = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, -signal.SIGTERM, err)
        self.assertLess(time.monotonic() - begin, 60)
        self.assertIn("ended at once: the run was being prepared; no step was done, nothing is lost\n", err)
        self.heddle("train", "tiny.toml", "--set", "output=run")  # and nothing is in its way

    # --- what is refused before the text is read

    def test_what_needs_no_text_is_refused_first(self):
        (self.place / "adapter").mkdir()
        (self.place / "taken").mkdir()
        (self.place / "taken/config.toml").write_text("")
        (self.place / "file").write_text("")
        for says, more in (
                ("heads", ("mesh.tp=3",)), ("train.start: nowhere: nothing is there", ("train.start=nowhere",)),
                ("model.safetensors", ("train.start=adapter",)),
                ("nothing to keep|no moments", ("train.start=adapter", "train.start_moments=kept")),
                ("lora.rank is 0", ("train.start_adapter=adapter",)),
                ("adapter_config.json", ("train.start_adapter=adapter", "lora.rank=4")),
                ("taken holds a run already", ("output=taken",)), ("file", ("output=file/below",))):
            settings = [word for each in (("output=run",) + more if not more[0].startswith("output") else more)
                        for word in ("--set", each)]
            done = subprocess.run([HEDDLE, "train", "tiny.toml", *settings], cwd=self.place, text=True,
                                  capture_output=True, timeout=MACHINE_SECONDS)
            self.assertIn(done.returncode, (1, 2), (more, done.stderr))
            self.assertRegex(done.stderr, says)
            self.assertFalse((self.place / "prepared").exists(), (more, done.stderr))
            self.assertFalse((self.place / "run").exists(), (more, done.stderr))
        err = self.heddle("train", "tiny.toml", "--resume", "--set", "output=run", status=2).stderr
        self.assertIn("--resume: no run in run", err)
        err = self.heddle("train", "tiny.toml", "--set", "data.validation=gone.txt", status=2).stderr
        self.assertIn("gone.txt", err)
        self.assertEqual(list(self.place.glob("prepared/text.*")), [])
        shutil.rmtree(self.place / "prepared", ignore_errors=True)
        err = self.heddle("train", "tiny.toml", "--prometheus", "nowhere", status=2).stderr
        self.assertIn("--prometheus: 'nowhere' is no address", err)
        self.assertFalse((self.place / "prepared").exists())


if __name__ == "__main__":
    unittest.main()
