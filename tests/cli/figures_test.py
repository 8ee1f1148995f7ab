#!/usr/bin/env python3
"""What `heddle predict` and `heddle claims` compute.

    figures_test.py PATH_OF_HEDDLE
"""
import json
import os
import pathlib
import tempfile
import unittest

from program import run

PAGES = pathlib.Path(__file__).resolve().parents[2] / "docs"


class Predict(unittest.TestCase):
    HEADER = "model,hw,gpus,tp,pp,dp,mbs,gbs,seq,tokens_per_s_per_gpu\n"

    def predict(self, text, *more):
        with tempfile.TemporaryDirectory() as folder:
            points, out = pathlib.Path(folder) / "points.csv", pathlib.Path(folder) / "out.csv"
            points.write_text(text)
            done = run("predict", "--points", points, "--out", out, *more)
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
        self.assertLessEqual(memory, memory_high)  # no more than the device has
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
    @classmethod
    def setUpClass(cls):
        done = run("claims", "--json")
        assert done.returncode == 0, done.stderr
        cls.rows = {c["claim"]: c for c in json.loads(done.stdout)}

    def test_no_row_is_empty(self):
        self.assertGreaterEqual(sum(row["system"] != "others" for row in self.rows.values()), 34)
        for row in self.rows.values():
            self.assertTrue(row["source"] and row["setting"] and row["what"], row)
            self.assertTrue(row["by"] or "measured" in row, row)
            self.assertEqual(bool(row["by"]), row["ours"] is not None, row)
            if "measured" in row:
                self.assertTrue(row["measured"]["setting"] and row["measured"]["command"], row)
                self.assertTrue((PAGES / row["measured"]["page"]).is_file(), row)
                self.assertRegex(row["measured"]["date"], r"^20\d\d-\d\d-\d\d$")
            self.assertTrue(row["verdict"] != "weaker" or row["reason"], row)

    def test_only_what_is_weaker_may_have_the_other_sign(self):
        for row in self.rows.values():
            for ours in (row["ours"], row.get("measured", {}).get("high")):
                if ours is not None and row["published_low"] != 0 and row["verdict"] != "weaker":
                    self.assertGreater(ours * row["published_low"], 0, row)

    def test_the_verdict_follows_from_the_figures(self):
        for row in self.rows.values():
            theirs = [row["published_low"], row["published_high"]]
            ours = [row["measured"]["low"], row["measured"]["high"]] if "measured" in row else [row["ours"]] * 2
            if row["better"] == "same":
                near = min(ours) <= max(theirs) * 1.25 and max(ours) >= min(theirs) * 0.75
                self.assertEqual(row["verdict"], "level" if near else "weaker", row)
                continue
            sign = 1 if row["better"] == "higher" else -1
            worst = min(sign * one for one in ours)
            best, least = max(sign * one for one in theirs), min(sign * one for one in theirs)
            met = least - 0.05 * abs(least)
            expected = "beyond" if worst > best + 0.05 * abs(best) else "level" if worst >= met else "weaker"
            self.assertEqual(row["verdict"], expected, row)

    def test_closed_forms_and_schedules_come_near_what_was_published_for_their_settings(self):
        for name in ("zb_h1_small", "zb_h1_large", "empty_layers"):
            row = self.rows[name]
            self.assertAlmostEqual(row["ours"], row["published_low"], delta=0.03, msg=name)
        self.assertAlmostEqual(self.rows["zb_h1_bubble"]["ours"], 1 / 3)
        self.assertEqual(self.rows["zb_h1_stage_0"]["ours"], 0)

    def test_one_claim(self):
        done = run("claims", "merging")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("./dev bench exchange", done.stdout)
        done = run("claims", "mergin")
        self.assertEqual(done.returncode, 2)
        self.assertIn("did you mean 'merging'", done.stderr)


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
