#!/usr/bin/env python3
"""Jobs of `heddle launch` on hosts that this machine pretends to be.

    launch_test.py PATH_OF_HEDDLE LIBFAIL_CALLS

Beside what lies here a short draw of the campaign (tools/campaign.py); HEDDLE_LAUNCH_RUNS says of how many.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from emulated import EVERY, MACHINE_SECONDS, ROOT, STEPS, Job, Reference, digests, environment, events
from faults import surroundings
from faults.one_run import END_SECONDS

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
        (cls.base / "longer").mkdir()    # steps that last longer than a copy is on its way to a partner
        cls.longer = Reference(HEDDLE, cls.base / "longer", ["--set", "train.global_batch=96"])

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.base, ignore_errors=True)

    def job(self, name, reference=None, **options):
        job = Job(HEDDLE, reference or self.reference, self.base / name, **options)
        self.addCleanup(job.end)
        job.start()
        return job

    def goes_well(self, job, reference=None):
        self.assertEqual(job.wait(), 0, job.text())
        made, order = digests(job.run)
        self.assertEqual(made, (reference or self.reference).digests)
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

    # ---- copies in memory, agents on the hosts, next to nothing on disk

    def in_memory(self, name, every=2, standby=False, **options):
        if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
            self.skipTest("no mounts: hosts can't have a memory of their own here")
        return self.job(name, self.longer, more=["--listen", "lo", "--set", f"train.snapshot_every={every}", "--set",
                                    "train.checkpoint_every=1000", *(["--standby"] if standby else [])], **options)

    def strike_at(self, job, steps, strike):
        """Strikes; steps that were done then."""
        job.wait_until(lambda: job.steps_done() >= steps)
        done = job.steps_done()
        strike()
        return max(done, job.steps_done())

    def gone_on_from(self, job):
        """What generations went on from in memory, in their order: (step, where)."""
        found = re.findall(r"going on from memory of step (\d+) \((.*)\)$", job.text(), re.M)
        return [(int(step), where) for step, where in found]

    def one(self, job, role, host):
        return [pid for pid, one in job.processes().items() if one[0] == role and one[1] == host]

    # Lost are steps since the last copy: with a host one more at most, whose copy had not reached the partner.
    def test_a_process_is_lost_and_memory_stays(self):
        job = self.in_memory("process", hosts=2)
        done = self.strike_at(job, 11, lambda: Job.strike(self.one(job, "rank", "node1")))
        self.goes_well(job, self.longer)
        (step, where), *more = self.gone_on_from(job)
        self.assertEqual(more, [])
        self.assertLessEqual(done - step, 2, job.text())
        self.assertRegex(where, r"^rank 0 in /dev/shm/heddle-\w+, rank 1 in "
                                r"(/dev/shm/heddle-\w+/partner|the memory of 127\.0\.0\.1:\d+)$")

    def test_a_host_is_lost_with_its_memory_and_its_partner_has_it(self):
        job = self.in_memory("host", hosts=4)
        done = self.strike_at(job, 11, lambda: job.lose_host("node2"))
        job.wait_until(lambda: len(lasting_starts(job)) >= 2 and job.steps_done() >= 20)
        job.mend_host("node2")
        self.goes_well(job, self.longer)
        step, where = self.gone_on_from(job)[0]
        self.assertLessEqual(done - step, 3, job.text())
        self.assertRegex(where, r"rank 2 in the memory of 127\.0\.0\.1:\d+ \(of a partner\)")
        self.assertEqual([e["ranks"] for e in lasting_starts(job)], [4, 3, 4], job.text())

    def test_rank_0_and_its_host_are_lost(self):
        job = self.in_memory("first-host", hosts=3)
        done = self.strike_at(job, 11, lambda: job.lose_host("node0"))
        self.goes_well(job, self.longer)
        step, where = self.gone_on_from(job)[0]
        self.assertLessEqual(done - step, 3, job.text())
        self.assertRegex(where, r"^rank 0 in /dev/shm/heddle-\w+/partner, rank 1 in /dev/shm/heddle-\w+, rank 2 in the memory")

    # An agent that dies does the ranks nothing; the next one takes over what it held.
    def test_an_agent_is_lost(self):
        job = self.in_memory("agent", hosts=2)
        self.strike_at(job, 5, lambda: Job.strike(self.one(job, "agent", "node1")))
        job.wait_until(lambda: self.one(job, "agent", "node1"))
        done = self.strike_at(job, job.steps_done() + 5, lambda: Job.strike(self.one(job, "rank", "node0")))
        self.goes_well(job, self.longer)
        self.assertEqual(len(lasting_starts(job)), 2, job.text())    # the ranks did not notice
        self.assertLessEqual(done - self.gone_on_from(job)[0][0], 2, job.text())

    # Host and partner: what memory held of them is gone, disk has the rest.
    def test_a_host_and_its_partner_are_lost(self):
        job = self.in_memory("neighbours", hosts=4)

        def both():
            job.lose_host("node1")
            job.lose_host("node2")
        self.strike_at(job, 9, both)
        self.goes_well(job, self.longer)
        self.assertEqual(self.gone_on_from(job), [], job.text())
        self.assertRegex(job.text(), r"passed over: step \d+ in memory: what rank 1 of 4 held is not there")

    def test_the_supervisor_is_lost_and_memory_stays(self):
        job = self.in_memory("supervisor", hosts=2)
        self.strike_at(job, 9, lambda: Job.strike([job.supervisor.pid]))
        job.supervisor.wait()
        for _ in range(2000):    # its agents write what they hold
            if not job.processes():
                break
            time.sleep(0.02)
        self.assertEqual(job.processes(), {})
        job.start()
        self.goes_well(job, self.longer)

    # ---- ranks that stand by

    def standing_by(self, name, **options):
        job = self.in_memory(name, every=1, standby=True, **options)
        self.assertTrue(job.wait_until(lambda: len(job.of_role("standby")) == len(job.hosts)), job.text())
        return job

    def stood_by(self, job):
        return [e.get("stood_by") for e in lasting_starts(job)]

    def test_a_standby_goes_on(self):
        job = self.standing_by("standby", hosts=2)
        waiting = job.of_role("standby")
        done = self.strike_at(job, job.steps_done() + 2, lambda: Job.strike(self.one(job, "rank", "node1")))
        job.wait_until(lambda: job.starts() == 2)
        job.wait_until(lambda: job.of_role("rank"))
        self.assertEqual(job.of_role("rank"), waiting)    # the very processes
        self.goes_well(job, self.longer)
        self.assertEqual(self.stood_by(job), [False, True], job.text())
        self.assertLessEqual(done - self.gone_on_from(job)[0][0], 1, job.text())

    def test_another_layout_leaves_the_standby(self):
        job = self.standing_by("standby-host", hosts=3)
        self.strike_at(job, job.steps_done() + 2, lambda: job.lose_host("node2"))
        self.goes_well(job, self.longer)
        self.assertEqual(self.stood_by(job)[:2], [False, False], job.text())

    # What nobody needed yet may die: the ranks do not notice, and a fault is answered as without it.
    def test_a_standby_is_lost(self):
        job = self.standing_by("standby-lost", hosts=2)
        Job.strike(job.of_role("standby"))
        job.wait_until(lambda: any(e["event"] == "standby" and "ended" in e for e in events(job.run)))
        self.strike_at(job, job.steps_done() + 1, lambda: Job.strike(self.one(job, "rank", "node0")))
        self.goes_well(job, self.longer)
        self.assertEqual(self.stood_by(job), [False, False], job.text())

    def test_the_supervisor_of_a_standby_is_lost(self):
        job = self.standing_by("standby-supervisor", hosts=2)
        Job.strike([job.supervisor.pid])
        job.supervisor.wait()
        for _ in range(2000):
            if not job.processes():
                break
            time.sleep(0.02)
        self.assertEqual(job.processes(), {})
        job.start()
        self.goes_well(job, self.longer)

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
        # A launcher that could not start the ranks at once, on a machine that is full, ended a generation of its own.
        end = next(e for e in events(job.run) if e["event"] == "end" and e["step"] > 0)
        self.assertEqual(end["suspects"], [1], end)
        self.assertRegex(end["reason"], r"rank 1 \(.*\) is dead, stopped or cut off")
        self.assertRegex(end["standing"][0], r"^rank 1 \(.*\) stood .*(comm\.|outside).*, in step \d+$")
        self.assertRegex("\n".join(end["standing"]), r"rank \d \(.*\) never entered exchange \d+ of comm\.|"
                                                     r"rank \d \(.*\) has not sent what rank|stood in exchange")
        self.assertIn(end["standing"][0], job.text())

    # Its ranks come to their end and wait for it, and nobody's page says so any more.
    def test_a_launcher_that_stands_still_is_ended(self):
        job = self.job("still", hosts=2)
        job.wait_until(lambda: job.steps_done() >= 8)
        Job.strike(job.of_role("launcher"), signal.SIGSTOP)
        self.goes_well(job)
        self.assertIn("the launcher has not ended 15 s after all ranks", job.text())

    # Clocks of hosts that are an hour ahead of the supervisor's, and behind it, say nothing of who moves.
    def test_clocks_of_hosts_are_not_compared(self):
        job = self.job("clocks", hosts=3, LD_PRELOAD=str(SHIM), FAIL_CLOCKS="node0:-3600 node1:3600 node2:-3600")
        job.wait_until(lambda: job.steps_done() >= 8)
        Job.strike([pid for pid, one in job.processes().items() if one[2] == 2], signal.SIGSTOP)
        self.goes_well(job)
        self.assertEqual(len(lasting_starts(job)), 2, job.text())
        end = next(e for e in events(job.run) if e["event"] == "end" and e["step"] > 0)
        self.assertEqual(end["suspects"], [2], end)
        self.assertNotIn("no rank has moved", job.text())
        for seconds in re.findall(r"since (-?[0-9.]+) s", "\n".join(end["standing"])):
            self.assertTrue(0 <= float(seconds) < MACHINE_SECONDS, end)

    # An agent that stands still: named, replaced by one that takes over what it held, and nothing stays behind.
    def test_an_agent_that_stands_still_is_replaced(self):
        reference = self.slow_reference()
        job = self.job("still-agent", reference, hosts=2, agents=True, patience=4 * MACHINE_SECONDS)
        job.wait_until(lambda: job.steps_done() >= 5)
        stopped = self.one(job, "agent", "node1")
        Job.strike(stopped, signal.SIGSTOP)
        job.wait_until(lambda: "hangs: it has not answered" in job.text())
        job.wait_until(lambda: self.one(job, "agent", "node1") not in ([], stopped))
        done = job.steps_done()
        job.wait_until(lambda: job.newest_checkpoint() > done)    # checkpoints go on
        self.goes_well(job, reference)
        self.assertRegex(job.text(), r"the agent of node1 hangs: it has not answered for 15 s; another one replaces it")
        self.assertEqual(len(lasting_starts(job)), 1, job.text())    # the ranks did not notice

    def test_an_agent_that_stands_still_at_the_end(self):
        job = self.job("still-end", hosts=2, agents=True)
        job.wait_until(lambda: job.steps_done() >= 5)
        Job.strike(self.one(job, "agent", "node1"), signal.SIGSTOP)
        self.goes_well(job)

    def slow_reference(self):
        if not hasattr(Launch, "slow"):
            (self.base / "slow").mkdir()
            Launch.slow = Reference(HEDDLE, self.base / "slow", ["--set", "train.global_batch=576"])
        return Launch.slow

    # Strangers hold every agent's port: neither partners, nor the end, nor what lies in memory wait for them.
    def test_strangers_do_not_hold_agents(self):
        job = self.job("strangers", hosts=3, agents=True)
        job.wait_until(lambda: job.steps_done() >= 5)
        self.assertTrue(surroundings.strangers(job, {"part": 0.6, "moment": 0.02, "rank": 1}))
        self.goes_well(job)
        log = events(job.run)
        ended = [e["time"] for e in log if e["event"] == "end"][-1]
        self.assertLess(log[-1]["time"] - ended, END_SECONDS, job.text())

    # A host without room in memory, from the beginning or later: the run goes on without copies, and says so once.
    def test_a_host_without_room_for_copies(self):
        if not surroundings.may_mount():
            self.skipTest("no mounts: no host has a memory of a size here")
        for name, call in (("none", 1), ("filled", 2)):
            job = Job(HEDDLE, self.reference, self.base / f"room-{name}", hosts=3, agents=True)
            self.addCleanup(job.end)
            surroundings.limit_memory(job, {"rank": 1, "part": 0, "call": call})
            self.addCleanup(surroundings.free_memory, job)
            job.start()
            job.wait_until(lambda: job.steps_done() >= 5)    # pylint: disable=cell-var-from-loop
            surroundings.fill_memory(job, {"part": 0.2, "rank": 2})
            self.assertEqual(job.wait(), 0, job.text())
            self.assertEqual(surroundings.free_memory(job), [])
            self.goes_well(job)
            starts = len(lasting_starts(job))
            self.assertEqual(starts, 2, job.text())
            told = re.findall(r"no snapshots of the state in memory: .* has no room for [0-9.]+ MB of rank 1: No space left", job.text())
            self.assertIn(len(told), range(2 if name == "none" else 1, job.starts() + 1), job.text())    # once a generation

    # The input with which the job has trained is away for a moment: no mistake of the user's.
    def test_input_that_is_away_for_a_moment(self):
        job = self.job("away", hosts=2)
        job.wait_until(lambda: job.steps_done() >= 8)
        config = job.folder / "tiny.toml"
        config.rename(job.folder / "away.toml")
        before = sum(e["event"] == "end" for e in events(job.run))
        Job.strike([pid for pid, one in job.processes().items() if one[2] == 1])
        job.wait_until(lambda: sum(e["event"] == "end" for e in events(job.run)) >= before + 2)
        (job.folder / "away.toml").rename(config)
        self.goes_well(job)
        self.assertIn("one more try", job.text())

    def test_input_that_stays_away_is_a_mistake(self):
        job = self.job("gone", hosts=2)
        job.wait_until(lambda: job.steps_done() >= 8)
        (job.folder / "tiny.toml").unlink()
        Job.strike([pid for pid, one in job.processes().items() if one[2] == 1])
        self.assertEqual(job.wait(), 2, job.text())
        self.assertEqual(job.text().count("one more try"), 1)

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
        self.assertRegex(ours[0], r"stopped: 3 failures in a row without progress beyond step 0; the last: ")
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
        self.assertRegex(done.stderr, r"heddle: generation 0 of this job is over, generation \d+ has taken its place")
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
        self.assertIn("#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n", text)    # the spare is one of the two
        self.assertIn("'name=it'\\''s'", text)

    def batch(self, *words, status=0):
        folder = self.base / "flags"
        folder.mkdir(exist_ok=True)
        shutil.copy(self.reference.folder / "tiny.toml", folder)
        (folder / "hosts").write_text("a slots=2\nb slots=4\nc slots=4\n")
        done = subprocess.run([HEDDLE, "launch", "tiny.toml", "--batch", "job.sh", *words], cwd=folder, capture_output=True, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        if status != 0:
            return done.stderr
        subprocess.run(["bash", "-n", "job.sh"], cwd=folder, check=True)
        return (folder / "job.sh").read_text()

    # A walk along all flags that there are: one that is added and forgotten in the script would be found here.
    def test_a_batch_script_drops_no_flag(self):
        said = subprocess.run([HEDDLE, "launch", "--help"], capture_output=True, text=True, check=True).stdout
        flags = dict(re.findall(r"^\s+(--[a-z-]+)(?: ([A-Z=]+))?", said, re.M))
        self.assertGreater(len(flags), 18, said)
        its_own = {"--hosts", "--batch", "--sbatch", "--resume", "--by", "--help"}
        values = {"--set": "train.learning_rate=0.002", "--ranks": "2", "--spares": "1"}
        for flag, value in flags.items():
            if flag in its_own:
                continue
            words = [flag, values.get(flag, "7")] if value else [flag]
            line = next(line for line in self.batch("--hosts", "hosts", *words).splitlines() if line.endswith(" &"))
            self.assertIn(" " + " ".join(words), line)
        line = self.batch("--hosts", "hosts", "--by", "mpirun", "--launcher-word", "--mca", "--launcher-word", "it's")
        self.assertIn(" --by mpirun --resume ", line)
        self.assertIn(" --launcher-word=--mca --launcher-word 'it'\\''s' ", line)

    def test_what_a_batch_script_asks_for(self):
        text = self.batch("--hosts", "hosts", "--spares", "1")
        self.assertIn("#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=4\n", text)
        self.assertIn("#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n", self.batch("--ranks", "3", "--spares", "1"))
        text = self.batch("--hosts", "hosts", "--sbatch", "time=8:00:00", "--sbatch", "gres=gpu:8", "--sbatch", "cpus-per-task=16",
                          "--sbatch", "output=logs/%j.out", "--sbatch", "exclusive", "--sbatch", "signal=B:USR2@600")
        for line in ("time=8:00:00", "gres=gpu:8", "cpus-per-task=16", "output=logs/%j.out", "exclusive", "signal=B:USR2@600"):
            self.assertEqual(text.count(f"#SBATCH --{line}\n"), 1, text)
        self.assertEqual(text.count("--signal="), 1)
        for wrong in ("time", "time=", "=x", "--time=1", "time=1\nrm -rf /", "Time Limit=3"):
            if wrong != "time":    # one without a value may be a flag of sbatch's
                self.assertIn("KEY=VALUE or KEY is expected", self.batch("--hosts", "hosts", f"--sbatch={wrong}", status=2))
        self.assertIn("--hosts and --ranks say how many", self.batch("--hosts", "hosts", "--sbatch", "nodes=7", status=2))
        self.assertIn("--ranks 11: hosts has 10 slots", self.batch("--hosts", "hosts", "--ranks", "11", status=2))
        self.assertIn("--spares 3: there are 3 hosts", self.batch("--hosts", "hosts", "--spares", "3", status=2))

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
