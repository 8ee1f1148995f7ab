#!/usr/bin/env python3
"""What the compiler made of each CUDA kernel, held to what was meant: registers, spills, tensor instructions.

    tools/check_kernels.py --objdump .vendor/…/cuobjdump [--table] OBJECT…

Reads the machine code of every capability in the object files. A kernel that keeps anything in local memory, takes
more registers than EXPECTED allows its blocks, or has lost its tensor instructions is named, and the exit status is 1.
--table prints all of them.
"""
import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys

# A kernel's name (all that stands before its "<" or "(") to: bytes of stack that it may have; registers at most, for
# bf16 and for f32, so that as many blocks as meant share a multiprocessor; for bf16 on capability 8.0 where these are
# more; its tensor instruction for bf16.
Expected = collections.namedtuple("Expected", "stack bf16 f32 older tensor", defaults=(0, 255, 255, 0, None))
EXPECTED = {
    # Three blocks of 128 threads, two on 8.0; heads of four slices alone spill, eleven numbers.
    "attention": Expected(stack=32, bf16=168, older=184, tensor="HMMA"),
    "attention_dkv": Expected(stack=88, tensor="HMMA"),     # f32 alone spills
    "attention_dq": Expected(tensor="HMMA"),
    "product": Expected(bf16=128, f32=128, tensor="HMMA"),  # two blocks of 256 threads
    "product_wgmma": Expected(bf16=168, f32=168, tensor="HGMMA"),
    "cutlass": Expected(bf16=168, f32=168, tensor="HGMMA"),
    "product_wgmma_fp8": Expected(bf16=224, tensor="QGMMA"),  # one block of 288 threads
    # More than eight leaves of a token's sum lie in an array that is indexed.
    "combine_sums<64>": Expected(stack=1088), "sum_node<64>": Expected(stack=1088),
    "sum_tokens<64>": Expected(stack=1088), "tree_sum<64>": Expected(stack=1088),
    "rms_norm_dgrad": Expected(stack=16),  # ten values a row of bf16 on 9.0, beside the gain's offset
    "chosen_attention_dkv": Expected(stack=32),
    "conv_cached": Expected(stack=128), "conv_sums": Expected(stack=32),  # the rows before one that a channel reaches, its taps
    "take_before": Expected(stack=80), "sum_behind": Expected(stack=80),  # the ranks of a piece's sequence
    "read_streams_dgrad": Expected(stack=24),  # dots of eight streams, beside what one thread makes of a row
    "recur_forward": Expected(stack=8), "conv_backward": Expected(stack=8), "compress_rows": Expected(stack=8),
    "read_gated": Expected(stack=8), "read_gated_dgrad": Expected(stack=8),
    "recur_backward": Expected(stack=704),  # a row of the state and of its gradient, by channel
    "route": Expected(stack=144), "balance_dgrad": Expected(stack=8), "mixer_gate": Expected(stack=8),
}
USAGE = re.compile(r"Function (.+?):\s+REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


def short(name):
    """attention<Bf16> of heddle::kernels::cuda::attention<heddle::kernels::cuda::Bf16>(…)."""
    name = name.removeprefix("void ")
    if "cutlass" in name.split("<")[0]:
        return "cutlass"  # its own one; the types that make it are longer than what c++filt reads
    depth, end = 0, len(name)
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0 and not name.startswith("(anonymous", i):
            end = i
            break
    return re.sub(r"(\w+|\(anonymous namespace\))::", "", name[:end])


def readable(names):
    told = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    return dict(zip(names, told.splitlines(), strict=True))


def read(objdump, path):
    """{(kernel, capability): (registers, stack, shared, local, count of each tensor instruction)}"""
    environment = {**os.environ, "PATH": f"{pathlib.Path(objdump).parent}:{os.environ['PATH']}"}

    def run(what):
        return subprocess.run([objdump, what, path], capture_output=True, text=True, check=True, env=environment).stdout

    found, capability = {}, None
    for line in re.sub(r":\n\s+REG", ": REG", run("-res-usage")).splitlines():
        if match := re.match(r"arch = (sm_\w+)", line):
            capability = match.group(1)
        elif match := USAGE.match(line.strip()):
            found[match.group(1), capability] = [*map(int, match.groups()[1:]), collections.Counter()]
    kernel = None
    for line in run("-sass").splitlines():
        if match := re.match(r"\s*arch = (sm_\w+)", line):
            capability = match.group(1)
        elif match := re.match(r"\s*Function : (\S+)", line):
            kernel = match.group(1)
        elif match := re.search(r"\b(HMMA|HGMMA|QGMMA|LDL|STL)\b", line):
            found[kernel, capability][-1][match.group(1)] += 1
    names = readable(sorted({name for name, _ in found}))
    return {(short(names[name]), capability): row for (name, capability), row in found.items()}


def keys(name):
    """Its name, and that with the numbers among its parameters, without types."""
    return re.split(r"<", name)[0], re.sub(r"<\w+, ", "<", name)


def expected_of(name):
    return next((EXPECTED[key] for key in keys(name) if key in EXPECTED), Expected())


def faults(name, capability, row):
    registers, stack, _, local, code = row
    expected = expected_of(name)
    bf16 = "float" not in name
    most = expected.f32 if not bf16 else max(expected.bf16, expected.older if capability == "sm_80" else 0)
    if local:
        yield f"{local} bytes of local memory"
    if stack > expected.stack:
        yield f"{stack} bytes of stack, at most {expected.stack}"
    if registers > most:
        yield f"{registers} registers, at most {most}"
    if expected.stack == 0 and (code["LDL"] or code["STL"]):
        yield f"spills: {code['STL']} stores and {code['LDL']} loads"
    if expected.tensor and bf16 and not code[expected.tensor]:
        yield f"no {expected.tensor}"


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--objdump", required=True)
    parse.add_argument("--table", action="store_true")
    parse.add_argument("objects", nargs="+")
    arguments = parse.parse_args()
    if not arguments.objdump or arguments.objdump.endswith("-NOTFOUND"):
        print("skipped: cuobjdump is not there (tools/vendor.txt names its package)")
        return 77
    kernels, wrong = {}, 0
    for path in arguments.objects:
        kernels.update(read(arguments.objdump, path))
    seen = {key for name, _ in kernels for key in keys(name)}
    for name in EXPECTED.keys() - seen:
        hopper = any(capability == "sm_90a" for _, capability in kernels)
        optional = {"cutlass"} if hopper else {"cutlass", "product_wgmma", "product_wgmma_fp8"}
        if name not in optional:  # cutlass: where its headers were found
            print(f"check_kernels: no kernel is called {name}")
            wrong += 1
    for (name, capability), row in sorted(kernels.items()):
        registers, stack, shared, _, code = row
        if arguments.table:
            told = ", ".join(f"{count} {word}" for word, count in sorted(code.items()))
            print(f"{name:60} {capability:7} {registers:3} registers {stack:5} stack {shared:6} shared  {told}")
        for fault in faults(name, capability, row):
            print(f"check_kernels: {name}, {capability}: {fault}")
            wrong += 1
    print(f"{len(kernels)} kernels, {wrong} not as meant")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
