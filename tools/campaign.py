#!/usr/bin/env python3
"""Lets things happen to jobs of `heddle launch`, and holds what comes of them to the invariants of docs/howto/launch.md.

    campaign.py HEDDLE LIBFAIL_CALLS [--runs N] [--seed S] [--only KIND] [--replay FILE[:LINE]] [--table FILE] [--json]

Each run is a job of four emulated hosts (tests/job/emulated.py), drawn from its number and the seed alone: a line of the
table says all that it takes to have it again (--replay). Exit status 1 where an invariant does not hold.
"""
import argparse
import contextlib
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/job"))
from emulated import EVERY, STEPS, Job, Reference, digests, events  # noqa: E402

DETECT_SECONDS = {"process": 10, "host": 30, "hang": 20}


# ---- faults: each is told the job, and returns what the invariants need to know of it

def at_step(job, draw):
    """Waits for a step drawn at random, and a moment within it."""
    step = draw["step"]
    job.wait_until(lambda: job.steps_done() >= step)
    time.sleep(draw["moment"])
    return job.supervisor.poll() is None


def kill_rank(job, draw):
    ranks = [pid for pid, one in job.processes().items() if one[2] == draw["rank"]]
    return job.strike(ranks) > 0


def kill_launcher(job, _):
    return job.strike(job.of_role("launcher")[:1]) > 0


def kill_daemon(job, draw):
    found = job.of_role("daemon")
    return bool(found) and job.strike([found[draw["rank"] % len(found)]]) > 0


def kill_supervisor(job, _):
    job.strike([job.supervisor.pid])
    job.supervisor.wait()
    job.start()
    return True


def lose_host(job, draw):
    job.lose_host(f"node{draw['rank']}")
    return True


def lose_host_and_mend(job, draw):
    lose_host(job, draw)
    before = job.starts()
    job.wait_until(lambda: job.starts() > before and job.steps_done() < STEPS - EVERY)
    time.sleep(draw["moment"])
    job.mend_host(f"node{draw['rank']}")
    return True


def lose_two_hosts(job, draw):
    job.lose_host(f"node{draw['rank']}")
    job.lose_host(f"node{(draw['rank'] + 1) % 4}")
    return True


def stop_rank(job, draw):
    import signal
    ranks = [pid for pid, one in job.processes().items() if one[2] == draw["rank"]]
    return job.strike(ranks, signal.SIGSTOP) > 0


def stop_host(job, draw):
    import signal
    return job.strike([p for p, one in job.processes().items() if one[1] == f"node{draw['rank']}"], signal.SIGSTOP) > 0


def damage_checkpoint(job, draw):
    """Flips a bit of the newest checkpoint, or cuts it, and kills a rank: the one before it has to do."""
    if job.newest_checkpoint() < 2 * EVERY:
        return False
    newest = job.run / f"checkpoints/step-{job.newest_checkpoint():06}"
    file = newest / ("model.safetensors" if draw["part"] < 0.8 else "state.json")
    with contextlib.suppress(FileNotFoundError):
        size = file.stat().st_size
        if draw["how"] == "cut":
            os.truncate(file, int(size * draw["part"]))
        else:
            with open(file, "r+b") as bytes_:
                place = int(size * draw["part"])
                bytes_.seek(place)
                byte = bytes_.read(1)
                bytes_.seek(place)
                bytes_.write(bytes([byte[0] ^ (1 << int(8 * draw["moment"] * 10) % 8)]))
    return kill_rank(job, draw)


def second_fault(job, draw):
    if not kill_rank(job, draw):
        return False
    before = job.starts()
    job.wait_until(lambda: job.starts() > before)
    time.sleep(draw["moment"] * 5)    # ranks of the next generation are on their way
    for pids in (job.of_role("rank"), job.of_role("daemon"), job.of_role("launcher")):
        if pids:
            job.strike(pids[:1])
            break
    return True


# kind -> (what happens, whose deadline, weight, hosts that are out at the end)
KINDS = {
    "kill rank": (kill_rank, "process", 6),
    "kill launcher": (kill_launcher, "process", 2),
    "kill daemon": (kill_daemon, "process", 2),
    "kill supervisor": (kill_supervisor, "process", 2),
    "kill at a call": (None, "process", 5),
    "no space at a call": (None, "process", 2),
    "broken disk at a call": (None, "process", 2),
    "lose host": (lose_host, "host", 3),
    "lose host, mend": (lose_host_and_mend, "host", 3),
    "lose two hosts": (lose_two_hosts, "host", 1),
    "stop rank": (stop_rank, "hang", 1),
    "stop host": (stop_host, "hang", 1),
    "flip a checkpoint": (damage_checkpoint, "process", 2),
    "cut a checkpoint": (damage_checkpoint, "process", 2),
    "second fault": (second_fault, "process", 3),
}
CALLS = {"kill at a call": "kill", "no space at a call": "ENOSPC", "broken disk at a call": "EIO"}


def drawn(number, seed, only):
    draw = random.Random(f"{seed}:{number}")
    kinds = [only] if only else list(KINDS)
    kind = draw.choices(kinds, [KINDS[k][2] for k in kinds])[0]
    return {"number": number, "seed": seed, "kind": kind, "step": draw.randint(1, STEPS - 6), "rank": draw.randrange(4),
            "moment": round(draw.random() * 0.1, 4), "call": draw.randint(1, 400), "part": round(draw.random(), 6),
            "how": "cut" if kind.startswith("cut") else "flip"}


# ---- one run

def run(heddle, shim, reference, folder, draw):
    variables = {}
    if draw["kind"] in CALLS:
        variables = {"LD_PRELOAD": str(shim), "FAIL_FOLDER": str(folder / "run"), "FAIL_AT": str(draw["call"]),
                     "FAIL_HOW": CALLS[draw["kind"]], "FAIL_ONCE": str(folder / "strike")}
    job = Job(heddle, reference, folder, **variables)
    found = {"struck": False, "violations": []}
    try:
        if draw["kind"] in CALLS:
            (folder / "strike").touch()
        began = time.time()
        job.start()
        checkpoint, struck_at = 0, None
        if draw["kind"] in CALLS:
            def struck():
                return not (folder / "strike").exists()
            found["struck"] = job.wait_until(lambda: struck() or job.supervisor.poll() is not None) and struck()
            struck_at = time.time()
        elif at_step(job, draw):
            checkpoint = job.newest_checkpoint()
            struck_at = time.time()
            found["struck"] = KINDS[draw["kind"]][0](job, draw)
        status = job.wait()
        tries = 0
        while status != 0 and draw["kind"] in CALLS and tries < 3:    # the supervisor itself was struck, and said so
            tries += 1
            job.start()
            status = job.wait()
        found.update(judged(job, reference, draw, status, checkpoint, struck_at if found["struck"] else None))
        found["seconds"] = round(time.time() - began, 3)
    except TimeoutError as error:
        found["violations"].append(f"I5 {error}"[:2000])
    finally:
        job.end()
    return found


def judged(job, reference, draw, status, checkpoint, struck_at):
    wrong = []
    if status != 0:
        wrong.append(f"the job ended with status {status}: {job.text()[-1500:]}")
        return {"violations": wrong}
    made, order = digests(job.run)
    # A disk that refuses a line of the log costs that line, with a warning (docs/howto/runs.md): no more than that.
    lost = sorted(set(reference.digests) - set(made))
    if len(lost) == 1 and CALLS.get(draw["kind"], "kill") != "kill" and "training goes on" in job.text():
        made[lost[0]] = reference.digests[lost[0]]
        order = sorted(order + lost)
    different = [step for step, digest in reference.digests.items() if made.get(step) != digest]
    if different:
        wrong.append(f"I1 other weights, or none, in steps {different[:5]}")
    if order != list(range(1, STEPS + 1)):
        wrong.append(f"I4 steps in the log: {order}")
    log = events(job.run)
    numbers = [e["generation"] for e in log if e["event"] == "start"]
    if numbers != sorted(set(numbers)):
        wrong.append(f"I7 generations {numbers}")
    damaged = draw["how"] == "cut" or draw["kind"].startswith("flip")
    resumed = [int(t.split()[0]) for t in job.text().split("going on after step ")[1:]]
    found = {"generations": len(numbers), "resumed_after": resumed}
    # I2, I3: not further back than the checkpoint that was there; where that one was damaged, than the one before.
    if struck_at and resumed and resumed[0] < checkpoint - (EVERY if damaged else 0) and draw["kind"] not in CALLS:
        wrong.append(f"I3 went on after step {resumed[0]}, there was a checkpoint of step {checkpoint}")
    if struck_at and draw["kind"] not in CALLS and draw["kind"] != "kill supervisor":
        ends = [e["time"] for e in log if e["event"] == "end" and e["time"] > struck_at]
        going = [e["time"] for e in log if e["event"] == "running" and ends and e["time"] > ends[0]]
        if ends:
            found["detected_s"] = round(ends[0] - struck_at, 3)
            limit = DETECT_SECONDS[KINDS[draw["kind"]][1]]
            if found["detected_s"] > limit:
                wrong.append(f"I5 detected after {found['detected_s']} s, {limit} are allowed")
        if going:
            found["recovered_s"] = round(going[0] - struck_at, 3)
    wrong += [f"I6 left behind: {what}" for what in job.left_behind()]
    return {**found, "violations": wrong}


# ---- all of them

def distribution(values):
    if not values:
        return None
    ordered = sorted(values)
    return {"runs": len(ordered), "median": round(statistics.median(ordered), 3),
            "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 3), "most": round(ordered[-1], 3)}


def replayed(text):
    path, _, line = text.partition(":")
    lines = [json.loads(one) for one in pathlib.Path(path).read_text().splitlines()]
    chosen = [lines[int(line) - 1]] if line else lines
    keys = ("number", "seed", "kind", "step", "rank", "moment", "call", "part", "how")
    return [{key: one[key] for key in keys} for one in chosen]


def main():
    parser = argparse.ArgumentParser(description="Faults drawn at random in jobs of heddle launch.")
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("shim", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first run")
    parser.add_argument("--only", choices=KINDS, help="one kind of fault")
    parser.add_argument("--seconds", type=float, help="begin no further run after so long")
    parser.add_argument("--replay", metavar="FILE[:LINE]", help="the runs of a table, or one of its lines")
    parser.add_argument("--table", type=pathlib.Path, help="a line of JSON a run is added here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    draws = (replayed(given.replay) if given.replay else
             [drawn(n, given.seed, given.only) for n in range(given.first, given.first + given.runs)])
    base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-campaign-")).resolve()
    table, began = [], time.monotonic()
    try:
        (base / "reference").mkdir()
        reference = Reference(given.heddle.resolve(), base / "reference")
        for draw in draws:
            if given.seconds and table and time.monotonic() - began > given.seconds:
                break
            folder = base / f"job-{draw['number']}"
            row = {**draw, **run(given.heddle.resolve(), given.shim.resolve(), reference, folder, draw)}
            table.append(row)
            shutil.rmtree(folder, ignore_errors=True)
            if given.table:
                with open(given.table, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
            said = "; ".join(row["violations"]) or "well"
            print(f"{row['number']}: {row['kind']}, {'struck' if row['struck'] else 'over before'}, "
                  f"{row.get('generations', 0)} generations, {row.get('seconds', 0):.1f} s: {said}", file=sys.stderr)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    by_kind = {}
    for row in table:
        one = by_kind.setdefault(row["kind"], {"runs": 0, "struck": 0, "violations": 0})
        one["runs"] += 1
        one["struck"] += row["struck"]
        one["violations"] += bool(row["violations"])
    result = {"runs": len(table), "struck": sum(r["struck"] for r in table),
              "violations": sum(bool(r["violations"]) for r in table), "seed": given.seed,
              "detected_s": {w: distribution([r["detected_s"] for r in table if "detected_s" in r and KINDS[r["kind"]][1] == w])
                             for w in DETECT_SECONDS},
              "recovered_s": {w: distribution([r["recovered_s"] for r in table if "recovered_s" in r and KINDS[r["kind"]][1] == w])
                              for w in DETECT_SECONDS},
              "kinds": by_kind, "table": table}
    if given.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"{result['runs']} runs, {result['struck']} struck, {result['violations']} with violations")
        for what in ("detected_s", "recovered_s"):
            for kind, one in result[what].items():
                if one:
                    print(f"{what} of a {kind}: median {one['median']}, 90th percentile {one['p90']}, most {one['most']}")
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
