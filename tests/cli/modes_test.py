#!/usr/bin/env python3
"""The machine measured, plans simulated on it, and what `heddle train --mode` chooses by it.

    modes_test.py PATH_OF_HEDDLE
"""
import json
import re
import os
import signal
import subprocess
import unittest

from program import HEDDLE, Program


class Modes(Program):
    def test_profile_and_simulate(self):
        made = json.loads(self.heddle("profile", "--seconds", "1", "--out", "machine.json", "--json").stdout)
        self.assertGreater(made["ops"], 100)
        self.assertGreater(made["copy_bytes_per_s"], 0)
        simulate = ["simulate", "tiny.toml", "--profile", "machine.json"]
        one = json.loads(self.heddle(*simulate, "--json").stdout)
        self.assertGreater(one["step_seconds"], 0)
        inspected = json.loads(self.heddle("inspect", "tiny.toml", "--json").stdout)["memory"]
        self.assertEqual(one["persistent_bytes"], inspected["persistent_bytes"])
        # Its own ops, measured, take the place of those nearest in size.
        self.heddle("profile", "tiny.toml", "--out", "machine.json")
        two = json.loads(self.heddle(*simulate, "--json", "--ranks", "2", "--set", "mesh.ep=2", "--trace",
                                     "step.perfetto").stdout)
        self.assertEqual([rank["alike"] for rank in two["ranks"]], [2])  # both do the same
        self.assertIn("combine", two["exposed_seconds"])
        memory = two["ranks"][0]["memory"]
        self.assertEqual(max(memory["live_bytes"]), two["peak_live_bytes"])
        self.assertEqual(memory["at_seconds"], sorted(memory["at_seconds"]))
        self.assertGreater(two["caching_allocator_bytes"], two["peak_live_bytes"])
        self.assertIn(b"rank 1", (self.folder / "step.perfetto").read_bytes())
        self.assertIn("waiting for", self.heddle(*simulate).stdout)
        on_two = [*simulate, "--ranks", "2", "--set", "mesh.ep=2"]
        drawn = json.loads(self.heddle(*on_two, "--json", "--routing", "0.3", "--jitter", "0.1", "--draws", "9").stdout)
        self.assertEqual(drawn["draws"]["count"], 9)
        self.assertEqual([rank["alike"] for rank in drawn["ranks"]], [1, 1])
        self.assertGreaterEqual(drawn["draws"]["step_seconds"]["p99"], drawn["draws"]["step_seconds"]["p50"])
        self.assertIn("9 draws", self.heddle(*on_two, "--routing", "0.3", "--draws", "9").stdout)
        self.refused("--routing is 'uneven', accepted: balanced, a spread such as 0.13, the folder or metrics of a run",
                     *on_two, "--routing", "uneven")
        self.refused("--routing -1: a spread is between 0 and 10", *on_two, "--routing=-1")
        (self.folder / "counts.jsonl").write_text('{"step":1,"wall_time_s":0,"expert_loads":[[1,2]]}\n')
        refused = self.heddle(*on_two, "--routing", "counts.jsonl", status=2).stderr
        self.assertIn("counts.jsonl has the rows of", refused)
        (self.folder / "counts.jsonl").write_text('{"step":1,"wall_time_s":0}\n')
        self.refused("--routing counts.jsonl: none of its steps has counted the experts' rows (train.eval_every sets when)",
                     *on_two, "--routing", "counts.jsonl")
        self.refused("--hosts 2: the profile has no messages between hosts; `heddle profile --out FILE` under mpirun, on "
                     "ranks of several hosts, adds them", *on_two, "--hosts", "2")
        # Of a device that is not there, and of another than the configuration's.
        self.refused("--device is 'tpu', accepted: host, cuda", "profile", "--device", "tpu")
        self.refused("machine.json: the profile is of device.backend \"host\", wanted one of \"cuda\": heddle profile "
                     "--device cuda --out FILE measures it", "simulate", "tiny.toml", "--profile", "machine.json",
                     "--set", "device.backend=cuda")
        if re.search("device cuda +not available", self.heddle("doctor").stdout):
            lines = self.heddle("profile", "--device", "cuda", status=2).stderr.splitlines()
            self.assertEqual(len(lines), 1, lines)
            self.assertTrue(lines[0].startswith("heddle: device.backend is \"cuda\": "), lines)
        (self.folder / "broken.json").write_text('{"heddle_profile": 9}')
        self.refused("broken.json: a profile of version 9, this program reads version 1: run heddle profile again", "simulate", "tiny.toml", "--profile", "broken.json")

    def test_a_profile_that_crashes_says_where(self):
        profile = subprocess.Popen([HEDDLE, "profile", "--seconds", "60", "--out", "crash.json"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.assertIn("measuring this machine", profile.stderr.readline())
        profile.send_signal(signal.SIGSEGV)
        said = profile.communicate()[1]
        self.assertEqual(profile.returncode, -signal.SIGSEGV)
        self.assertRegex(said, r"heddle: signal SIGSEGV \(an address that is not there\) while ")

    MODES = ["--set", "train.eval_every=0", "--set", "data.folder=prepared-modes"]

    def test_modes(self):
        train = ["train", "tiny.toml", "--profile", self.modes_profile(), *self.MODES, "--ranks", "2"]
        for mode in ("auto", "save-memory", "overlap"):
            done = self.heddle(*train, "--mode", mode, "--json", "--set", f"output={mode}", "--set", "mesh.cp=1")
            self.assertRegex(done.stderr, f"mode {mode}: [0-9]+ plans simulated, 0 do not fit; .*: a step of ")
            self.check_refit(done)
            self.assertNotIn("mesh.cp=", done.stderr)  # what is set stays
            self.assertIn("prediction off by", (self.folder / mode / "report.html").read_text())
        self.refused("--mode is 'fast', accepted: auto, save-memory, overlap", *train, "--mode", "fast")

    def modes_profile(self):
        if not (self.folder / "modes.json").exists():
            self.heddle("profile", "--seconds", "1", "--out", "modes.json")
        return "modes.json"

    # What is refitted, and how, is refit_test's: here other programs have a hand in how long steps take.
    def check_refit(self, done):
        found = json.loads(done.stdout)
        foretold, took = found["step_foretold_seconds"], found["first_steps_seconds"]
        self.assertGreater(foretold, 0)
        self.assertGreater(took, 0)
        self.assertIn(f"the prediction was {100 * (foretold / took - 1):+.1f} % off", done.stderr)
        again = found["step_foretold_refitted_seconds"]
        self.assertIn(f"predicted, {100 * (again / took - 1):+.1f} % off", done.stderr)

    def test_modes_where_nothing_fits(self):
        # Without expert parallelism: how uneven a router spreads rows over ranks is in no plan.
        train = ["train", "tiny.toml", "--profile", self.modes_profile(), *self.MODES, "--ranks", "2", "--set", "mesh.ep=1",
                 "--set", "train.sequence_length=128", "--set", "device.memory_bytes=1MiB", "--set", "output=unfit"]
        unfit = self.heddle(*train, "--mode", "auto", status=2).stderr
        self.assertRegex(unfit, r"^(simulating plans.*\n)*heddle: tiny.toml: none of [0-9]+ plans of 2 ranks fits the memory limit; the "
                                r"configured one: .*the largest tensors: .*\nthe cheapest remedy: memory of [0-9]+ MiB "
                                r"a rank \(device.memory_bytes\).*: a step of .* % against the shortest plan's\n$")
        needs = int(unfit.split("memory of ")[1].split()[0])
        # With the memory that it asks for there is a plan, which runs.
        del train[train.index("device.memory_bytes=1MiB") - 1:]
        self.heddle(*train, "--mode", "save-memory", "--set", f"device.memory_bytes={needs}MiB", "--set", "output=fits",
                    "--steps", "1")
        self.assertFalse((self.folder / "unfit").exists())

    def test_modes_under_mpi(self):
        self.needs_mpi()
        # Whichever plan is chosen here, its memory is known to the byte: no rows are spread over ranks. The forecast
        # is of a run that looks at the held-out text.
        train = ["train", "tiny.toml", "--profile", self.modes_profile(), *self.MODES, "--set", "mesh.ep=1", "--set",
                 "train.eval_every=3"]
        for ranks, mode in ((2, "auto"), (4, "save-memory")):
            done = self.mpirun(*train, "--mode", mode, "--json", "--set", f"output=mode-{ranks}", ranks=ranks)
            said = [line for line in done.stderr.splitlines() if line.startswith("mode ")]
            self.assertEqual(len(said), 1, done.stderr)
            profile = json.loads((self.folder / "modes.json").read_text())
            self.assertIn(["node", ranks], [link[:2] for link in profile["links"]])
            self.check_refit(done)
            self.assertIn(f"ranks = {ranks}", (self.folder / f"mode-{ranks}/config.toml").read_text())
            foretold = json.loads(done.stdout)
            self.assertEqual(foretold["reserved_bytes"], foretold["predicted_reserved_bytes"])
        for more in (["--mode", "overlap"], []):
            done = self.mpirun(*train, *more, "--set", "device.memory_bytes=700KiB", "--set", "output=unfit-mpi",
                               fails=True)
            said = [line for line in done.stderr.splitlines() if line.startswith(("heddle", "the cheapest remedy"))]
            self.assertEqual(len(said), 2, done.stderr)
        done = self.mpirun(*train, "--mode", "fast", fails=True)
        said = [line for line in done.stderr.splitlines() if line.startswith("heddle")]
        self.assertEqual(said, ["heddle: --mode is 'fast', accepted: auto, save-memory, overlap"])

    RATES = ("product_rate", "memory_rate", "host_rate", "message_rate", "message_latency_us")

    def rates(self, output):
        lines = (self.folder / output / "config.toml").read_text().splitlines()
        return {key: float(line.split("=")[1].split("#")[0]) for line in lines for key in self.RATES
                if line.startswith(key + " ")}

    # Two profiles of other machines; what the first one measured.
    def two_profiles(self):
        measured = json.loads((self.folder / self.modes_profile()).read_text())
        measured["links"] = [["threads", 2, 1000, 9], ["threads", 2, 1001000, 259], ["node", 2, 1000, 19],
                             ["node", 2, 1001000, 519]]
        (self.folder / "linked.json").write_text(json.dumps(measured))
        other = dict(measured, copy_bytes_per_s=measured["copy_bytes_per_s"] / 7, links=[])
        (self.folder / "other.json").write_text(json.dumps(other))
        return measured

    # Weaving and offload go by the profile, also when the run goes on; no bit does.
    def test_measured_rates(self):
        measured = self.two_profiles()
        train = ["train", "tiny.toml", *self.MODES, "--set", "mesh.dp=2", "--set", "mesh.ep=2", "--set",
                 "memory.offload=input", "--ranks", "2"]
        none = dict(os.environ, XDG_CACHE_HOME=str(self.folder / "no-cache"))
        self.heddle(*train, "--steps", "4", "--set", "output=nominal", environment=none)
        self.assertEqual(self.rates("nominal"), dict.fromkeys(self.RATES, 0))
        train += ["--set", "output=rated"]
        self.heddle(*train, "--steps", "2", "--profile", "linked.json")
        rated = self.rates("rated")
        self.assertAlmostEqual(rated["memory_rate"] / (measured["copy_bytes_per_s"] / 2e9), 1, 2)
        self.assertAlmostEqual(2 * rated["host_rate"] / rated["memory_rate"], 1, 2)
        self.assertEqual((rated["message_rate"], rated["message_latency_us"]), (4, 9))
        self.assertGreater(rated["product_rate"], 0)
        self.heddle(*train, "--steps", "4", "--profile", "other.json", "--resume")
        self.assertEqual(self.rates("rated"), rated)
        self.assertEqual(self.losses("rated"), self.losses("nominal"))

    # Ranks whose machines have other profiles lower the program of rank 0's rates: they compare its text.
    def test_measured_rates_under_mpi(self):
        self.needs_mpi()
        measured = self.two_profiles()
        train = ["train", "tiny.toml", *self.MODES, "--set", "mesh.ep=2", "--steps", "2", "--set", "output=rated-mpi"]
        self.mpirun(*train, own=(["--profile", "linked.json"], ["--profile", "other.json"]))
        found = self.rates("rated-mpi")
        self.assertEqual((found["message_rate"], found["message_latency_us"]), (2, 19))
        self.assertAlmostEqual(found["memory_rate"] / (measured["copy_bytes_per_s"] / 2e9), 1, 2)


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
