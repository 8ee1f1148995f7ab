#!/usr/bin/env python3
"""What faults cost a job of `heddle launch` that keeps copies of its state in memory, without and with ranks that stand by
(--standby), against one that starts again from disk alone: the same steps on emulated hosts (tests/job/emulated.py) with a fault in every ten, at the same drawn places.

    ./dev bench goodput [--hosts 2] [--steps 40] [--sequences 96] [--microbatch 24] [--every 10] [--disk-every 10]
                        [--seed 1] [--host-faults] [--rounds 3] [--json]

A fault strikes within a step, steps and moments drawn one from each of as many equal parts: a process killed or, with
--host-faults, a host with its memory, which answers again at once. The time it loses is that from the blow until the step
which it struck has ended, less what that step still needed of the median step's time. `lost_s` is the sum of a run's, the
median of the rounds; `lost_time_saved` the part of the time lost from disk that the others save. All digests are compared.
"""

import argparse
import json
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests/job"))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
import stops  # noqa: E402
from emulated import Job, Reference, digests, events  # noqa: E402


KINDS = ("disk", "memory", "standby")


def settings(arguments, memory):
    words = [f"train.steps={arguments.steps}", f"train.global_batch={arguments.sequences}", "train.trace_step=0",
             f"train.microbatch={arguments.microbatch or arguments.sequences // arguments.hosts // 2}", f"train.checkpoint_every={arguments.disk_every}"]
    return words + (["train.snapshot_every=1"] if memory else [])


def run(heddle, reference, base, name, arguments, kind, strikes):
    more = ["--listen", "lo", *(["--standby"] if kind == "standby" else [])]
    for setting in settings(arguments, kind != "disk"):
        more += ["--set", setting]
    job = Job(heddle, reference, base / name, hosts=arguments.hosts, more=more, patience=3600)
    struck = []
    try:
        job.start()
        for step, rank, moment in strikes:
            if not job.wait_until(lambda step=step: job.steps_done() >= step - 1):
                break
            begun = time.monotonic()
            if not job.wait_until(lambda step=step: job.steps_done() >= step):
                break
            time.sleep(moment * (time.monotonic() - begun))
            struck.append((time.time(), step + 1, moment))
            if arguments.host_faults:
                job.lose_host(f"node{rank}")
                job.mend_host(f"node{rank}")
            else:
                job.strike([pid for pid, one in job.processes().items() if one[2] == rank])
            before = job.starts()
            job.wait_until(lambda before=before: job.starts() > before)
        status = job.wait()
        if status != 0:
            sys.exit(f"{name} ended with status {status}\n{job.text()}")
        log = events(job.run)
        lines = {line["step"]: line for line in map(json.loads, (job.run / "metrics.jsonl").read_text().splitlines())}
        step_s = statistics.median(line["step_s"] for line in lines.values())
        found, recovered, lost = [], [], []
        for at, step, moment in struck:
            end = next((e["time"] for e in log if e["event"] == "end" and e["time"] > at), None)
            going = next((e["time"] for e in log if e["event"] == "running" and end and e["time"] > end), None)
            found += [end - at] if end else []
            recovered += [going - at] if going else []
            lost.append(lines[step]["wall_time_s"] - at - (1 - moment) * step_s)
        made, order = digests(job.run)
        return {"step_s": step_s, "lost_s": sum(lost), "found_s": found,
                "recovered_s": recovered, "digests": made, "complete": order == list(range(1, arguments.steps + 1))}
    finally:
        job.end()


def distribution(values):
    ordered = sorted(values)
    if not ordered:
        return None
    return {"count": len(ordered), "median": round(statistics.median(ordered), 3),
            "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 3), "most": round(ordered[-1], 3)}


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--heddle", type=pathlib.Path, default=pathlib.Path("build/heddle"))
    parse.add_argument("--hosts", type=int, default=2)
    parse.add_argument("--steps", type=int, default=40)
    parse.add_argument("--sequences", type=int, default=96)
    parse.add_argument("--microbatch", type=int, default=0)
    parse.add_argument("--rounds", type=int, default=3)
    parse.add_argument("--every", type=int, default=10)
    parse.add_argument("--disk-every", type=int, default=10)
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--host-faults", action="store_true")
    parse.add_argument("--json", action="store_true")
    parse.add_argument("--limit", **stops.LIMIT)
    arguments = parse.parse_args()
    draw = random.Random(arguments.seed)
    tens = list(range(arguments.every, arguments.steps - arguments.every + 1, arguments.every))
    parts = lambda: draw.sample([(i + draw.random()) / len(tens) for i in range(len(tens))], len(tens))
    strikes = [(first + int(place * arguments.every), draw.randrange(arguments.hosts), moment)
               for first, place, moment in zip(tens, parts(), parts(), strict=True)]
    heddle = arguments.heddle.resolve()
    base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-goodput-")).resolve()
    rounds = []
    with stops.watched("./dev bench goodput", arguments.limit) as stop:
        try:
            (base / "reference").mkdir()
            reference = Reference(heddle, base / "reference")    # prepares the data
            for number in range(arguments.rounds):
                rounds.append({kind: run(heddle, reference, base, f"{kind}-{number}", arguments, kind, strikes)
                               for kind in KINDS})
        finally:
            shutil.rmtree(base, ignore_errors=True)
    if not rounds:
        print("bench goodput: no round was whole", file=sys.stderr)
        sys.exit(stop.status or 1)
    same = all(one["complete"] and one["digests"] == rounds[0]["disk"]["digests"] for row in rounds for one in row.values())
    lost = {kind: statistics.median(row[kind]["lost_s"] for row in rounds) for kind in KINDS}
    result = {"steps": arguments.steps, "faults": len(strikes), "same_digests": same, "strikes": strikes,
              "rounds": len(rounds),
              "step_s": round(statistics.median(one["step_s"] for row in rounds for one in row.values()), 3),
              "lost_s": {name: round(seconds, 3) for name, seconds in lost.items()},
              "lost_time_saved": {kind: round(1 - lost[kind] / lost["disk"], 4) if lost["disk"] > 0 else None
                                  for kind in KINDS[1:]},
              "found_s": {name: distribution([s for row in rounds for s in row[name]["found_s"]]) for name in lost},
              "recovered_s": {name: distribution([s for row in rounds for s in row[name]["recovered_s"]]) for name in lost}}
    if arguments.json:
        print(json.dumps(result, indent=1))
    else:
        for key, value in result.items():
            print(f"{key:16} {value}")
    sys.exit(stop.status or (0 if same else 1))


if __name__ == "__main__":
    main()
