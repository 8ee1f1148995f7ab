#!/usr/bin/env python3
"""Plans evaluated a second and core by `heddle search` and by Calculon:  ./dev bench search --calculon DIR [--json]

DIR is a checkout of github.com/calculon-ai/calculon (Isaev et al., SC 2023), which is not part of Heddle; --python
names an interpreter that has what it imports (numpy, pandas, psutil). Both search GPT-3 175B on the same number of
A100s, each on one core, in rounds one after the other, so that a noisy machine disturbs both alike; medians.

Calculon's own command `llm-optimal-execution` runs, counts and reports. Its whole search takes minutes, so its pool of
processes is replaced by a sample: its work items in an order drawn from the round's number, one by one in this
process, until --seconds are over. Both count what they look at, whether it fits the memory or not. Heddle's rate is
given twice: of the estimates alone, which is what looks at every plan, and of the whole search, in which the best few
hundred are timed action by action.
"""
import argparse
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time


sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
import stops  # noqa: E402


class Sample:
    """Stands for multiprocessing.Pool: does part of the work, here."""

    def __init__(self, seconds, seed):
        self.seconds, self.seed = seconds, seed

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return False

    def starmap(self, work, items):
        items = list(items)
        random.Random(self.seed).shuffle(items)
        done, end = [], time.monotonic() + self.seconds
        for item in items:
            done.append(work(*item))
            if time.monotonic() > end:
                break
        return done


def calculon_side(folder, devices, batch, seconds, seed):
    """Runs in Calculon's interpreter: one sample of its search, reported by itself."""
    import logging

    sys.path.insert(0, folder)
    from calculon.llm import optimal_execution as search

    search.mp.Pool = lambda cpus: Sample(seconds, seed)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
    parser = argparse.ArgumentParser()
    search.OptimalExecution.create_parser(parser.add_subparsers())
    root = pathlib.Path(folder)
    with tempfile.TemporaryDirectory() as out:
        arguments = parser.parse_args(["llm-optimal-execution", str(root / "models/gpt3-175B.json"), str(devices), str(batch),
                                       "float16", str(root / "systems/a100_80g.json"), f"{out}/best.json", "--cpus", "1",
                                       "--noneok"])
        return search.OptimalExecution.run_command(logging.getLogger(), arguments)


def calculon(options, seed):
    done = subprocess.run([options.python, __file__, "--calculon", options.calculon, "--devices", str(options.devices),
                           "--batch", str(options.batch), "--seconds", str(options.seconds), "--side", str(seed)],
                          capture_output=True, text=True, timeout=60 + 20 * options.seconds)
    found = re.search(r"Total executions: (\d+).*Good executions: (\d+).*Calculation rate: ([0-9.]+)", done.stdout, re.S)
    if done.returncode != 0 or not found:
        sys.exit(f"bench search: Calculon failed: {(done.stderr or done.stdout).strip().splitlines()[-1:]}")
    return {"plans": int(found[1]), "good": int(found[2]), "plans_per_s": float(found[3])}


def heddle(options):
    done = subprocess.run([options.heddle, "search", "--model", "GPT-3-175B", "--cluster", "A100-80", "--devices",
                           str(options.devices), "--global-batch", str(options.batch), "--sequence", "2048",
                           "--precision", "fp16", "--threads", "1", "--json"], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"bench search: heddle search failed: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    plans = found["estimated"] + found["passed_over"]    # Calculon works all of them out
    return {"plans": plans, "good": found["fitting"], "plans_per_s": plans / found["estimate_s"],
            "plans_per_s_whole": plans / (found["estimate_s"] + found["exact_s"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calculon", metavar="DIR", required=True, help="a checkout of Calculon")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Calculon (this one)")
    parser.add_argument("--heddle", default="build/heddle")
    parser.add_argument("--devices", type=int, default=512)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2,
                        help="of Calculon's sample, a round; the last item is finished (2)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--limit", **stops.LIMIT)
    parser.add_argument("--side", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side is not None:
        sys.exit(calculon_side(options.calculon, options.devices, options.batch, options.seconds, options.side))
    if not (pathlib.Path(options.calculon) / "calculon/llm/optimal_execution.py").exists():
        parser.error(f"--calculon {options.calculon}: no calculon/llm/optimal_execution.py there")
    rounds = []
    with stops.watched("./dev bench search", options.limit) as stop:
        for seed in range(options.rounds):
            sides = [("calculon", lambda: calculon(options, seed)), ("heddle", lambda: heddle(options))]
            rounds.append({name: run() for name, run in (sides if seed % 2 == 0 else sides[::-1])})
    if not rounds:
        print("bench search: no round was whole", file=sys.stderr)
        sys.exit(stop.status)

    def median(side, key):
        return statistics.median(r[side][key] for r in rounds)

    ratios = {key: statistics.median(r["heddle"][key] / r["calculon"]["plans_per_s"] for r in rounds)
              for key in ("plans_per_s", "plans_per_s_whole")}
    found = {"devices": options.devices, "calculon_plans_per_s": median("calculon", "plans_per_s"),
             "heddle_plans_per_s": median("heddle", "plans_per_s"),
             "heddle_plans_per_s_whole": median("heddle", "plans_per_s_whole"), "ratio": ratios["plans_per_s"],
             "ratio_whole": ratios["plans_per_s_whole"], "rounds": rounds}
    if options.json:
        print(json.dumps(found, indent=2))
        sys.exit(stop.status)
    print(f"GPT-3 175B on {options.devices} A100s, plans a second on one core, medians of {len(rounds)} rounds:")
    print(f"Calculon {found['calculon_plans_per_s']:.0f}; heddle {found['heddle_plans_per_s']:.0f} estimating "
          f"({found['ratio']:.0f} times), {found['heddle_plans_per_s_whole']:.0f} in all "
          f"({found['ratio_whole']:.0f} times)")
    sys.exit(stop.status)


if __name__ == "__main__":
    main()
