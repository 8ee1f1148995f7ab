#!/usr/bin/env python3
"""Holds what the compiler reads to a budget, by counting includes: seconds differ from machine to machine, counts don't.

    check_includes.py [--list]

Counts of src/heddle, followed through headers: how many headers of the project a source file reads on average, how many
source files each header reaches, and how many source files read each large library. Prints each count beside its
budget and exits 1 where one is above. --list: the headers that cost most, as (source files reached) x (lines).
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent / "src"
MEAN_HEADERS = 28  # of the project, that a source file reads
# header -> the most source files that may read it
REACH = {"nlohmann/json.hpp": 178, "toml++/toml.h": 6, "regex": 0, "iostream": 2, "hwy/highway.h": 40, "mpi.h": 12,
         "heddle/plan/choices.h": 240, "heddle/passes/update/update.h": 8, "heddle/passes/adapters.h": 8,
         "heddle/runtime/executor.h": 110, "heddle/train/trainer.h": 95, "heddle/session/training_run.h": 12,
         "heddle/search/search.h": 16}
INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]', re.MULTILINE)


def read_tree():
    """file -> (headers it includes, lines)"""
    tree = {}
    for path in ROOT.rglob("*"):
        if path.suffix in (".h", ".cpp", ".cu"):
            text = path.read_text(errors="replace")
            tree[str(path.relative_to(ROOT))] = (INCLUDE.findall(text), text.count("\n"))
    return tree


def reached(tree, file):
    """All headers, of the project and others, that reading `file` reads."""
    seen, left = set(), [file]
    while left:
        for header in tree.get(left.pop(), ([], 0))[0]:
            if header not in seen:
                seen.add(header)
                left.append(header)
    return seen


def main():
    tree = read_tree()
    sources = [file for file in tree if not file.endswith(".h")]
    readers = collections.Counter()
    headers = 0
    for source in sources:
        found = reached(tree, source)
        readers.update(found)
        headers += sum(header in tree for header in found)
    if "--list" in sys.argv:
        costs = sorted(((n * tree[h][1], n, h) for h, n in readers.items() if h in tree), reverse=True)
        for cost, n, header in costs[:40]:
            print(f"{cost:9} lines in {n:4} files  {header}")
    rows = [("headers of the project that a source file reads", headers / len(sources), MEAN_HEADERS)]
    rows += [(f"source files that read {header}", readers[header], most) for header, most in REACH.items()]
    failed = [row for row in rows if row[1] > row[2]]
    for what, found, most in rows:
        print(f"{'over' if found > most else '    '} {found:7.1f} of {most:4}  {what}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
