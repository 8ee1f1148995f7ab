#!/usr/bin/env python3
"""Counts what a program's text would not say of its inputs: ops that read numbers of the host which are no operand of
theirs, and fields of features in what the device is called with. Prints both counts with the places, exits 1 unless
both are zero.

An op reads hidden numbers if its definition has the trait `loads` and it is not `load`, or if a kernel other than
that of `load` mentions KernelCall::input. The host's numbers have names in the text only (device/inputs.h), so that no
file of src/heddle/device names one."""
import pathlib
import re
import sys

SOURCES = pathlib.Path(__file__).resolve().parent.parent / "src" / "heddle"
# The kernels of `load`, and whoever gives them their bytes.
MAY_READ = {"kernels/reference/load.cpp", "kernels/cuda/load.cpp", "runtime/executor.cpp"}
READS = re.compile(r"\bcall\.input\b|\bRankInputs\b|\bInputs&")
HOLDS_INPUTS = ("device/inputs.h", "device/inputs.cpp")
INPUTS = re.compile(r'\.name = (?:fmt::format\()?"([a-z_]+)[^;]*?\.owner =')


def code_of(path):
    return re.sub(r"//[^\n]*", "", path.read_text())


def hidden_operands():
    found = []
    for path in sorted((SOURCES / "ops").rglob("*.cpp")):
        for kind in re.findall(r'\.kind = "(\w+)"(?:(?!\.kind = ).)*?\.loads = true', code_of(path), re.S):
            if kind != "load":
                found.append(f"{path.relative_to(SOURCES)}: {kind} has the trait loads")
    for folder in ("kernels", "comm", "backends"):
        for path in sorted((SOURCES / folder).rglob("*")):
            name = str(path.relative_to(SOURCES))
            if path.suffix in (".cpp", ".h", ".cu") and name not in MAY_READ and READS.search(code_of(path)):
                found.append(f"{name}: reads inputs")
    return found


def fields_of_features():
    names = set()
    for floor in ("model", "passes", "plan"):
        for path in (SOURCES / floor).rglob("*.cpp"):
            names.update(INPUTS.findall(code_of(path)))
    assert {"scales", "hyper", "limits", "homes", "moves", "expert_rows", "drawn_key"} <= names, names
    text = "\n".join(code_of(SOURCES / name) for name in HOLDS_INPUTS)
    text += "\n" + code_of(SOURCES / "device/kernel_call.h")
    return sorted(name for name in names if re.search(rf"\b{name}_?\b", text))


def main():
    hidden, fields = hidden_operands(), fields_of_features()
    print(f"{len(hidden)} ops read what is no operand of theirs")
    print("\n".join("  " + place for place in hidden), end="\n" if hidden else "")
    print(f"{len(fields)} fields of features in what the device is given")
    print("\n".join("  " + name for name in fields), end="\n" if fields else "")
    return 1 if hidden or fields else 0


if __name__ == "__main__":
    sys.exit(main())
