#!/usr/bin/env python3
"""Runs what depends on the processor as on lesser ones: each feature of this one is masked in turn.

    masked_test.py BUILD_FOLDER [--whole]

Of the programs of BUILD_FOLDER the tests of products, attention and rows, and the models held to another implementation's
logits and gradients; --whole: all of their tests. Exits 77 on a processor that has nothing to mask.
"""
import json
import os
import pathlib
import subprocess
import sys

FEATURES = {"AMX bf16": "amx", "AVX-512 bf16": "avx512_bf16", "AVX-512": "avx512", "AVX2 and FMA": "avx2"}
PROGRAMS = {"kernels_test": "*Gemm*:*Attention*:*HostLinear*:*HostStream*:*HostRows*", "runtime_test": "*Fixture*"}
SKIPPED = 77


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env=dict(os.environ, GTEST_BRIEF="1", GTEST_OUTPUT="", **environment))


def present(folder, **environment):
    """Of FEATURES, those that the program says are there."""
    found = json.loads(run(folder / "heddle", "doctor", "--json", **environment).stdout)["machine"]
    return {f["what"] for f in found if f["what"] in FEATURES and f["found"] == "yes"}


def main():
    folder, whole = pathlib.Path(sys.argv[1]), "--whole" in sys.argv
    features = [name for name in FEATURES if name in present(folder)]
    failures = 0
    for name in features:
        mask = {"HEDDLE_CPU_WITHOUT": FEATURES[name]}
        if name in present(folder, **mask):
            failures += 1
            print(f"FAILED: {FEATURES[name]} is masked and still there")
        for program, names in PROGRAMS.items():
            done = run(folder / program, f"--gtest_filter={'*' if whole else names}", **mask)
            ran = [line for line in done.stdout.splitlines() if line.startswith("[==========]")]
            if done.returncode != 0 or not ran or " 0 tests" in ran[-1]:
                failures += 1
                print(f"FAILED: {program} without {FEATURES[name]}\n{done.stdout}{done.stderr}")
            else:
                print(f"{program} without {FEATURES[name]}: {ran[-1].removeprefix('[==========] ')}", flush=True)
    if not features:
        print("this processor has no feature that could be masked")
        return SKIPPED
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
