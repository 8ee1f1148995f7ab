#!/usr/bin/env python3
"""Holds `heddle check` to real Megatron-Core on two to four CPU ranks of Gloo.

    megatron_test.py PATH_OF_HEDDLE [--every N] [--only WORD] [--first N] [--cases N] [--layouts N] [--keep FOLDER] [--json FILE]

Right layouts must be equal: tp with and without sequence parallelism, cp, pp with a tied head, interleaved pipelines, ep,
experts in one module, the balance loss, losses by microbatches and by tokens, a sharded optimizer, in fp32 and bf16.
--layouts adds as many that are drawn. Then faults of the lists in megatron_faults.py are planted, each a class, in both
dtypes. All must be found. Those with names must be named: the check prints one of them.

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing.
"""
import argparse
import json
import pathlib
import random
import subprocess
import sys
import tempfile

from tap_test import VENV, check, make, names_of, ranks_of

SPLIT, ROWS, DATA, CHUNKS = dict(tp=2), dict(tp=2, sp=True), dict(dp=2), dict(cp=2)
MOE, STAGES = dict(tp=2, dp=2, ep=2, sp=True, moe=True), dict(pp=2, tied=True)
BALANCED, EXPERTS = dict(MOE, aux=True), dict(dp=2, ep=2, moe=True)
BF16 = dict(dtype="bf16")

RIGHT = [
    SPLIT, dict(ROWS, **BF16), dict(DATA, masks=True, per_token=True), dict(DATA, masks=True, loss="microbatches", **BF16),
    CHUNKS, dict(tp=2, cp=2, sp=True, **BF16), dict(cp=2, dp=2, masks=True, per_token=True), STAGES, dict(pp=2, tp=2, sp=True, **BF16),
    dict(STAGES, dp=2), MOE, dict(MOE, **BF16), BALANCED, dict(tp=2, pp=2, ep=2, sp=True, moe=True), dict(dp=2, sharded=True),
    dict(dp=4, ep=2, moe=True, aux=True), dict(dp=2, ep=2, moe=True, dispatcher="allgather"), dict(pp=2, vpp=2),
    dict(pp=2, vpp=2, tp=2, sp=True, **BF16), dict(dp=2, ep=2, moe=True, grouped="te"), dict(MOE, grouped="legacy", **BF16),
    dict(ROWS, joint_norms=True),
]

# Fault, layout, names that say it; none: it is found alone.
FAULTS = [
    ("norms_not_summed_over_tp", ROWS, {"not_summed.tp"}),
    ("router_not_summed_over_tp", MOE, {"not_summed.tp"}),
    ("router_not_summed_over_ep", EXPERTS, {"not_summed.ep", "not_summed.dp"}),
    ("experts_scaled_by_expert_degree", EXPERTS, {"times.ep", "times.dp"}),
    ("averaged_twice", DATA, {"divided_by.dp"}),
    ("not_summed_over_cp", CHUNKS, {"not_summed.cp"}),
    ("not_reduced_over_dp", DATA, {"own_mean.dp"}),
    ("finalized_twice", ROWS, {"times.tp"}),
    ("shared_embedding_not_summed", STAGES, {"not_summed.pp"}),
    ("labels_counted_locally", dict(DATA, masks=True, per_token=True), {"total_by_own"}),
    ("mean_of_own_labels", dict(DATA, masks=True), {"local_count.both"}),
    ("microbatches_not_averaged", SPLIT, {"times.microbatches"}),
    ("balance_loss_not_scaled", dict(EXPERTS, aux=True), {"aux.times.microbatches"}),
    ("output_not_reduced_over_tp", SPLIT, {"not_summed.tp"}),
    ("input_gradient_not_reduced_over_tp", SPLIT, {"not_summed.tp"}),
    ("input_gradient_cut_not_summed", ROWS, {"not_summed.tp"}),
    ("positions_from_zero", CHUNKS, {"rope.from_zero.cp"}),
    ("positions_in_a_row", CHUNKS, {"rope.in_a_row.cp"}),
    ("joint_product_read_as_blocks", DATA, {"qkv_read_apart"}),
    ("stage_reads_the_microbatch_before", dict(pp=2), {"rows_of.microbatch.-1"}),
    ("norm_counts_replicas", ROWS, {"norm.copies.tp"}),
    ("norm_counts_shared_embedding_twice", STAGES, {"norm.ends_twice"}),
    ("parameters_not_gathered", dict(dp=2, sharded=True), {"not_updated"}),
]


def drawn(number):
    """Right layout `number` of those that are drawn, with all that a step of Megatron-Core may have here."""
    d = random.Random(number)
    while True:
        case = {axis: d.choice(degrees) for axis, degrees in dict(tp=[1, 2], cp=[1, 1, 2], pp=[1, 1, 2], dp=[1, 2, 4]).items()}
        if ranks_of(case) in (2, 4):
            break
    case["moe"] = d.random() < 0.5
    case["sp"] = case["tp"] > 1 and (case["moe"] or d.random() < 0.7)
    case |= dict(dtype=d.choice(["fp32", "bf16"]), microbatches=d.choice([1, 2, 3]), tied=d.random() < 0.3)
    if case["moe"]:
        case["etp"] = d.choice([1, case["tp"]])
        wide = case["tp"] * case["cp"] * case["dp"] // case["etp"]
        case["ep"] = d.choice([ep for ep in (1, 2, 4) if wide % ep == 0])
        if case["ep"] == 1:  # with fewer ranks an expert, Megatron-Core takes experts for dense weights and leaves out their sum
            case["etp"] = case["tp"]
        case |= dict(aux=d.random() < 0.4, dispatcher=d.choice(["alltoall", "allgather"]), grouped=d.choice([None, None, "te", "legacy"]))
        if case["grouped"] == "legacy":  # which Megatron-Core has in bf16 alone
            case["dtype"] = "bf16"
    elif case["dp"] > 1:
        case["sharded"] = d.random() < 0.3
    if case["pp"] > 1 and d.random() < 0.5:
        case |= dict(vpp=2, microbatches=d.choice([2, 4]))
    case["masks"] = d.random() < 0.5
    if case["masks"]:
        case |= d.choice([dict(per_token=True), dict(loss="microbatches")])
        # Megatron-Core then weighs the balance loss by all tokens, where the other loss goes by labels.
        if case.get("aux") and case.pop("per_token", False):
            case["loss"] = "microbatches"
    case["joint_norms"] = d.random() < 0.2
    return case


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--layouts", type=int, default=0)
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    asked = parser.parse_args()
    needed = "import sys, importlib.util as u; sys.exit(not all(map(u.find_spec, ('torch', 'safetensors', 'megatron'))))"
    if not VENV.exists() or subprocess.run([VENV, "-c", needed], capture_output=True).returncode:
        print("skipped: .venv-bench has no Megatron-Core; bench/torch_peer/requirements.txt lists what is needed")
        return 77
    cases = [dict(layout, seed=n + 1, names=[]) for n, layout in enumerate(RIGHT)]
    cases += [dict(drawn(n), seed=1000 + n, names=[]) for n in range(asked.layouts)]
    for n, (fault, layout, names) in enumerate(FAULTS):
        if fault != "balance_loss_not_scaled":  # twice so small a part of the router's gradient is less than bf16 tells
            cases.append(dict(layout, fault=fault, seed=100 + n, names=sorted(names), **BF16))
        cases.append(dict(layout, fault=fault, seed=200 + n, names=sorted(names)))
    cases = [case for case in cases if asked.only in case.get("fault", "right")][asked.first : asked.first + asked.cases][:: asked.every]
    with tempfile.TemporaryDirectory() as scratch:
        folder = asked.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for n, case in enumerate(cases):
            case["dump"] = str(folder / f"dump{n:03}")
        make(cases, folder, "megatron_trainer.py")
        results = []
        for case in cases:
            report = check(asked.heddle, case["dump"])
            top = report["faults"][0]["name"] if report["faults"] else "-"
            first = f"{report['first']['stage']} {report['first']['name']}" if report["first"] else "equal"
            named = bool(names_of(report) & set(case["names"]))
            results.append(dict(case=case, equal=report["equal"], named=named, first=first, top=top))
            print(f"{case.get('fault', 'right')}: {first}, worst {report['worst_ratio'] or 0:.3g}: {top}{'' if named or not case['names'] else ': NOT NAMED'}"
                  f" {({k: v for k, v in case.items() if k not in ('fault', 'names', 'dump', 'seed')})}", flush=True)
    wrong = [r for r in results if "fault" in r["case"]]
    alarms = sum(not r["equal"] for r in results) - sum(not r["equal"] for r in wrong)
    found, named = sum(not r["equal"] for r in wrong), sum(r["named"] for r in wrong)
    print(f"{len(results) - len(wrong)} right layouts, {alarms} false alarms; {len(wrong)} faults, {found} found, {named} named")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1))
    return int(alarms > 0 or found < len(wrong) or named < sum(bool(r["case"]["names"]) for r in wrong))


if __name__ == "__main__":
    sys.exit(main())
