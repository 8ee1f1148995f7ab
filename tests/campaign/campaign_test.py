#!/usr/bin/env python3
"""Drawn runs of tiny models with every switch, on threads and under mpirun: each trains to its end, or, where a rank is
made to fail at a drawn op, ends with one true message.

Usage: campaign_test.py CAMPAIGN_RUN [COUNT [FIRST [JOBS]]]. COUNT runs that train and a quarter as many that fail;
every fourth goes under mpirun, where there is one. HEDDLE_CAMPAIGN_RUNS asks for another COUNT.
"""
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

PROGRAM = sys.argv[1]
COUNT = int(os.environ.get("HEDDLE_CAMPAIGN_RUNS") or (sys.argv[2] if len(sys.argv) > 2 else 8))
FIRST = int(sys.argv[3]) if len(sys.argv) > 3 else 0
JOBS = int(sys.argv[4]) if len(sys.argv) > 4 else 2
SECONDS = 1800  # after which a run hangs: on a machine that is busy twenty times over one took more than 300
MPI = shutil.which("mpirun") is not None


def run(number, fails):
    """What is wrong with a run, or "", and the last line that it printed."""
    command = [PROGRAM, str(number)] + (["--fail"] if fails else [])
    if number % 4 == 3 and MPI:
        ranks = (2, 3, 4)[number // 4 % 3]
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(ranks)] + command
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       OMP_WAIT_POLICY="passive")
    job = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                           start_new_session=True)
    try:
        out, err = job.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, 9)
        out, err = job.communicate()
        return "hangs", out, err
    lines = [line for line in err.splitlines() if line.startswith("heddle: ")]
    last = out.splitlines()[-1] if out else ""
    if not fails:
        if job.returncode != 0 or not last.startswith("done") or lines:
            return f"ends with status {job.returncode}", out, err
        return "", out, err
    expected = re.match(r"expected (.*)\n", out)
    if job.returncode != 1:
        return f"fails with status {job.returncode}", out, err
    if expected is None or lines != [f"heddle: {expected[1]}"]:
        return "fails with another message", out, err
    return "", out, err


def main():
    began = time.monotonic()
    todo = [(number, False) for number in range(FIRST, FIRST + COUNT)]
    # A quarter on threads and some under mpirun.
    todo += [(number, True) for number in range(FIRST, FIRST + COUNT) if number % 4 == 0 or number % 16 == 3]
    bad, grown = 0, 0
    with concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        for (number, fails), (wrong, out, err) in zip(todo, pool.map(lambda job: run(*job), todo)):
            grown += bool(re.search(r"beyond the prediction [1-9]", out))
            if wrong:
                bad += 1
                print(f"run {number}{' --fail' if fails else ''} {wrong}\n{out}{err}", flush=True)
    failing = sum(fails for _, fails in todo)
    print(f"{len(todo) - failing} runs that train, {failing} that fail at a drawn op, {bad} of both wrong, {grown} "
          f"arenas grew beyond their forecast; {time.monotonic() - began:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
