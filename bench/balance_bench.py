#!/usr/bin/env python3
"""How soon the experts of the demo are balanced, and what that costs: runs over several seeds with DeepSeek-V3's own
rate of the balancing biases, with the one that follows the run's length, with one that falls, and with biases that go
to quantiles of the scores, in turn.

    ./dev bench balance [--seeds 5] [--steps 300] [--rates 0.001,auto,falling,quantile] [--set KEY=VALUE …] [--json]
                        [--within MINUTES] [--keep FILE]

Runs go seed by seed. After --within minutes none is begun, and what has ended is reported. With --keep each run's figures
are added to a file when it ends, and those that stand there already are not run again.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "support"))
import stops  # noqa: E402

SHOWN = (5, 10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 640)


def run(heddle, folder, seed, rate, arguments):
    steps = arguments.steps
    settings = [f"seed={seed}", f"output={folder}", f"train.warmup_steps={steps * 8 // 100}",
                f"train.decay_steps={steps // 4}", "train.eval_every=1000000000", "train.checkpoint_every=0",
                "train.sample_tokens=0", "train.trace_step=0"] + arguments.set
    if rate in ("falling", "quantile"):
        settings.append(f"model.bias_balance={rate}")
    elif rate != "auto":
        settings.append(f"model.bias_update_rate={rate}")
    command = [heddle, "train", "examples/demo.toml", "--steps", str(arguments.steps)]
    for setting in settings:
        command += ["--set", setting]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    imbalance = {step["step"]: step["expert_imbalance"] for step in steps}
    return {"imbalance": imbalance,
            "end": statistics.mean(step["expert_imbalance"] for step in steps[-20:]),
            "held_out": steps[-1]["held_out_loss"]}


def even_from(imbalance):
    uneven = [n for n in imbalance if imbalance[n] >= 2]
    return next((n for n in imbalance if n > max(uneven, default=0)), None)


def kept_in(path, settings):
    """Figures of runs with these settings, by rate and seed."""
    if not path or not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = {(line["rate"], line["seed"]): line["found"] for line in lines if line["settings"] == settings}
    for of in found.values():
        of["imbalance"] = {int(step): value for step, value in of["imbalance"].items()}
    return found


@contextlib.contextmanager
def folder_of(folder):
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--heddle", default="build/heddle")
    parse.add_argument("--seeds", type=int, default=5)
    parse.add_argument("--steps", type=int, default=300)
    parse.add_argument("--rates", default="0.001,auto,falling,quantile")
    parse.add_argument("--json", action="store_true", help="all figures as JSON, at the end")
    parse.add_argument("--set", action="append", default=[])
    parse.add_argument("--within", type=float, default=float("inf"), metavar="MINUTES")
    parse.add_argument("--keep", type=pathlib.Path, metavar="FILE")
    parse.add_argument("--limit", **stops.LIMIT)
    arguments = parse.parse_args()
    rates = arguments.rates.split(",")
    shown = [n for n in SHOWN if n <= arguments.steps]
    settings = {"steps": arguments.steps, "set": arguments.set}
    kept = kept_in(arguments.keep, settings)
    until = time.monotonic() + 60 * arguments.within
    results = {rate: [] for rate in rates}
    folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-balance-"))
    print("busiest expert over the mean, worst layer, by step; `even`: the first step from which it stays below 2;\n"
          "`end`: mean of the last 20 steps")
    print(f"{'rate':>8} {'seed':>4} " + "".join(f"{n:>6}" for n in shown) + f"{'even':>6}{'end':>7} held-out")
    with stops.watched("./dev bench balance", arguments.limit) as stop, folder_of(folder):
        for seed in range(1, arguments.seeds + 1):
            for rate in rates:
                found = kept.get((rate, seed))
                if found is None:
                    if time.monotonic() >= until:
                        continue
                    found = run(arguments.heddle, folder / f"{rate}-{seed}", seed, rate, arguments)
                    if arguments.keep:
                        with arguments.keep.open("a") as file:
                            file.write(json.dumps({"settings": settings, "rate": rate, "seed": seed, "found": found}) +
                                       "\n")
                results[rate].append(found)
                print(f"{rate:>8} {seed:>4} " + "".join(f"{found['imbalance'][n]:6.2f}" for n in shown) +
                      f"{even_from(found['imbalance']) or '-':>6}{found['end']:7.2f} {found['held_out']:8.4f}", flush=True)
    rates = [rate for rate in rates if results[rate]]
    for rate in rates:
        mean = lambda key: statistics.mean(found[key] for found in results[rate])
        print(f"{rate:>8} mean " + "".join(
            f"{statistics.mean(found['imbalance'][n] for found in results[rate]):6.2f}" for n in shown) +
            f"{'':6}{mean('end'):7.2f} {mean('held_out'):8.4f}")
    for rate in rates[1:]:
        less = [a["held_out"] - b["held_out"] for a, b in zip(results[rate], results[rates[0]])]  # of the same seed
        spread = statistics.stdev(less) if len(less) > 1 else float("nan")
        print(f"held-out loss at {rate} less that at {rates[0]}: {statistics.mean(less):+.4f} (deviation {spread:.4f})")
    if arguments.json:
        print(json.dumps({"steps": arguments.steps, "seeds": arguments.seeds, "rates": results}, indent=1))
    sys.exit(stop.status)


if __name__ == "__main__":
    main()
