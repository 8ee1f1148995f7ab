#!/usr/bin/env python3
"""Holds `heddle check` to dumps that heddle.tap writes in a plain PyTorch trainer, on two to four ranks of Gloo.

    tap_test.py PATH_OF_HEDDLE [--layouts N] [--faults N] [--sharded N] [--dtensor N] [--first N] [--keep FOLDER] [--json FILE]

Layouts are drawn: degrees, experts, sequence parallelism, masks of labels, the loss's mean, dtype. Each must be equal. Then
faults are planted, one a run, by their list below: at least 95 % must be found, and 80 % named: the sentence of a fault that
the check prints, or of one that it says is the same here, is one of those listed. FSDP2 and Transformers are tapped too,
and a trainer of DTensors with tp, sequence parallelism and FSDP2 (dtensor_trainer.py).

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-bench/bin/python"
RUN_SECONDS, CHECK_SECONDS = 1700, 600

MOE = dict(tp=2, dp=2, ep=2, moe=True, sp=True)
COPIED = dict(tp=2, dp=2, moe=True, sp=True)
PLAIN = dict(tp=2, dp=2)
LONG = dict(tp=2, cp=2, sp=True)
LONG_MOE = dict(cp=2, dp=2, ep=2, moe=True)
DATA, SPLIT, CHUNKS = dict(dp=2), dict(tp=2), dict(cp=2)

# Layout, fault, the place that has it, and the names that say it.
FAULTS = [
    (MOE, "not_summed.tp", "layernorm", {"not_summed.tp"}),
    (LONG, "not_summed.tp", "0.input_layernorm", {"not_summed.tp"}),
    (MOE, "not_summed.tp", "mlp.gate.weight", {"not_summed.tp"}),
    (PLAIN, "not_summed.tp", "q_norm", {"not_summed.tp"}),
    (LONG, "not_summed.tp", "k_norm", {"not_summed.tp"}),
    (MOE, "not_summed.tp", "model.norm", {"not_summed.tp"}),
    (SPLIT, "not_summed.tp", "1.self_attn.q_norm", {"not_summed.tp"}),
    (PLAIN, "not_summed.dp", "q_proj", {"not_summed.dp"}),
    (MOE, "not_summed.dp", "embed_tokens", {"not_summed.dp"}),
    (PLAIN, "not_summed.dp", "lm_head", {"not_summed.dp"}),
    (LONG, "not_summed.cp", "k_proj", {"not_summed.cp"}),
    (LONG_MOE, "not_summed.cp", "experts", {"not_summed.cp", "not_summed.edp"}),
    (COPIED, "not_summed.dp", "experts", {"not_summed.dp", "not_summed.edp"}),
    (DATA, "not_summed.dp", "", {"not_summed.dp"}),
    (CHUNKS, "not_summed.cp", "", {"not_summed.cp"}),
    (MOE, "again.tp", "mlp.gate", {"times.tp"}),
    (MOE, "again.tp", "layernorm", {"times.tp"}),
    (PLAIN, "again.dp", "o_proj", {"times.dp"}),
    (LONG, "again.cp", "v_proj", {"times.cp"}),
    (PLAIN, "again.tp", "q_norm", {"times.tp"}),
    (MOE, "again.dp", "self_attn", {"times.dp"}),
    (PLAIN, "again.tp", "lm_head.weight", {"slices_summed.tp"}),
    (PLAIN, "again.tp", "down_proj", {"slices_summed.tp"}),
    (MOE, "again.dp", "experts", {"slices_summed.ep", "slices_summed.dp"}),
    (MOE, "averaged.dp", "experts", {"divided_by.dp", "divided_by.ep"}),
    (PLAIN, "averaged.dp", "", {"divided_by.dp"}),
    (LONG, "averaged.cp", "", {"divided_by.cp"}),
    (MOE, "averaged.tp", "layernorm", {"divided_by.tp"}),
    (MOE, "zero", "model.norm", {"zero"}),
    (LONG_MOE, "zero", "mlp.gate", {"zero"}),
    (PLAIN, "zero_on_rank_1", "q_proj", {"zero"}),
    (DATA, "local_count.dp", "", {"local_count.dp"}),
    (MOE, "local_count.dp", "", {"local_count.dp"}),
    (DATA, "local_count.microbatch", "", {"local_count.both"}),
    (LONG, "local_count.microbatch", "", {"local_count.microbatch"}),
    (dict(MOE, loss="microbatches"), "local_count.microbatch", "", {"local_count.both"}),
    (LONG, "local_count.cp", "", {"local_count.cp"}),
    (PLAIN, "times_microbatches", "", {"times.microbatches"}),
    (DATA, "only_last", "", {"only_last"}),
    (MOE, "only_last", "", {"only_last"}),
    (DATA, "summed_again", "", {"summed_again"}),
    (PLAIN, "loss_not_over.dp", "", {"not_summed.dp"}),
    (LONG, "loss_not_over.cp", "", {"not_summed.cp"}),
    (PLAIN, "no_sum", "0.o_proj", {"not_summed.tp"}),
    (LONG, "no_sum", "1.down_proj", {"not_summed.tp"}),
    (PLAIN, "no_sum", "embed_tokens", {"not_summed.tp"}),
    (MOE, "no_sum", "1.experts", {"not_summed.tp"}),
    (PLAIN, "sum_twice", "0.down_proj", {"times.tp"}),
    (PLAIN, "sum_twice", "embed_tokens", {"times.tp"}),
    (PLAIN, "no_sum_back", "0.mlp", {"not_summed.tp"}),
    (PLAIN, "no_sum_back", "lm_head", {"not_summed.tp"}),
    (LONG, "no_sum_back", "1.attention", {"not_summed.tp"}),
    (COPIED, "no_sum_back", "1.gates", {"not_summed.tp"}),
    (PLAIN, "sum_twice_back", "0.mlp", {"times.tp"}),
    (LONG, "own_chunks", "1", {"own_chunks_alone.cp"}),
    (LONG, "no_mask_at_boundary", "0", {"no_mask_at_boundary.cp"}),
    (LONG_MOE, "mask_by_row", "1", {"mask_by_row.cp"}),
    (PLAIN, "not_causal", "1", {"not_causal"}),
    (LONG_MOE, "heads_shifted", "0", {"heads_shifted.1"}),
    (LONG_MOE, "groups_by_place", "1", {"groups_by_place"}),
    (PLAIN, "no_scale", "1", {"scores_not_scaled"}),
    (LONG, "local_positions", "0", {"rope.from_zero.cp"}),
    (LONG, "no_gradient_of_keys", "1", {"not_summed.cp"}),
    (PLAIN, "act_of_up", "0", {"gate_up_swapped"}),
    (MOE, "gates_not_normed", "1", {"gates_not_normed"}),
    (PLAIN, "norm_not_over.tp", "", {"norm.not_over.tp"}),
    (MOE, "norm_not_over.ep", "experts", {"norm.not_over.ep"}),
    (MOE, "norm_copies.tp", "", {"norm.copies.tp"}),
    (PLAIN, "norm_copies.dp", "", {"norm.root_times.dp", "norm.copies.dp"}),
    (MOE, "norm_without", "experts", {"norm.no_experts"}),
    (PLAIN, "norm_without", "norm.weight", {"norm.no_norms"}),
    (PLAIN, "norm_no_root", "", {"norm.square"}),
    (COPIED, "norm_without", "mlp.gate.weight", {"norm.router_missing"}),
    (PLAIN, "not_updated", "lm_head", {"not_updated"}),
    (PLAIN, "decays_norms", "", {"decays_vectors"}),
]


# Cases of the trainer of DTensors: right layouts, and one that is wrong.
DTENSOR = [
    dict(tp=2, sp=True, loss_parallel=True), dict(tp=2, dp=2, sp=True), dict(tp=2), dict(tp=2, dp=2, sp=True, loss_parallel=True, dtype="bf16"),
    dict(tp=2, dp=2), dict(tp=2, dp=2, sp=True, dtype="bf16", microbatches=3), dict(tp=2, dp=2, loss_parallel=True, microbatches=1), dict(dp=4, dtype="bf16"),
]
DTENSOR_FAULT = (dict(tp=2, dp=2, sp=True), "norms_scaled", "layernorm", {"times.tp"})


def drawn(number):
    d = random.Random(number)
    while True:
        case = dict(tp=d.choice([1, 2]), cp=d.choice([1, 1, 2]), dp=d.choice([1, 2, 4]), moe=d.random() < 0.5, sp=d.random() < 0.5)
        if ranks_of(case) in (2, 4):
            break
    if case["moe"]:
        case["ep"] = d.choice([1, case["dp"]])
    case |= dict(dtype=d.choice(["fp32", "bf16"]), masks=d.random() < 0.6, loss=d.choice(["tokens", "tokens", "microbatches"]),
                 microbatches=d.choice([1, 2, 3]), local=d.random() < 0.5)
    return case


def ranks_of(case):
    return case.get("tp", 1) * case.get("cp", 1) * case.get("dp", 1) * case.get("pp", 1)


CASES_A_WORLD = 8  # the threads of Gloo's groups stay until their process ends


def make(cases, folder, trainer="plain_trainer.py"):
    """Runs the trainer for all cases: a world for every few cases of a number of ranks."""
    environment = dict(os.environ, HEDDLE_TAP=str(ROOT / "python/heddle"), OMP_NUM_THREADS="1")
    for ranks in sorted({ranks_of(case) for case in cases}):
        of_ranks = [case for case in cases if ranks_of(case) == ranks]
        for first in range(0, len(of_ranks), CASES_A_WORLD):
            name = f"{trainer}.{ranks}.{first}"
            listed = folder / f"{name}.json"
            listed.write_text(json.dumps(of_ranks[first : first + CASES_A_WORLD]))
            command = [VENV, ROOT / "tests/check" / trainer, listed, str(ranks), folder / f"{name}.store"]
            if subprocess.run(command, env=environment, timeout=RUN_SECONDS).returncode:
                sys.exit("the trainer failed")


def check(heddle, dump):
    done = subprocess.run([heddle, "check", dump, "--json"], capture_output=True, text=True, timeout=CHECK_SECONDS)
    if done.returncode not in (0, 3):
        sys.exit(f"{dump}: heddle check ends with {done.returncode}: {done.stderr}")
    report = json.loads(done.stdout)
    if report["equal"] != (done.returncode == 0):
        sys.exit(f"{dump}: the exit status {done.returncode} and the report differ")
    return report


def names_of(report):
    names = set()
    for explanation in report["faults"]:
        names |= {explanation["name"], *(fault["name"] for fault in explanation["faults"] + explanation["alike"])}
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("--layouts", type=int, default=4)
    parser.add_argument("--faults", type=int, default=5)
    parser.add_argument("--sharded", type=int, default=1)
    parser.add_argument("--dtensor", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    asked = parser.parse_args()
    if not VENV.exists() or subprocess.run([VENV, "-c", "import torch, safetensors, transformers"], capture_output=True).returncode:
        print("skipped: .venv-bench has no PyTorch; bench/torch_peer/requirements.txt lists what is needed")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        right = [dict(drawn(asked.first + n), seed=asked.first + n + 1) for n in range(asked.layouts)]
        right += [dict(dp=2, kind="sharded", seed=n + 1, microbatches=2) for n in range(asked.sharded)]
        stride = max(1, len(FAULTS) // asked.faults) if asked.faults else 1
        planted = list(enumerate(FAULTS))[::stride][: asked.faults]
        wrong = [dict(layout, fault=fault, where=where, seed=1000 + n) for n, (layout, fault, where, _) in planted]
        of_dtensors = [dict(case, seed=n + 1) for n, case in enumerate(DTENSOR[: asked.dtensor])]
        if asked.dtensor:
            planted.append((len(FAULTS), DTENSOR_FAULT))
            layout, fault, where, _ = DTENSOR_FAULT
            wrong_of_dtensors = [dict(layout, fault=fault, where=where, seed=1)]
        else:
            wrong_of_dtensors = []
        for n, case in enumerate(right + wrong + of_dtensors + wrong_of_dtensors):
            case["dump"] = str(folder / f"dump{n:04}")
        make(right + wrong, folder)
        make(of_dtensors + wrong_of_dtensors, folder, "dtensor_trainer.py")
        right, wrong = right + of_dtensors, wrong + wrong_of_dtensors
        alarms = []
        for case in right:
            report = check(asked.heddle, case["dump"])
            print(f"{'equal' if report['equal'] else 'FALSE ALARM'}, worst {report['worst_ratio']:.3f}: {case}", flush=True)
            if not report["equal"]:
                alarms.append(case)
        results = []
        for case, (_, (_, _, _, expected)) in zip(wrong, planted):
            report = check(asked.heddle, case["dump"])
            names = names_of(report)
            named = bool(names & expected)
            first = f"{report['first']['stage']} {report['first']['name']}" if report["first"] else "equal"
            first_name = report["faults"][0]["name"] if report["faults"] else ""
            results.append(dict(case=case, found=not report["equal"], named=named, first=first, names=sorted(names), top=first_name))
            print(f"{'found' if not report['equal'] else 'MISSED'}, {'named' if named else 'not named'}: {case['fault']} {case['where']}:"
                  f" {first}: {first_name or '-'}", flush=True)
        found, named = sum(r["found"] for r in results), sum(r["named"] for r in results)
        print(f"{len(right)} right layouts, {len(alarms)} false alarms; {len(results)} faults, {found} found, {named} named")
        if asked.json:
            asked.json.write_text(json.dumps(dict(alarms=alarms, results=results), indent=1))
        return int(bool(alarms) or found < 0.95 * len(results) or named < 0.8 * len(results))


if __name__ == "__main__":
    sys.exit(main())
