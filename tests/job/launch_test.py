#!/usr/bin/env python3
"""Jobs of `heddle launch` on hosts that this machine pretends to be.

    launch_test.py PATH_OF_HEDDLE LIBFAIL_CALLS

Beside what stands here a short draw of the campaign (tools/campaign.py); HEDDLE_LAUNCH_RUNS says of how many.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from emulated import EVERY, MACHINE_SECONDS, ROOT, STEPS, Job, Reference, digests, environment, events

HEDDLE, SHIM = (pathlib.Path(sys.argv.pop(1)).resolve() for _ in range(2))
RUNS = int(os.environ.get("HEDDLE_LAUNCH_RUNS", "3"))
CORRUPTIONS = 10 * RUNS


def lasting_starts(job):
    """Starts of generations that came to a step: on a busy machine mpirun now and then fails to start its daemons, which is a
    fault like any other and no concern of most tests."""
    log = events(job.run)
    ran = {e["generation"] for e in log
           if e["event"] == "running" or e["event"] == "end" and (e["step"] > 0 or e["cause"] == "done")}
    return [e for e in log if e["event"] == "start" and e["generation"] in ran]


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-launch-test-")).resolve()
        (cls.base / "reference").mkdir()
        cls.reference = Reference(HEDDLE, cls.base / "reference")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base, ignore_errors=True)

    def job(self, name, **options):
        job = Job(HEDDLE, self.reference, self.base / name, **options)
        self.addCleanup(job.end)
        job.start()
        return job

    def goes_well(self, job):
        self.assertEqual(job.wait(), 0, job.text())
        made, order = digests(job.run)
        self.assertEqual(made, self.reference.digests)
        self.assertEqual(order, list(range(1, STEPS + 1)))
        self.assertEqual(job.left_behind(), [])

    # Four hosts, one is lost, three go on, it comes back, four end the job: nobody can tell from the weights.
    def test_a_host_is_lost_and_comes_back(self):
        job = self.job("elastic")
        job.wait_until(lambda: job.steps_done() >= 8)
        job.lose_host("node2")
        job.wait_until(lambda: len(lasting_starts(job)) >= 2 and job.steps_done() >= 14)
        job.mend_host("node2")
        self.goes_well(job)
        starts = lasting_starts(job)
        self.assertEqual([e["ranks"] for e in starts], [4, 3, 4], job.text())
        self.assertNotIn("node2", starts[1]["hosts"])
        self.assertIn("node2", starts[2]["hosts"])
        self.assertGreater(starts[1]["layouts_considered"], 1)

    def test_a_spare_takes_the_place(self):
        job = self.job("spare", hosts=3, more=["--spares", "1"])
        job.wait_until(lambda: job.steps_done() >= 8)
        job.lose_host("node0")
        self.goes_well(job)
        starts = lasting_starts(job)
        self.assertEqual([e["hosts"] for e in starts], [["node0", "node1"], ["node1", "node2"]], job.text())
        self.assertEqual([e["set"] for e in starts], [["mesh.ranks=2"]] * 2)

    # A rank that stands still: where it stood, and who waits where for whom.
    def test_a_hang_is_explained(self):
        job = self.job("hang", hosts=3)
        job.wait_until(lambda: job.steps_done() >= 8)
        Job.strike([pid for pid, one in job.processes().items() if one[2] == 1], signal.SIGSTOP)
        self.goes_well(job)
        end = next(e for e in events(job.run) if e["event"] == "end")
        self.assertEqual(end["suspects"], [1], end)
        self.assertRegex(end["reason"], r"rank 1 \(.*\) is dead, stopped or cut off")
        self.assertRegex(end["standing"][0], r"^rank 1 \(.*\) stood .*(comm\.|outside).*, in step \d+$")
        self.assertRegex("\n".join(end["standing"]), r"rank \d \(.*\) never entered exchange \d+ of comm\.|"
                                                     r"rank \d \(.*\) has not sent what rank|stood in exchange")
        self.assertIn(end["standing"][0], job.text())

    def test_a_crash_loop_is_given_up(self):
        (self.base / "loop-shell").write_text(
            f'#!/bin/sh\nhost=$1\nshift\ncase "$*" in true) ;; *) exit 1 ;; esac\nexec {ROOT}/tools/emulated_host "$host" "$@"\n')
        (self.base / "loop-shell").chmod(0o755)
        job = Job(HEDDLE, self.reference, self.base / "loop", hosts=2)
        self.addCleanup(job.end)
        done = subprocess.run([HEDDLE, "launch", "tiny.toml", "--hosts", "hosts", "--by", "mpirun", "--shell",
                               str(self.base / "loop-shell"), "--pause", "0.1", "--set", "output=run"], cwd=job.folder,
                              env=environment(job.folder), capture_output=True, text=True, timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 1, done.stderr)
        ours = [line for line in done.stderr.splitlines() if line.startswith("heddle: ") and "warning" not in line]
        self.assertEqual(len(ours), 1, done.stderr)
        self.assertRegex(ours[0], r"given up: 3 ends in a row came no further than step 0; the last: ")
        pauses = [float(line.split("in ")[-1].split(" s")[0]) for line in done.stderr.splitlines() if "the next start" in line]
        self.assertEqual(pauses, [0.1, 0.2])

    def test_a_mistake_ends_the_job_at_once(self):
        job = Job(HEDDLE, self.reference, self.base / "mistake", hosts=2)
        self.addCleanup(job.end)
        for more, message in ((["--set", "train.lerning_rate=1"], "train.lerning_rate"),
                              (["--set", "data.source=nowhere"], "nowhere")):
            done = subprocess.run([HEDDLE, "launch", "tiny.toml", "--hosts", "hosts", "--by", "mpirun", "--shell",
                                   str(ROOT / "tools/emulated_host"), "--resume", "--set", "output=run", *more],
                                  cwd=job.folder, env=environment(job.folder), capture_output=True, text=True,
                                  timeout=MACHINE_SECONDS)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(message, done.stderr)
            self.assertNotIn("fault", [e["cause"] for e in events(job.run) if e["event"] == "end" and e["step"] > 0])

    def test_asked_to_stop_it_saves_and_can_go_on(self):
        job = self.job("asked", hosts=2)
        job.wait_until(lambda: job.steps_done() >= 9)
        job.supervisor.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 130, job.text())
        steps = job.steps_done()
        self.assertLess(steps, STEPS)
        self.assertEqual(job.newest_checkpoint(), steps)
        job.start()
        self.goes_well(job)

    # A rank of a generation that is over writes nothing, whatever it still believes.
    def test_a_zombie_commits_nothing(self):
        job = self.job("zombie", hosts=1)
        job.wait_until(lambda: job.steps_done() >= EVERY)
        job.supervisor.send_signal(signal.SIGTERM)
        job.wait()
        before = sorted(p.name for p in job.run.glob("checkpoints/*"))
        old = environment(job.folder, HEDDLE_JOB=f"0:{'0' * 32}:{job.run}")
        done = subprocess.run([HEDDLE, "train", "tiny.toml", "--resume", "--quiet", "--set", "output=run", "--ranks", "1"],
                              cwd=job.folder, env=old, capture_output=True, text=True, timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, r"heddle: generation 0 of this job is over, generation \d+ has taken its place: ")
        self.assertEqual(sorted(p.name for p in job.run.glob("checkpoints/*")), before)
        job.start()
        self.goes_well(job)

    def test_a_second_supervisor_is_refused(self):
        job = self.job("two", hosts=2)
        job.wait_until(lambda: job.steps_done() >= 1)
        done = subprocess.run([HEDDLE, "launch", "tiny.toml", "--hosts", "hosts", "--by", "mpirun", "--resume", "--set",
                               "output=run"], cwd=job.folder, env=environment(self.base), capture_output=True, text=True,
                              timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("is in use", done.stderr)
        self.goes_well(job)

    def test_a_batch_script_is_written(self):
        folder = self.base / "batch"
        folder.mkdir()
        shutil.copy(self.reference.folder / "tiny.toml", folder)
        (folder / "hosts").write_text("a slots=2\nb slots=2\n")
        subprocess.run([HEDDLE, "launch", "tiny.toml", "--hosts", "hosts", "--spares", "1", "--batch", "job.sh", "--set",
                        "name=it's"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["bash", "-n", "job.sh"], cwd=folder, check=True)
        text = (folder / "job.sh").read_text()
        self.assertIn("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=2\n", text)
        self.assertIn("'name=it'\\''s'", text)

    # What each host's agent holds is the job's, whosever folder it lies in: after the loss of a rank it is not lost as well.
    def test_agents_keep_what_the_ranks_have_copied(self):
        job = self.job("agents", agents=True)
        job.wait_until(lambda: job.steps_done() >= 10)
        Job.strike([pid for pid, one in job.processes().items() if one[2] == 1])
        self.goes_well(job)
        self.assertRegex(job.text(), r"going on (after|from memory of) step [1-9]")

    # Killed, gone on with and killed again before it has copied anything: what the first had in memory is still there.
    def test_memory_outlives_a_run_that_ended_before_it_copied(self):
        folder = self.base / "before"
        folder.mkdir()
        for name in ("tiny.toml", "text.txt"):
            shutil.copy(self.reference.folder / name, folder)

        def train(*words, **variables):
            return subprocess.run([HEDDLE, "train", "tiny.toml", "--quiet", "--set", "output=run", "--set", "train.snapshot_every=1",
                                   "--set", "train.checkpoint_every=0", *words], cwd=folder, env=environment(folder, **variables),
                                  capture_output=True, text=True, timeout=MACHINE_SECONDS)

        strike = {"LD_PRELOAD": str(SHIM), "FAIL_FOLDER": "/dev/shm", "FAIL_POINT": "write heddle-*/*seal-*", "FAIL_HOW": "kill"}
        self.assertEqual(train(FAIL_AT="9", **strike).returncode, 137)
        self.assertEqual(train("--resume", FAIL_AT="1", **strike).returncode, 137)
        done = train("--resume")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"going on from memory of step 8")
        self.assertEqual(digests(folder / "run")[0], self.reference.digests)
        self.assertFalse((folder / "run/.memory").exists())

    # A rank that dies when its memory has a folder and nothing in it yet: nobody has written there, and yet it goes.
    def test_memory_of_ranks_that_died_early_goes(self):
        for point in ("fallocate heddle-*/rank-*.data", "rename heddle-*/*.index"):
            name = point.split()[0]
            strike = self.base / f"strike-{name}"
            strike.touch()
            job = self.job(f"early-{name}", hosts=2, more=["--set", "train.snapshot_every=1"], LD_PRELOAD=str(SHIM),
                           FAIL_FOLDER="/dev/shm", FAIL_POINT=point, FAIL_HOW="kill", FAIL_AT="1", FAIL_ONCE=str(strike),
                           FAIL_LOG=str(self.base / f"early-{name}/calls"))
            self.goes_well(job)
            self.assertFalse(strike.exists())
            self.assertGreater(len(job.memory), 1)    # one of each generation

    def campaign(self, *words):
        done = subprocess.run([sys.executable, ROOT / "tools/campaign.py", HEDDLE, SHIM, "--seed", "1", "--json", "--parallel", "2",
                               *words], capture_output=True, text=True)
        result = json.loads(done.stdout)
        self.assertEqual((done.returncode, result["violations"]), (0, 0), done.stderr + str(result))
        return result

    def test_a_short_draw_of_the_campaign(self):
        result = self.campaign("--runs", str(RUNS), "--table", self.base / "table")
        self.assertEqual(result["runs"], RUNS)
        self.assertGreater(result["struck"], 0)
        again = self.campaign("--replay", f"{self.base}/table:1")
        first = json.loads((self.base / "table").read_text().splitlines()[0])
        self.assertEqual([again["table"][0][key] for key in ("kind", "step", "rank")], [first[key] for key in ("kind", "step", "rank")])

    def test_no_damaged_checkpoint_loads(self):
        result = self.campaign("--corruptions", str(CORRUPTIONS))
        self.assertEqual(result["runs"], CORRUPTIONS)
        self.assertGreater(sum(form["refused"] for form in result["forms"].values()), CORRUPTIONS // 4)


if __name__ == "__main__":
    if not shutil.which("mpirun"):
        print("no mpirun")
        sys.exit(77)
    unittest.main()
