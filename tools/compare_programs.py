#!/usr/bin/env python3
"""Trains drawn configurations with two builds of the program and compares the weights bit for bit.

    compare_programs.py BEFORE AFTER [--draws N] [--seed S] [--json] [--keep FOLDER]

A draw is a tiny model with a layout, a schedule, a type and some switches, trained for six steps with a checkpoint and a
resumption in half of the draws. Compared are the digest of the weights of every step, every loss, and the tensors of the last
checkpoint. A draw that both programs refuse counts as refused, and another is drawn. Exit status 1 where anything differs.
"""
import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/cli"))
sys.argv, given = sys.argv[:1], sys.argv[1:]
from program import TINY  # noqa: E402

LIMIT_S = 600
LAYOUTS = [{}, {"mesh.dp": 2}, {"mesh.ep": 2}, {"mesh.tp": 2}, {"mesh.cp": 2}, {"mesh.pp": 2}, {"mesh.pp": 2, "mesh.ep": 2},
           {"mesh.tp": 2, "mesh.dp": 2}, {"mesh.cp": 2, "mesh.ep": 2}, {"mesh.tp": 2, "mesh.etp": 2}]
SWITCHES = {
    "parallel.schedule": ["1f1b", "gpipe", "zb_h1", "zb_h2"],
    "parallel.exchange": ["plain", "node", "auto"],
    "parallel.reuse_lists": ["true", "false"],
    "memory.optimizer": ["device", "swap", "mapped", "host"],
    "memory.master": ["full", "split"],
    "memory.recompute": ["none", "norm,activation", "layer"],
    "memory.offload": ["none", "input"],
    "memory.weights": ["device", "all"],
    "moe.replicas": ["off", "1"],
    "moe.replicas_from": ["counts", "history"],
    "moe.migrate_every": ["off", "2"],
    "train.optimizer": ["adamw", "muon"],
    "train.average_decay": ["0", "0.9"],
    "train.skip_norm_above": ["0", "3"],
    "train.snapshot_every": ["0", "2"],
    "train.batch_ramp": ["", "2 2 8"],
    "train.exact_sums": ["false", "true"],
    "model.attention_dropout": ["0", "0.1"],
    "model.topk_bias": ["true", "false"],
    "device.dtype": ["f64", "f32", "bf16"],
    "lora.rank": ["0", "4"],
}


def text_of(words=1200):
    draw = random.Random(1)
    known = "the shuttle passes between warp and weft while a heddle lifts every second thread".split()
    return "\n\n".join(" ".join(draw.choices(known, k=60)) + "." for _ in range(words))


def drawn(seed, number):
    """Settings of one draw: a layout, a type, and three to six switches."""
    draw = random.Random(f"{seed}/{number}")
    settings = dict(draw.choice(LAYOUTS))
    for name in draw.sample(sorted(SWITCHES), draw.randint(3, 6)):
        settings[name] = draw.choice(SWITCHES[name][1:])
    settings.setdefault("device.dtype", draw.choice(SWITCHES["device.dtype"]))
    of = {axis: settings.get(f"mesh.{axis}", 1) for axis in ("dp", "tp", "cp", "pp", "ep")}
    settings["mesh.ranks"] = of["pp"] * max(of["dp"] * of["tp"] * of["cp"], of["ep"])
    return settings, draw.random() < 0.5


def train(program, folder, settings, resumes):
    """What a program makes of a draw: its status and words, or digests, losses and the checkpoint's tensors."""
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "OMP_WAIT_POLICY": "passive"}
    runs = [["--steps", "3"], ["--resume"]] if resumes else [[]]
    for more in runs:
        done = subprocess.run([program, "train", "tiny.toml", "--quiet", "--json", "--set", "output=run", *more, *words], cwd=folder,
                              capture_output=True, text=True, timeout=LIMIT_S, env=environment)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if not line.startswith("heddle: warning: ")]
            return {"status": done.returncode, "said": said[-1] if said else ""}
    steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    files = sorted((folder / "run/checkpoints" / (folder / "run/checkpoints/latest").read_text().strip()).glob("*.safetensors"))
    return {"status": 0, "digests": [s.get("weights_digest") for s in steps], "losses": [s["lm_loss"] for s in steps],
            "tensors": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, help="the folder of what differs")
    options = parser.parse_args(given)
    made, refused, differ, number = 0, 0, [], 0
    while made < options.draws and number < 20 * options.draws:
        settings, resumes = drawn(options.seed, number)
        number += 1
        results, folders = [], []
        for program in (options.before, options.after):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-compare-"))
            folders.append(folder)
            (folder / "tiny.toml").write_text(TINY)
            (folder / "text.txt").write_text(text_of())
            results.append(train(program.resolve(), folder, settings, resumes))
        same = results[0] == results[1]
        text = " ".join(f"{key}={value}" for key, value in settings.items())
        if all(result["status"] == 2 for result in results):
            refused += 1
        else:
            made += 1
            if not same:
                differ.append({"number": number - 1, "settings": text, "before": results[0], "after": results[1]})
            if not options.json:
                print(f"{made:3} {'same' if same else 'DIFFERS'}{' (resumed)' if resumes else ''}: {text}", flush=True)
        for folder, name in zip(folders, ("before", "after")):
            if options.keep and differ and differ[-1]["number"] == number - 1:
                shutil.copytree(folder, options.keep / f"{number - 1}-{name}")
            shutil.rmtree(folder)
    found = {"draws": made, "refused": refused, "differ": differ}
    print(json.dumps(found) if options.json else f"{made} draws, {refused} refused alike, {len(differ)} differ")
    for one in differ if not options.json else ():
        print(json.dumps(one, indent=1)[:3000])
    return 1 if differ or made < options.draws else 0


if __name__ == "__main__":
    sys.exit(main())
