#!/usr/bin/env python3
"""`heddle schedule` as a user runs it: tables, orders and pictures of pipeline schedules.

    schedule_test.py PATH_OF_HEDDLE
"""
import json
import os
import signal
import subprocess
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program


class Schedule(Program):
    def schedule(self, *arguments):
        return json.loads(self.heddle("schedule", *arguments, "--json").stdout)

    def test_schedule(self):
        found = self.schedule("zb_h1", "--ranks", "8", "--microbatches", "24",
                              "--times", "18.522,18.086,9.337,45.945,0.601")
        self.assertEqual(round(found["bubble_staggered"], 4), 0.1585)  # the Zero Bubble paper's, for its 1.5B model
        self.assertEqual(found["peak"][0], 8)
        whole = self.schedule("zb_h1", "--ranks", "8", "--microbatches", "24", "--memory", "100,900")
        self.assertEqual(whole["peak"], [(8 - r) * 1000 + r * 900 for r in range(8)])
        self.assertEqual(whole["peak_for_weight_grad"], [r * 900 for r in range(8)])
        found = self.schedule("zb_2p", "--ranks", "8", "--microbatches", "24",
                              "--times", "18.522,18.086,9.337,45.945,0.601")
        self.assertEqual(round(found["bubble_staggered"], 4), 0.0433)
        self.assertLessEqual(max(found["peak"]), 16)
        found = self.schedule("zb_2p", "--ranks", "8", "--microbatches", "24", "--memory", "0.06,0.94",
                              "--times", "18.522,18.086,9.337,45.945,0.601")
        self.assertLessEqual(max(found["peak"]), 16)  # within its limit whatever W keeps, at the price of bubble
        found = self.schedule("1f1b", "--ranks", "8", "--microbatches", "32", "--a2a", "0.5")
        self.assertEqual(round(found["efficiency"], 3), 0.615)
        self.assertEqual(round(found["bubble_synchronous"], 6), round(7 / 39, 6))
        self.assertEqual(found["order"][7][:12], "r7 F0 B0 F1 ")
        all_of_them = self.schedule("--all", "--ranks", "4", "--microbatches", "8")
        self.assertGreaterEqual(len(all_of_them), 14)
        for each in all_of_them:
            self.assertIn("bubble_synchronous", each)
        self.assertIn("zb_v", self.heddle("schedule").stdout)

    def test_schedule_synthesis(self):
        sizes = ("synthesis", "--ranks", "4", "--microbatches", "8", "--memory", "0,1", "--effort", "0.01")
        found = self.schedule(*sizes, "--cap", "3.5")
        self.assertLessEqual(max(found["peak"]), 3.5)
        fits = [each["makespan"] for each in found["synthesis"]["named"] if each["fits"]]
        self.assertTrue(fits)
        self.assertLessEqual(found["makespan"], min(fits))
        self.assertLessEqual(found["synthesis"]["bound"], found["makespan"])
        found = self.schedule(*sizes, "--cap", "4,3,3,2")
        self.assertTrue(all(held <= cap for held, cap in zip(found["peak"], (4, 3, 3, 2))))
        self.refused("schedule: synthesis needs --cap, the room of each rank for activations in the unit of --memory",
                     "schedule", *sizes)
        self.refused("schedule synthesis: cap 0.5 of rank 0, accepted from 1 (one microbatch of each of its stages)",
                     "schedule", *sizes, "--cap", "0.5")
        self.refused("schedule: --cap with zb_v, accepted with synthesis", "schedule", "zb_v", "--ranks", "4",
                     "--microbatches", "8", "--cap", "4")

    def test_a_stopped_synthesis_prints_the_fastest_order_so_far(self):
        running = subprocess.Popen([HEDDLE, "schedule", "synthesis", "--cap", "6", "--ranks", "8", "--microbatches", "24",
                                    "--memory", "0,1", "--effort", "1000", "--json"], cwd=self.folder,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = running.stderr.readline()  # told once it has searched for some seconds
        self.assertRegex(line, r"^searching for a schedule, the fastest so far takes [\d.]+: \d+ %, 0:\d\d")
        running.send_signal(signal.SIGTERM)
        out, said = running.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual(running.returncode, 130, said)
        self.assertIn("stopping: the fastest order so far is printed\n", said)
        found = json.loads(out)
        self.assertTrue(0 < found["synthesis"]["searched"] < 1)
        self.assertLessEqual(max(found["peak"]), 6)
        self.assertLess(found["makespan"], min(each["makespan"] for each in found["synthesis"]["named"] if each["fits"]) + 1e-9)

    def test_sizes_that_are_not_said(self):
        self.assertEqual(self.schedule("1f1b"), self.schedule("1f1b", "--ranks", "4", "--microbatches", "8"))
        self.assertEqual(self.schedule("dual_pipe", "--ranks", "6")["microbatches"], 12)
        self.assertEqual(len(self.schedule("--all")), len(self.schedule("--all", "--ranks", "4", "--microbatches", "8")))
        for name in self.schedule():  # every schedule draws something
            self.heddle("schedule", name["schedule"])

    def test_the_heading_names_only_times_that_count(self):
        self.assertIn("\n4 ranks, 4 stages, 8 microbatches\ntimes of a rank's layers: F (forward) 1, I (input gradient) 1, "
                      "W (weight gradient) 1\n\n", self.heddle("schedule", "1f1b").stdout)
        self.assertIn(" 1, [F|B] (a forward fused with a backward) 3, all-to-all 0.5 in F and again in I, hidden in [F|B]\n",
                      self.heddle("schedule", "dual_pipe", "--a2a", "0.5").stdout)

    def test_schedule_reads_what_it_prints(self):
        made = self.heddle("schedule", "zb_v", "--ranks", "3", "--microbatches", "7", "--text").stdout
        (self.folder / "mine.txt").write_text(made)
        self.assertEqual(self.heddle("schedule", "mine.txt", "--text").stdout, made)
        self.heddle("schedule", "mine.txt", "--svg", "mine.svg")
        self.assertTrue((self.folder / "mine.svg").read_text().endswith("</svg>\n"))
        (self.folder / "stuck.txt").write_text("x ranks=2 stages=2 microbatches=1\nr0 B0 F0\nr1 F0 B0\n")
        done = self.heddle("schedule", "stuck.txt", status=2)
        self.assertIn("r0 >B0< F0  waits for F0 of rank 0, B0 of rank 1\n", done.stderr)
        (self.folder / "bad.txt").write_text("x ranks=1 stages=1 microbatches=1\nr0 F0 X0\n")
        self.refused("bad.txt: schedule text, line 2: found 'X0' on rank 0, accepted F0, I0, W0, B0 or [F1|B0], "
                     "microbatches below 1", "schedule", "bad.txt")
        self.refused("schedule: --ranks with a file; accepted with a name, the file has its own",
                     "schedule", "mine.txt", "--ranks", "3")

    def test_schedule_of_uneven_stages(self):
        # 61 layers on 64 places: the three empty ones on the stages that hold the embedding and the loss
        layout = "Ettt|" + "tttt|" * 14 + "ttL"
        found = self.schedule("interleaved", "--ranks", "8", "--microbatches", "32", "--layout", layout)
        plain = self.schedule("1f1b", "--ranks", "8", "--microbatches", "32", "--layout",
                              "E" + "|".join(["t" * 8] * 5 + ["t" * 7] * 3) + "L")
        self.assertGreater(plain["makespan"] / found["makespan"], 1.06)
        self.refused("parallel.layout has 2 stages, the pipeline 8 (mesh.pp × parallel.chunks)",
                     "schedule", "1f1b", "--ranks", "8", "--microbatches", "8", "--layout", "Et|tL")

    def test_schedule_refusals(self):
        self.refused("unknown schedule 'zb_h3', did you mean 'zb_h1'?", "schedule", "zb_h3")
        sizes = ["--ranks", "2", "--microbatches", "4"]
        self.refused("schedule: --times '1,x', accepted 3 to 5 numbers of at least 0 with commas between them",
                     "schedule", "1f1b", *sizes, "--times", "1,x")
        self.refused("schedule: --times '1,inf,1', accepted 3 to 5 numbers of at least 0 with commas between them",
                     "schedule", "1f1b", *sizes, "--times", "1,inf,1")
        self.refused("1f1b: 3 chunks a rank, accepted 1", "schedule", "1f1b", *sizes, "--chunks", "3")


if __name__ == "__main__":
    os.environ["NO_COLOR"] = "1"
    unittest.main()
