#!/usr/bin/env python3
"""Runs what depends on the processor as on lesser ones: each feature of this one is masked in turn.

    masked_test.py BUILD_FOLDER [--whole]

Every test program of BUILD_FOLDER that holds the host's kernels is found by the name of the variable that masks them.
With AVX-512 masked (AVX2, where there is no AVX-512) their tests run, with fewer draws, and of three programs that take
minutes every eighth test. With each other feature masked the tests of products, attention, rows, plans and memory run,
and the models that another implementation's logits and gradients are compared with. --whole: all tests of all these
programs run with each feature masked. What is skipped is named with its reason.
Exits 77 on a processor that has nothing to mask.
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

FEATURES = {"AMX bf16": "amx", "AVX-512 bf16": "avx512_bf16", "AVX-512": "avx512", "AVX2 and FMA": "avx2"}
VARIABLE = "HEDDLE_CPU_WITHOUT"
ALWAYS = {"kernels_test": "*Gemm*:*Attention*:*HostLinear*:*HostStream*:*HostRows*", "runtime_test": "*Fixture*",
          "planner_test": "MemoryBudget.*:HostScratch.*"}
# Those of a GPU's kernels: the host's stand beside them for comparison.
OF_A_GPU = ("gpu_", "emulated", "cuda_", "cudnn", "device_rules", "library_products", "windows")
EVERY = {"parity_test": 8, "runtime_test": 8, "train_test": 8}
FEWER = {"RC_PARAMS": "seed=1 max_success=20"}
SKIPPED = 77


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, "GTEST_BRIEF": "1", "GTEST_OUTPUT": "", "OMP_WAIT_POLICY": "passive",
                               **environment})


def present(folder, **environment):
    """Of FEATURES, those that the program says are there."""
    found = json.loads(run(folder / "heddle", "doctor", "--json", **environment).stdout)["machine"]
    return {f["what"] for f in found if f["what"] in FEATURES and f["found"] == "yes"}


def programs(folder):
    """Of the build's test programs, those that hold the host's kernels."""
    return [p.name for p in sorted(folder.glob("*_test"))
            if not p.name.startswith(OF_A_GPU) and VARIABLE.encode() in p.read_bytes()]


def counted(report):
    """How many tests ran, and how many were skipped, by reason."""
    ran, skipped = 0, collections.Counter()
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            if test.get("result") == "SKIPPED":
                told = " ".join(message["message"] for message in test.get("skipped", []))
                skipped[" ".join(told.split("\n", 1)[-1].split()) or "no reason"] += 1
            else:
                ran += test.get("status") == "RUN"
    return ran, skipped


def passes(folder, program, names, feature, **environment):
    """Runs tests of a program with a feature masked, and tells what came of it."""
    what, begun = f"{program} without {feature}", time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        told = pathlib.Path(work) / "told.json"
        done = run(folder / program, f"--gtest_filter={names}", f"--gtest_output=json:{told}",
                   **{VARIABLE: feature, **environment})
        ran, skipped = counted(json.loads(told.read_text())) if told.exists() else (0, {})
    if done.returncode != 0 or ran == 0:
        print(f"FAILED: {what}, {ran} tests ran\n{done.stdout}{done.stderr}", flush=True)
        return False
    print(f"{what}: {ran} tests, {time.monotonic() - begun:.0f} s", flush=True)
    for reason, count in sorted(skipped.items()):
        print(f"  {count} skipped: {reason}")
    return True


def main():
    folder, whole = pathlib.Path(sys.argv[1]), "--whole" in sys.argv
    features = [name for name in FEATURES if name in present(folder)]
    if not features:
        print("this processor has no feature that could be masked")
        return SKIPPED
    failures = 0
    most = "avx512" if "AVX-512" in features else "avx2"  # what many processors lack; where it is lacking, the next
    for name in features:
        feature = FEATURES[name]
        if name in present(folder, **{VARIABLE: feature}):
            failures += 1
            print(f"FAILED: {feature} is masked and still there")
        for program in programs(folder):
            if whole:
                failures += not passes(folder, program, "*", feature)
            elif feature == most:
                shards = {"GTEST_TOTAL_SHARDS": str(EVERY.get(program, 1)), "GTEST_SHARD_INDEX": "0"}
                failures += not passes(folder, program, "*", feature, **FEWER, **shards)
            elif program in ALWAYS:
                failures += not passes(folder, program, ALWAYS[program], feature, **FEWER)
    missing = sorted(ALWAYS.keys() - set(programs(folder)))
    if missing:
        failures += 1
        print(f"FAILED: {', '.join(missing)}: not built, or without the host's kernels")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
