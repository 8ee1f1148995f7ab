#!/usr/bin/env python3
"""Jobs of `heddle launch` under srun, on nodes of a Slurm that this machine pretends to be (slurm.py).

    srun_test.py PATH_OF_HEDDLE

Exits 77 where there is no Slurm, or none that can be started.
"""
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parent))
from emulated import STEPS, Job, Reference, digests, events
from slurm import Slurm, missing

HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve()


class SlurmJob(Job):
    """A job in an allocation of all nodes, with a rank a node."""

    def __init__(self, slurm, reference, folder, **options):
        super().__init__(HEDDLE, reference, folder, hosts=len(slurm.nodes), **slurm.variables, **options)

    def command(self):
        return ["salloc", "--no-kill", "--quiet", f"--nodes={len(self.hosts)}", "--ntasks-per-node=1", self.heddle, "launch",
                "tiny.toml", "--resume", "--listen", "lo", "--pause", "0.2", "--attempts", "5", "--set", "output=run",
                "--set", "train.snapshot_every=1", "--set", "train.checkpoint_every=1000", *self.more]


class Srun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.reference = Reference(HEDDLE, base / "reference", ["--set", "train.global_batch=96"])

    def job(self, name, **options):
        job = SlurmJob(slurm, self.reference, base / name, **options)
        self.addCleanup(job.end)
        job.start()
        return job

    def goes_well(self, job):
        self.assertEqual(job.wait(), 0, job.text())
        made, order = digests(job.run)
        self.assertEqual(made, self.reference.digests)
        self.assertEqual(order, list(range(1, STEPS + 1)))
        self.assertEqual(job.left_behind(), [])

    def starts_of(self, job):
        return [e for e in events(job.run) if e["event"] == "start"]

    def strike_rank(self, job, node):
        """Kills a node's rank; steps that were done then, and seconds until another one was."""
        (rank,) = [pid for pid, one in job.processes().items() if one[:2] == ("rank", node)]
        done, began = job.steps_done(), time.monotonic()
        Job.strike([rank])
        job.wait_until(lambda: job.starts() == 2)
        done = max(done, job.steps_done())
        job.wait_until(lambda: job.steps_done() > done)
        return done, time.monotonic() - began

    def test_a_rank_is_lost(self):
        job = self.job("rank", more=["--spares", "1"])
        job.wait_until(lambda: job.steps_done() >= 8)
        done, seconds = self.strike_rank(job, "node1")
        self.goes_well(job)
        print(f"a rank is lost: {seconds:.1f} s")
        self.assertEqual([e["stood_by"] for e in self.starts_of(job)], [False, False], job.text())
        self.gone_on_from_memory(job, done)

    def test_a_standby_goes_on(self):
        job = self.job("standby", more=["--spares", "1", "--standby"])
        self.assertTrue(job.wait_until(lambda: len(job.of_role("standby")) == 2 and job.steps_done() >= 8), job.text())
        waiting = job.of_role("standby")
        done, seconds = self.strike_rank(job, "node1")
        self.assertEqual(job.of_role("rank"), waiting)    # the very processes
        self.goes_well(job)
        print(f"a standby goes on: {seconds:.1f} s")
        self.assertEqual([e["stood_by"] for e in self.starts_of(job)], [False, True], job.text())
        self.gone_on_from_memory(job, done)

    # Its daemons and processes: Slurm itself knows only after SlurmdTimeout.
    def test_a_node_is_lost_and_a_spare_takes_its_place(self):
        job = self.job("node", more=["--spares", "1", "--standby"])
        job.wait_until(lambda: job.steps_done() >= 8)
        slurm.lose("node1")
        self.addCleanup(lambda: self.assertEqual(slurm.mend("node1"), ""))
        done = job.steps_done()
        Job.strike([pid for pid, one in job.processes().items() if one[1] == "node1"])
        began = time.monotonic()
        job.wait_until(lambda: job.steps_done() > done + 1)
        print(f"a node is lost: {time.monotonic() - began:.1f} s")
        self.goes_well(job)
        self.assertEqual([e["hosts"] for e in self.starts_of(job)][::len(self.starts_of(job)) - 1],
                         [["node0", "node1"], ["node0", "node2"]], job.text())

    # Its rank stands still: the others miss it, and srun ends it by force.
    def test_a_rank_hangs(self):
        job = self.job("hang", more=["--spares", "1", "--standby"])
        job.wait_until(lambda: job.steps_done() >= 8)
        stopped = [pid for pid, one in job.processes().items() if one[:2] == ("rank", "node1")]
        Job.strike(stopped, signal.SIGSTOP)
        job.wait_until(lambda: job.starts() == 2)
        self.assertEqual([pid for pid in stopped if pid in job.processes()], [])
        self.goes_well(job)

    def gone_on_from_memory(self, job, done):
        (step,) = re.findall(r"going on from memory of step (\d+) ", job.text())
        self.assertLessEqual(done - int(step), 1, job.text())


if __name__ == "__main__":
    if why := missing():
        print(f"skipped: {why}")
        sys.exit(77)
    base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-srun-test-")).resolve()
    for name in "slurm", "reference":
        (base / name).mkdir()
    slurm = Slurm(base / "slurm", nodes=3, cores=4)
    try:
        if why := slurm.start():
            print(f"skipped: Slurm does not start here: {why}")
            sys.exit(77)
        unittest.main()
    finally:
        slurm.end()
        shutil.rmtree(base, ignore_errors=True)
