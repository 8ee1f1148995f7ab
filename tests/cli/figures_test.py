#!/usr/bin/env python3
"""What `heddle predict` and `heddle claims` compute.

    figures_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from program import HEDDLE, MACHINE_SECONDS


class Predict(unittest.TestCase):
    HEADER = "model,hw,gpus,tp,pp,dp,mbs,gbs,seq,tokens_per_s_per_gpu\n"

    def predict(self, text, *more):
        with tempfile.TemporaryDirectory() as folder:
            points, out = pathlib.Path(folder) / "points.csv", pathlib.Path(folder) / "out.csv"
            points.write_text(text)
            done = subprocess.run([HEDDLE, "predict", "--points", points, "--out", out, *more],
                                  capture_output=True, text=True, timeout=MACHINE_SECONDS)
            return done, out.read_text() if out.exists() else ""

    def test_every_row_comes_back(self):
        done, out = self.predict(self.HEADER + "LLAMA3_8B,H100,8,1,1,8,1,128,8192,12000\n"
                                 "Unheard of,H100,8,1,1,8,1,128,8192,\n", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        header, known, unknown = out.splitlines()
        self.assertTrue(header.endswith("predicted_tokens_per_s_per_gpu,predicted_peak_mem_gb,reason"))
        self.assertGreater(float(known.split(",")[-3]), 1000)
        self.assertGreater(float(known.split(",")[-2]), 10)
        low, high, memory_low, memory_high, speed, memory = map(float, known.split(",")[-7:-1])
        self.assertLess(low, speed)
        self.assertLess(speed, high)
        self.assertLess(memory_low, memory)
        self.assertLess(memory, memory_high)
        self.assertIn(",,the model 'Unheard of' is not known", unknown)
        summary = json.loads(done.stdout)
        self.assertEqual((summary["rows"], summary["predicted"]), (2, 1))

    def test_malformed_points_are_refused_in_one_line(self):
        for text, said in (("", "empty"), (self.HEADER + "a,b\n", "2 fields, the header has 10"),
                           (self.HEADER + '"a,b\n', "never closed"), ("gpus\n8\n", "no columns 'model', 'hw'")):
            done, out = self.predict(text)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertEqual(out, "")


class Claims(unittest.TestCase):
    def test_every_claim_is_computed(self):
        done = subprocess.run([HEDDLE, "claims", "--json"], capture_output=True, text=True, timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {c["claim"]: c for c in json.loads(done.stdout)}
        for claim in found.values():
            self.assertTrue(claim["source"] and claim["setting"], claim)
            self.assertGreater(claim["ours"] * claim["published_low"], 0, claim)  # no sign is wrong
        # Closed forms and schedules come near what was published for just these settings.
        for name in ("zb_h1_small", "zb_h1_large", "empty_layers"):
            self.assertAlmostEqual(found[name]["ours"], found[name]["published_low"], delta=0.03, msg=name)

    def test_one_claim(self):
        done = subprocess.run([HEDDLE, "claims", "mergin"], capture_output=True, text=True, timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean 'merging'", done.stderr)


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
