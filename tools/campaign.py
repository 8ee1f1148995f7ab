#!/usr/bin/env python3
"""Lets things happen to jobs of `heddle launch`, and holds what comes of them to the invariants of docs/howto/launch.md.

    campaign.py HEDDLE LIBFAIL_CALLS [--runs N] [--seed S] [--parallel N] [--only KIND] [--table FILE] [--json]
    campaign.py HEDDLE LIBFAIL_CALLS --replay FILE[:LINE]
    campaign.py HEDDLE LIBFAIL_CALLS --corruptions N [--seed S]

Each run is a job of four emulated hosts (tests/job/emulated.py), drawn from its number and the seed alone: a line of the
table says all that it takes to have it again (--replay). A corruption is a checkpoint, on disk or in memory, that is
damaged while nobody uses it, and then read. Exit status 1 where an invariant does not hold.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests/job"), str(HERE)]
from emulated import Reference  # noqa: E402
from faults import corruptions, network  # noqa: E402
from faults.kinds import KEYS, KINDS, drawn  # noqa: E402
from faults.one_run import DETECT_SECONDS, run  # noqa: E402


def distribution(values):
    if not values:
        return None
    ordered = sorted(values)
    return {"runs": len(ordered), "median": round(statistics.median(ordered), 3),
            "p90": round(ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))], 3), "most": round(ordered[-1], 3)}


def replayed(text):
    path, _, line = text.rpartition(":") if ":" in text else (text, "", "")
    lines = [json.loads(one) for one in pathlib.Path(path).read_text().splitlines()]
    chosen = [lines[int(line) - 1]] if line else lines
    return [{key: one[key] for key in KEYS if key in one} for one in chosen]


def of_kinds(table, figure):
    return {what: distribution([r[figure] for r in table if figure in r and KINDS[r["kind"]].found_as == what])
            for what in DETECT_SECONDS}


def summary(table, seed):
    kinds = {}
    for name in sorted({row["kind"] for row in table}):
        rows = [row for row in table if row["kind"] == name]
        kinds[name] = {"runs": len(rows), "struck": sum(r["struck"] for r in rows),
                       "violations": sum(bool(r["violations"]) for r in rows),
                       **{f: distribution([r[f] for r in rows if f in r]) for f in ("detected_s", "recovered_s")}}
    return {"runs": len(table), "struck": sum(r["struck"] for r in table),
            "violations": sum(bool(r["violations"]) for r in table), "seed": seed,
            "detected_s": of_kinds(table, "detected_s"), "recovered_s": of_kinds(table, "recovered_s"), "kinds": kinds}


def told(row):
    said = "; ".join(row["violations"]) or "well"
    print(f"{row['number']}: {row['kind']}, {'struck' if row['struck'] else 'over before'}, "
          f"{row.get('generations', 0)} generations, {row.get('seconds', 0):.1f} s: {said}", file=sys.stderr, flush=True)


def live(given, base, draws):
    (base / "reference").mkdir()
    reference = Reference(given.heddle, base / "reference")
    began, table = time.monotonic(), []

    def one(draw):
        if given.seconds and time.monotonic() - began > given.seconds:
            return None
        folder = base / f"job-{draw['number']}"
        row = {**draw, **run(given.heddle, given.shim, reference, folder, draw), "load": round(os.getloadavg()[0], 1)}
        shutil.rmtree(folder, ignore_errors=True)
        return row

    with concurrent.futures.ThreadPoolExecutor(given.parallel) as pool:
        for done in concurrent.futures.as_completed([pool.submit(one, draw) for draw in draws]):
            row = done.result()
            if row is None:
                continue
            table.append(row)
            told(row)
            if given.table:
                with open(given.table, "a", encoding="utf-8") as out:
                    out.write(json.dumps(row) + "\n")
    return table


def main():
    parser = argparse.ArgumentParser(description="Faults drawn at random in jobs of heddle launch.")
    parser.add_argument("heddle", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("shim", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first run")
    parser.add_argument("--only", choices=KINDS, action="append", help="one kind of fault; may be given many times")
    parser.add_argument("--parallel", type=int, default=1, help="jobs at a time")
    parser.add_argument("--seconds", type=float, help="begin no further run after so long")
    parser.add_argument("--replay", metavar="FILE[:LINE]", help="the runs of a table, or one of its lines")
    parser.add_argument("--corruptions", type=int, metavar="N", help="damage to checkpoints that nobody uses, and no job")
    parser.add_argument("--table", type=pathlib.Path, help="a line of JSON a run is added here")
    parser.add_argument("--summary", type=pathlib.Path, nargs="+", metavar="TABLE", help="what these tables come to, and no run")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-campaign-")).resolve()
    try:
        if given.corruptions:
            result = corruptions.run(given.heddle, base, range(given.first, given.first + given.corruptions), given.seed,
                                     given.parallel)
        elif given.summary:
            table = [json.loads(line) for path in given.summary for line in path.read_text().splitlines()]
            result = summary(table, sorted({row["seed"] for row in table}))
        else:
            with_networks = network.may_run(given.heddle)
            kinds = [name for name, kind in KINDS.items()
                     if (with_networks or not kind.network) and (kind.may_run is None or kind.may_run())]
            if left_out := sorted(set(KINDS) - set(kinds)):
                print(f"no namespaces, mounts or tracing here: left out are {', '.join(left_out)}", file=sys.stderr)
            draws = replayed(given.replay) if given.replay else \
                [drawn(n, given.seed, given.only, kinds) for n in range(given.first, given.first + given.runs)]
            table = live(given, base, draws)
            result = {**summary(table, given.seed), "table": table}
    finally:
        shutil.rmtree(base, ignore_errors=True)
    if given.json:
        print(json.dumps(result, indent=1))
    else:
        print(f"{result['runs']} runs, {result.get('struck', result['runs'])} struck, {result['violations']} with violations")
        for what in ("detected_s", "recovered_s"):
            for kind, one in result.get(what, {}).items():
                if one:
                    print(f"{what} of a {kind}: median {one['median']}, 90th percentile {one['p90']}, most {one['most']}")
    sys.exit(1 if result["violations"] else 0)


if __name__ == "__main__":
    main()
