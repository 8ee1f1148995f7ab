#!/usr/bin/env python3
"""Benches that are stopped by a signal, reach a limit or lack a program say so first and print what they have measured.

    benches_test.py BUILD_FOLDER
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path()

# Heddle's side or a peer of the comparison with PyTorch: answers at once, or, as the peer `pieces`, never after two
# steps of its warm-up; as `transformers`, never after two pairs.
SIDE = '''
import json, sys, time
name = sys.argv[sys.argv.index("--peer") + 1] if "--peer" in sys.argv else "heddle"
say = lambda **told: print(json.dumps(told), flush=True)
for step in range(2):
    say(warm_up_step=0.25)
if name == "pieces":
    time.sleep(60)
say(ready=True, parameters=1000000, tokens_per_step=100, flops_per_step=1e9, reserved_bytes=1 << 20)
for count, line in enumerate(sys.stdin):
    if name == "transformers" and count == 2:
        time.sleep(60)
    time.sleep(0.01)
    say(seconds=0.01 if name == "heddle" else 0.02, cpu_seconds=0.01, loss=1.0)
'''


def run(command, after=None, number=signal.SIGTERM):
    """Status, standard output and standard error; after so many seconds the signal is sent."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if after is not None:
        time.sleep(after)
        process.send_signal(number)
    out, error = process.communicate(timeout=300)
    return process.returncode, out, error


class Programs(unittest.TestCase):
    def test_a_limit_is_kept_and_told(self):
        begun = time.monotonic()
        status, out, error = run([BUILD / "bench_gemm", "--json", "--limit", "4", "--repeats", "3"])
        self.assertLess(time.monotonic() - begun, 60)
        self.assertEqual(status, 124, error)
        self.assertIn("bench_gemm: stopped at --limit", error)
        rows = json.loads(out)
        self.assertGreater(len(rows), 0)
        self.assertIn("heddle_gflops", rows[0])

    def test_a_signal_leaves_what_was_measured(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            status, out, error = run([BUILD / "bench_gemm", "--repeats", "3"], 4, number)
            self.assertEqual(status, 128 + number, error)
            self.assertIn(f"bench_gemm: stopped by {number.name}", error)
            self.assertIn("forward", out.splitlines()[2])

    def test_a_missing_program_is_told_first(self):
        with tempfile.TemporaryDirectory() as work:
            shutil.copy(BUILD / "bench_memory", work)
            status, out, error = run([pathlib.Path(work) / "bench_memory", "--json", "--limit", "15"])
        lines = error.splitlines()
        self.assertIn("planner_test is not built beside it", lines[0])
        self.assertEqual(status, 124, error)
        self.assertIn("stopped at --limit", lines[1])
        json.loads(out or "{}")


class Everything(unittest.TestCase):
    def test_smoke_prints_each_plan_with_the_same_maths(self):
        status, out, error = run([BUILD / "bench_everything", "--smoke", "--json"])
        self.assertEqual(status, 0, error)
        *rows, summary = [json.loads(line) for line in out.splitlines()]
        self.assertEqual([row["plan"] for row in rows][:3], ["off", "streams", "auto"])
        plans = [row["plan"] for row in rows] + summary.get("left_out", []) + list(summary.get("impossible", {}))
        self.assertLessEqual({"equal-memory", "less-memory", "save-memory", "overlap", "without parallel.weave",
                              "without fusions.norm"}, set(plans))
        self.assertEqual(len(plans), len(set(plans)))
        off = rows[0]
        self.assertIn("parallel.weave=off", off["set"])
        possible = [row for row in rows if "impossible" not in row]
        for row in possible:
            self.assertEqual(len(row["losses"]), 4)
            self.assertLess(row["maths_differ"], 1e-9, row)
            self.assertGreater(row["tokens_per_s"], 0)
            self.assertLessEqual(row.get("hidden_simulated", 0), 1, row)
            if "step_s" in row:  # a paced op never ends early
                self.assertGreater(row["paced_over_simulated"], 0.97, row)
        self.assertNotEqual(off["losses"][0], off["losses"][2], "two steps of training")
        self.assertTrue(summary["summary"])


class Torch(unittest.TestCase):
    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.side = pathlib.Path(self.work.name) / "side.py"
        self.side.write_text(f"#!{sys.executable}\n{SIDE}")
        self.side.chmod(0o755)

    def tearDown(self):
        self.work.cleanup()

    def command(self, *arguments):
        return [sys.executable, ROOT / "bench/torch_bench.py", "--program", self.side, "--peer-program",
                f"{sys.executable} {self.side}", "--shapes", "demo", "--dtypes", "f32", *arguments]

    def test_a_side_that_takes_too_long_leaves_the_others(self):
        status, out, error = run(self.command("--json", "--rounds", "4", "--side-limit", "3", "--peers",
                                              "plain,pieces,transformers"))
        self.assertTrue(error.startswith("Each side has at most 3 s"), error)
        told = json.loads(out)
        peers = {peer["name"]: peer for peer in told["results"][0]["peers"]}
        self.assertIn("no answer within 3 s, all that was left of its 3 s (--side-limit); steps of its warm-up took 0.2 s",
                      peers["pieces"]["failed"])
        self.assertEqual(peers["plain"]["pairs"], 4)
        self.assertEqual(peers["transformers"]["pairs"], 2, "pairs that were measured count")
        self.assertIn("transformers after 2 pairs", error)
        self.assertEqual(told["ratio_vs_torch"], {"demo/f32": 2.0})
        self.assertEqual(status, 0)

    def test_stopped_it_prints_the_pairs_that_it_has(self):
        for arguments, after, status, why in ((["--limit", "4"], None, 124, "at --limit"), ([], 4, 143, "by SIGTERM")):
            told = run(self.command("--rounds", "100000", "--peers", "plain", *arguments), after)
            self.assertEqual(told[0], status, told[2])
            self.assertIn(f"./dev bench torch: stopped {why}", told[2])
            self.assertIn("heddle is 2.00 times as fast", told[1])


if __name__ == "__main__":
    BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
