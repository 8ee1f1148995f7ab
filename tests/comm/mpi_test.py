#!/usr/bin/env python3
"""Runs comm_mpi under mpirun: the cases of every world, then what happens when ranks disagree, give up, die or stop.

Usage: mpi_test.py COMM_MPI. Exits 77 where there is no mpirun, or none that can start a process.
"""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = sys.argv[1]
HOSTS = pathlib.Path(__file__).resolve().parent.parent.parent / "tools/hosts"
SKIPPED = 77
MACHINE_SECONDS = 120  # what a loaded machine may add to a limit: start, and end of all processes by mpirun
failures = []


class Job:
    """Ranks under mpirun; what they print goes to a file, stdout and stderr together."""

    def __init__(self, scenario, ranks, launcher=("mpirun", "--oversubscribe", "--bind-to", "none"), **settings):
        self.scenario = scenario
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        # Libraries of MPI keep what they allocate until the end.
        environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        environment.update({f"HEDDLE_{name.upper()}": str(value) for name, value in settings.items()})
        self.output = tempfile.TemporaryFile("w+")
        count = ["-np", str(ranks)] if launcher[0] == "mpirun" else ["--"]
        self.process = subprocess.Popen([*launcher, *count, PROGRAM, *scenario.split()], env=environment,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)

    def pids(self, ranks):
        """Process of each rank, once all have said that they are there."""
        for _ in range(MACHINE_SECONDS * 20):
            found = {int(rank): int(pid) for rank, pid in re.findall(r"^\[(\d+)\] pid (\d+)$", self.text(), re.M)}
            if len(found) == ranks:
                return found
            time.sleep(0.05)
        self.end(0)
        raise RuntimeError(f"{self.scenario}: not all ranks came:\n{self.text()}")

    def end(self, seconds):
        """Exit status, or None when it had to be killed."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            return None

    def text(self):
        return os.pread(self.output.fileno(), 1 << 24, 0).decode()


def lives(pid):
    """False for a zombie too: whoever inherits orphans may be slow to bury them."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def check(job, what, holds):
    if not holds:
        failures.append(f"{job.scenario}: {what}")
        print(f"FAILED {job.scenario}: {what}\n{job.text()}", flush=True)


def passed(name, began):
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def cases(ranks, seed, **settings):
    began = time.monotonic()
    job = Job(f"cases {seed}", ranks, **settings)
    status = job.end(300)
    check(job, f"exit status {status} with {ranks} ranks", status == 0)
    check(job, "not all cases ran", job.text().count("] ok ") == 8)
    moved = re.findall(r"moved (\d+) messages", job.text())
    check(job, "the engine has moved nothing", "engine" not in settings or (len(moved) == ranks and "0" not in moved))
    passed(f"cases, {ranks} ranks {settings or ''}", began)


def links(ranks):
    began = time.monotonic()
    job = Job("links 65536", ranks)
    status = job.end(MACHINE_SECONDS)
    check(job, f"exit status {status}", status == 0)
    timed = re.findall(r"link (\d) (\d) ([\d.]+)", job.text())
    check(job, "not every link was timed", len({pair[:2] for pair in timed}) == ranks * (ranks - 1) // 2)
    passed("links", began)


def fails(scenario, pattern, ranks=3, says=None, seconds=0, launcher=None, status_known=True, harm=None, **settings):
    """All ranks (or those in `says`) print why they fail, and the job ends with an error within `seconds`."""
    began = time.monotonic()
    job = Job(scenario, ranks, **({"launcher": launcher} if launcher else {}), **settings)
    pids = job.pids(ranks)
    start = time.monotonic()
    if harm:
        time.sleep(0.3)
        os.kill(pids[1], harm)
    status = job.end(seconds + MACHINE_SECONDS)
    took = time.monotonic() - start
    check(job, f"did not end within {seconds} + {MACHINE_SECONDS} s", status is not None)
    if status_known:
        check(job, "ended as if all were well", status != 0)
    for rank in range(ranks) if says is None else says:
        check(job, f"rank {rank} does not say why", re.search(rf"^\[{rank}\] failed: .*{pattern}", job.text(), re.M))
    deadline = time.monotonic() + 5  # mpirun may go a little ahead of those it has killed
    while any(lives(pid) for pid in pids.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for rank, pid in pids.items():
        check(job, f"rank {rank} lives on", not lives(pid))
    passed(f"{scenario} {harm.name if harm else ''} {settings or ''}: ended after {took:.1f} s", began)
    return job


def absent():
    """A rank that never comes to the roll call is named by those that miss it."""
    began = time.monotonic()
    job = Job("absent", 3, silence=2)
    status = job.end(10 + MACHINE_SECONDS)
    check(job, f"exit status {status}", status not in (None, 0))
    check(job, "nobody is named",
          re.search(r"rank 1 is dead, stopped or cut off: it has not answered rank [02] .* for 5 s at the start", job.text()))
    passed("absent", began)


def running(*arguments):
    """Processes with exactly this command line, wherever they run."""
    wanted, found = "\0".join(arguments) + "\0", []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_text(errors="replace") == wanted and lives(path.parent.name):
                found.append(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def cut_link():
    """Two hosts of two ranks; one falls off the network. All four processes end, wherever they are."""
    began = time.monotonic()
    tag = str(os.getpid())
    launcher = [str(HOSTS), "--hosts", "2", "--ranks-per-host", "2", "--cut", "1@1", "--build",
                str(pathlib.Path(PROGRAM).parent)]
    job = Job(f"wait {tag}", 4, launcher=launcher, silence=2, grace=2)
    deadline = time.monotonic() + 6 + MACHINE_SECONDS
    seen = 0
    while time.monotonic() < deadline and job.process.poll() is None:
        alive = len(running(PROGRAM, "wait", tag))
        seen = max(seen, alive)
        if seen == 4 and alive == 0:
            break
        time.sleep(0.1)
    if job.process.poll() == SKIPPED:
        print(f"cut link: skipped: {job.text().strip()[-300:]}")
        return
    left = running(PROGRAM, "wait", tag)
    check(job, f"{seen} ranks were seen, {len(left)} live on", seen == 4 and not left)
    heard = "ORTE has lost communication" in job.text()  # mpirun may notice first, and then ends its own two at once
    for rank in (0, 1):  # mpirun can't hear the others
        said = re.search(rf"^\[{rank}\] failed: rank [23] \(host1\) is dead, stopped or cut off", job.text(), re.M)
        check(job, f"rank {rank} does not say why", said or heard)
    job.process.terminate()  # mpirun waits for a daemon that can't answer
    check(job, "could not be ended", job.end(MACHINE_SECONDS) is not None)
    passed("cut link", began)


def main():
    if not shutil.which("mpirun"):
        print("skipped: no mpirun here")
        return SKIPPED
    probe = subprocess.run(["mpirun", "--oversubscribe", "-np", "2", "true"], capture_output=True, text=True,
                           env=dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1"))
    if probe.returncode != 0:
        print(f"skipped: mpirun can't start two processes here: {probe.stderr.strip()[:300]}")
        return SKIPPED
    seed = int(time.time()) % 1000000
    print(f"seed {seed}")
    for ranks in (2, 3, 4, 8):
        cases(ranks, seed + ranks)
    cases(3, seed, part=1000)  # messages of many parts
    cases(3, seed, window=0)  # all pieces are letters
    cases(4, seed + 1, window=2)  # some pieces are, others go through memory
    links(4)
    for ranks, least in (2, 1), (3, 300), (4, 1):  # what is as long is read out of the sender's process
        cases(ranks, seed + ranks, engine=least)

    recover = ("mpirun", "--oversubscribe", "--bind-to", "none", "--enable-recovery")
    lengths = r"rank 0 \(.+\) expects {} bytes from rank 1 \(.+\), which sends {}"
    job = fails("mismatch", lengths.format(999, 1000), expected=999)
    check(job, "is no InternalError", "[0] InternalError" in job.text())
    fails("mismatch", lengths.format(1001, 1000), expected=1001)
    fails("mismatch", lengths.format(999, "more"), expected=999, part=100)
    fails("mismatch", lengths.format(1300, 1000), expected=1300, part=100)
    fails("mismatch", lengths.format(900, "more"), expected=900, part=100)
    fails("abort", "rank 2 had enough")
    fails("piece", "a kernel of rank 1 fails")
    unequal = fails("unequal_pieces", r"rank 0 .*expects 999 bytes from rank 1.*, which sends 1000")
    ends = re.findall(r"^\[0\] (\w+Error)\b", unequal.text(), re.M)  # none where mpirun ends rank 0 before it prints
    check(unequal, "is no InternalError", ends in ([], ["InternalError"]))
    absent_from = r"rank 2 \(.+\) has not answered in 2 s on comm.test \(exchange by pieces\)"
    for window in {}, {"window": 0}:
        job = fails("late_pieces", absent_from, seconds=2, timeout=2, **window)
        check(job, "other windows are there", job.text().count(f"maps {1 if window else 3} windows") == 3)
        fails("full", absent_from, seconds=2, timeout=2, **window)
    fails("leave", r"rank 0 \(.+\) ends with an error")
    fails("late", r"rank 2 \(.+\) has not answered in 2 s on comm.test \(exchange\)", seconds=2, timeout=2)
    fails("hang", r"rank 2 \(.+\) has not answered in 2 s on comm.test \(exchange\)", seconds=2)
    fails("mismatch", "rank 0 expects 999 bytes from rank 1, which sends 1000", expected=999, engine=1)
    fails("abort", "rank 2 had enough", engine=1)
    job = fails("stuck", "rank 2 had enough", seconds=2, grace=2, launcher=recover, status_known=False)
    check(job, "rank 0 was not ended", "has not ended 2 s after the failure" in job.text())
    dead = r"rank 1 \(.+\) is dead, stopped or cut off: it has not answered rank \d \(.+\) for 2 s"
    fails("wait", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGSTOP)
    fails("pieces", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGSTOP)
    # mpirun's status says nothing of failures once they may be recovered from; that the processes end is checked.
    fails("wait", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGKILL, launcher=recover, status_known=False)
    fails("wait", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGKILL, launcher=recover, status_known=False,
          engine=1)
    fails("shown", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGKILL, launcher=recover, status_known=False,
          engine=1)
    fails("pieces", dead, says=(0, 2), seconds=3, silence=2, harm=signal.SIGKILL, launcher=recover, status_known=False)
    job = fails("wait", "", says=(), seconds=2, harm=signal.SIGKILL)
    check(job, "mpirun does not name the rank", "process rank 1 " in job.text())
    absent()
    cut_link()
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
