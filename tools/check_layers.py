#!/usr/bin/env python3
"""Holds the floors and the file sizes.

A file of src/heddle/<floor> may include only its own floor and the floors it stands on, and CMake links what may be
included and no more; vendor headers appear only in the folders named for them; no file exceeds 800 lines; no two
types of one namespace have one name. Prints each breach as `file:line: what`, exits 1 on any.
"""
import pathlib
import re
import sys

# floor -> the floors it may include, beside itself
PURE = ["base", "ir", "ops", "cost", "model", "schedule", "passes", "plan", "simulate", "search"]
ALLOWED = {floor: set(PURE[:i]) for i, floor in enumerate(PURE)}
ALLOWED["cost"] = {"base", "ir"}
ALLOWED["model"] = {"base", "ir", "ops"}
ALLOWED["schedule"] = {"base", "ir", "ops"}
ALLOWED["device"] = {"base", "ir"}
ALLOWED["kernels"] = {"base", "ir", "ops", "device"}
ALLOWED["comm"] = {"base", "ir", "device"}
ALLOWED["backends"] = {"base", "ir", "ops", "cost", "plan", "device", "kernels", "comm"}
ALLOWED["runtime"] = set(PURE) - {"search"} | {"device", "kernels", "comm", "backends"}
ALLOWED["formats"] = {"base", "device"}
# Libraries beside the engine, each a folder of src that the floors include as any other.
BESIDE = {"jinja": {"base"}, "synthesis": {"base", "ir", "ops", "schedule"}}
ALLOWED |= BESIDE
ALLOWED["data"] = {"base", "formats", "jinja"}
ALLOWED["config"] = {"base", "ir", "ops", "cost", "model", "schedule", "passes", "plan", "device", "comm", "formats"}
ALLOWED["train"] = ALLOWED["runtime"] | {"runtime", "formats", "config", "observe"}
ALLOWED["observe"] = set(PURE)
ALLOWED["planner"] = ALLOWED["train"] | {"train", "observe", "search"}
ALLOWED["session"] = ALLOWED["planner"] | {"planner", "data"}
ALLOWED["job"] = ALLOWED["session"] | {"session"}
ALLOWED["cli"] = ALLOWED["job"] | {"job", "synthesis"}

# Folders of src/advisor, likewise: what each may include of the engine, and of the advisor. The engine includes none.
SHAPES = {"base", "cost", "model", "schedule", "plan", "search"}
ADVISOR = {
    "shell": ({"base"}, set()),
    "script": (SHAPES, {"shell"}),
    "points": (SHAPES, set()),
    "advice": (SHAPES | {"observe", "planner"}, {"script"}),
    "answer": (set(ALLOWED) - {"cli", "job", "session"}, {"script", "points", "advice"}),
    "claims": (set(ALLOWED) - {"cli", "job", "session"}, set()),
    "commands": (set(ALLOWED), {"script", "points", "advice", "answer", "claims"}),
}

# src/check, one folder beside the advisor: what it may include of the engine and of the advisor. Neither includes it.
CHECK = {f"heddle/{floor}" for floor in set(ALLOWED) - {"session", "job", "synthesis"}} | {"advisor/script", "advisor/words.h"}

# header prefix -> folders (below src/heddle) that may include it
VENDOR = {
    "oneapi/dnnl": ["kernels/host"], "dnnl": ["kernels/host"], "hwy/": ["kernels/host"],
    "mpi.h": ["comm/mpi"], "nccl.h": ["comm/nccl"],
    "cuda": ["device/cuda", "kernels/cuda", "comm/nccl"], "cublas": ["kernels/cuda"], "cutlass": ["kernels/cuda/cutlass"], "cudnn": ["kernels/cuda"],
    "hip/": ["device/hip"], "rccl": ["device/hip"],
    "omp.h": ["kernels/host", "device/host"], "immintrin.h": ["kernels/host"],
    "toml++": ["formats", "config", "cli", "advisor/answer"],
    "nlohmann": ["formats", "data", "config", "train", "observe", "planner", "session", "job", "cli",
                 "advisor/answer", "advisor/claims", "advisor/commands", "check"],
    "pcre2": ["data"], "utf8proc": ["data", "jinja"], "zstd": ["data"], "protozero": ["data", "observe", "cli"],
}
MOST_LINES = 800


def links(text):
    """The floors that the library of each floor links by name, and the program, from src/heddle/CMakeLists.txt."""
    found = {}
    for name, words in re.findall(r"heddle_floor\((\w+) FOLDERS ([^)]*)\)", text):
        floor = "kernels" if name == "kernels_host" else name  # one floor, two libraries
        found.setdefault(floor, set()).update(re.findall(r"\bheddle_(\w+)", words))
    for name, words in re.findall(r"target_link_libraries\(heddle_cli PUBLIC (\w[^)]*)()\)", text):
        found["cli"] = set(re.findall(r"heddle_(\w+)", name))
    for names in found.values():
        names -= {"options", "device_code", "hopper_code", "cutlass_code"}
        if "kernels_host" in names:
            names.remove("kernels_host")
            names.add("kernels")
    return found


def link_breaches(path):
    direct = links(path.read_text())
    for floor, allowed in ALLOWED.items():
        own = direct.get(floor, set()) - {floor}
        for other in sorted(own - allowed):
            yield f"{path}:1: {floor} links {other}, which it must not include"
        reached, left = set(), list(own)
        while left:
            other = left.pop()
            if other not in reached:
                reached.add(other)
                left += direct.get(other, ())
        for other in sorted(allowed - reached - {floor}):
            yield f"{path}:1: {floor} may include {other}, which it does not link"


def include_breaches(root, house, allowed):
    """Of the files below src/`house`: `allowed(floor)` are the floors that a floor may include, as "house/floor"."""
    for path in sorted((root / "src" / house).rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        relative = path.relative_to(root / "src" / house)
        floor = relative.parts[0]
        lines = path.read_text().splitlines()
        if len(lines) > MOST_LINES:
            yield f"{path}:{len(lines)}: more than {MOST_LINES} lines"
        for number, line in enumerate(lines, 1):
            found = re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)
            if not found:
                continue
            header = found.group(1)
            first = header.split("/")[0]
            other = f"heddle/{first}" if first in BESIDE else "/".join(header.split("/")[:2])
            if first == house == "check":  # one folder
                continue
            if first in ("heddle", "advisor", "check", *BESIDE):
                if other != f"{house}/{floor}" and other not in allowed(floor):
                    yield f"{path}:{number}: {house}/{floor} must not include {other}"
                continue
            for prefix, folders in VENDOR.items():
                folder = str(relative) if house == "heddle" else f"{house}/{relative}"
                if header.startswith(prefix) and not any(folder.startswith(f) for f in folders):
                    yield f"{path}:{number}: {header} belongs in {' or '.join(folders)}"


def same_names(root):
    """Two types of one name in one namespace: the linker keeps one instance of a template over both, and says nothing."""
    first = {}
    for path in sorted((root / "src").rglob("*")):
        if path.suffix not in (".h", ".cpp", ".cu", ".cuh"):
            continue
        spaces = []
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if opened := re.match(r"(?:inline )?namespace ([\w:]*)\s*\{", line):
                spaces.append(opened.group(1) or str(path))  # one without a name is the file's own
            elif re.match(r"\}\s*// namespace", line) and spaces:
                spaces.pop()
            elif named := re.match(r"(?:struct|class|enum class|enum|union) (?:alignas\([^)]*\) )?(\w+)(?: final)?\s*(?::[^:;].*)?\{", line):
                name = "::".join([*spaces, named.group(1)])
                if name in first:
                    yield f"{path}:{number}: {named.group(1)} is also a type of {first[name]}"
                first.setdefault(name, f"{path}:{number}")


def of_engine(floor):
    return {f"heddle/{other}" for other in ALLOWED.get(floor, ())}


def of_advisor(floor):
    engine, own = ADVISOR.get(floor, (ADVISOR["script"][0], set()))  # words.h stands beside the folders
    return {f"heddle/{other}" for other in engine} | {f"advisor/{other}" for other in own | {"words.h"}}


def breaches(root):
    yield from link_breaches(root / "src/heddle/CMakeLists.txt")
    for house in BESIDE:
        yield from include_breaches(root, house, lambda _: of_engine(house) | {f"heddle/{house}"})
    yield from include_breaches(root, "heddle", of_engine)
    yield from include_breaches(root, "advisor", of_advisor)
    yield from include_breaches(root, "check", lambda _: CHECK)
    yield from same_names(root)
    for folder in ("tests", "bench", "tools"):
        for path in (root / folder).rglob("*"):
            if path.suffix in (".h", ".cpp", ".py") and len(path.read_text().splitlines()) > MOST_LINES:
                yield f"{path}:1: more than {MOST_LINES} lines"


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    found = list(breaches(root))
    print("\n".join(found) if found else "layers and sizes hold")
    sys.exit(1 if found else 0)
