#!/usr/bin/env python3
"""The bundle that goes to a device, made, unpacked and run here from start to end, on the processor.

    session_test.py BUILD
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
sys.path.insert(0, str(SOURCE / "tools/gpu_session"))
import session  # noqa: E402
import stages  # noqa: E402

# What runs on a processor in a dry run; the others need a device, or a library that a machine may lack.
ON_ANY = {"facts", "doctor", "demo", "demo_own", "ranks", "ops", "ops_own", "step", "step_without_hopper", "step_fp8", "step_graphs",
          "profile", "curve", "curve_beside_host"}


class DryRun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.TemporaryDirectory(prefix="gpu_session_test-")
        cls.folder = pathlib.Path(cls.work.name)
        cls.done = subprocess.run(
            [sys.executable, str(SOURCE / "tools/gpu_session/bundle.py"), "--build", str(BUILD), "--out",
             str(cls.folder / "bundle.tar.xz"), "--results", str(cls.folder / "results"), "--dry-run"],
            capture_output=True, text=True)
        summary = cls.folder / "results/summary.json"
        cls.results = json.loads(summary.read_text()) if summary.exists() else {}

    @classmethod
    def tearDownClass(cls):
        cls.work.cleanup()

    def test_every_stage_comes_to_an_end(self):
        self.assertEqual(self.done.returncode, 0, self.done.stdout + self.done.stderr)
        self.assertEqual(list(self.results), [name for name, *_ in stages.STAGES])
        for name, told in self.results.items():
            if told["status"] == "skipped":
                self.assertTrue(told["reason"], name)
                self.assertNotIn(name, ON_ANY, told["reason"])
            else:
                self.assertEqual(told["status"], "done", told)

    def test_each_stage_leaves_its_file_and_the_table_names_all(self):
        files = sorted(path.name for path in (self.folder / "results").glob("*_*.json"))
        self.assertEqual(files, [f"{n:02}_{name}.json" for n, (name, *_) in enumerate(stages.STAGES)])
        table = (self.folder / "results/summary.md").read_text()
        for row in json.loads((SOURCE / "tools/gpu_session/predictions.json").read_text()):
            self.assertIn(row["what"], table)

    def test_what_ran_was_read(self):
        self.assertGreater(self.results["ops"]["result"]["rms_norm"], 0)
        self.assertGreater(self.results["step"]["result"]["mfu"], 0)
        self.assertEqual(self.results["demo"]["result"]["f32_from_host"], 0)
        self.assertEqual(len(self.results["ranks"]["result"]["losses"]), 2)


class Predictions(unittest.TestCase):
    def test_each_key_is_a_stage_of_the_session(self):
        names = {name for name, *_ in stages.STAGES}
        for row in json.loads((SOURCE / "tools/gpu_session/predictions.json").read_text()):
            self.assertIn(row["key"].split(".", 1)[0], names)
            self.assertLess(row["low"], row["high"])

    def test_what_was_measured_stands_beside_what_was_foretold(self):
        rows = [{"key": "ops.adamw", "low": 0.8, "high": 0.9, "what": "update"}]
        for value, word in ((0.7, "below"), (0.85, "as predicted"), (0.95, "above")):
            results = {"ops": {"status": "done", "seconds": 1, "result": {"adamw": value}}}
            self.assertIn(f"| {value} | {word} |", session.summary(results, rows))


class Stages(unittest.TestCase):
    """What a stage that goes wrong leaves behind."""

    class Told(session.Session):
        def __init__(self, told):
            self.told, self.dry, self.root, self.out = told, False, pathlib.Path("/nowhere"), pathlib.Path("/nowhere")

        def run(self, command, may_fail=False, **environment):
            return self.told

        def program(self, name):
            return name

        def keep(self, name, text):
            pass

    def test_failed_tests_are_named(self):
        out = "[  PASSED  ] 3 tests.\n[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Ops.adamw, where\n"
        with self.assertRaisesRegex(stages.Failed, "Ops.adamw"):
            stages.tests(self.Told(session.Told(1, out, "")))

    def test_a_trial_that_fails_is_told_with_its_reason(self):
        trials = [{"good": True, "what": "a launch", "found": "x"},
                  {"good": False, "what": "a product", "found": "cuBLASLt: status 14", "remedy": "y"}]
        out = json.dumps({"device": "cuda", "good": False, "trials": trials})
        with self.assertRaisesRegex(stages.Failed, "a product: cuBLASLt: status 14"):
            stages.trials(self.Told(session.Told(1, out, "")))

    def test_tests_that_were_all_skipped_say_so(self):
        out = "[  PASSED  ] 0 tests.\n[  SKIPPED ] 2 tests, listed below:\n"
        with self.assertRaises(stages.Skip):
            stages.tests(self.Told(session.Told(0, out, "")))

    def test_a_bench_without_a_device_is_skipped_and_a_broken_one_failed(self):
        with self.assertRaises(stages.Skip):
            stages.ops(self.Told(session.Told(77, "", "bench_gpu: skipped: no device\n")))
        with self.assertRaises(stages.Failed):
            stages.ops(self.Told(session.Told(1, "", "bench_gpu: out of memory\n")))


if __name__ == "__main__":
    unittest.main()
