#!/usr/bin/env python3
"""extending_test.py [--build] [NAME…]: holds docs/extending.md to the patches of this folder.

Each patch is one small extension. Applied to a copy of the tree it must touch as many files as the table says and keep
the floors and the documentation right; with --build, the programs named are built in the copy and their tests run.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Extension(NamedTuple):
    made: int  # new units of src/heddle: a file, or a header and its .cpp
    changed: int  # files of src/heddle that were there
    lines: int  # added to those
    tests: int  # files of tests/, new or changed, with what makes them in tools/
    pages: int  # of docs/
    programs: dict  # test program -> filter
    onto: str = ""  # the patch that it is applied on top of


EXTENSIONS = {
    "op": Extension(0, 2, 33, 1, 1, {"kernels_test": "*square*"}),
    "kernel": Extension(0, 3, 20, 0, 0, {"emulated_test": "*square*"}, "op"),
    "pass": Extension(1, 3, 10, 1, 2, {"passes_test": "*", "plan_test": "*"}),
    "schedule": Extension(1, 1, 3, 1, 1, {"schedule_test": "*"}),
    "switch": Extension(0, 3, 5, 1, 2, {"passes_test": "*", "config_test": "*"}),
    "key": Extension(0, 3, 5, 0, 0, {"config_test": "*"}),
    "figure": Extension(0, 2, 7, 0, 1, {"observe_test": "Figures*"}),
    "family": Extension(1, 2, 2, 8, 1, {"config_test": "*", "runtime_test": "*FixtureParity*"}),
    "controller": Extension(1, 2, 5, 1, 2, {"train_test": "BestLoss*"}),
    "service": Extension(1, 2, 3, 1, 0, {"session_test": "*Heartbeat*"}),
    "backend": Extension(1, 4, 14, 1, 0, {"kernels_test": "*ompensated*:Registry*"}),
}


def run(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)
    return done.returncode == 0, done.stdout


def counted(copy, patch):
    _, numbers = run("git", "apply", "--numstat", patch, cwd=copy)
    made, changed, lines, tests, pages = set(), 0, 0, 0, 0
    for row in numbers.splitlines():
        added, _, name = row.split("\t")
        if name.startswith("src/heddle/") and not (copy / name).exists():
            made.add(name.rpartition(".")[0])
        elif name.startswith("src/heddle/"):
            changed += 1
            lines += int(added)
        elif name.startswith(("tests/", "tools/")):
            tests += 1
        elif name.startswith("docs/"):
            pages += 1
        else:
            raise SystemExit(f"{patch.name}: {name} is of no kind that is counted")
    return len(made), changed, lines, tests, pages


def built(copy, extension):
    """Nothing, or what went wrong."""
    build = copy / "build"
    # What was compiled elsewhere of the same text is found by its place in the tree.
    environment = {**os.environ, "CCACHE_BASEDIR": str(copy), "CCACHE_NOHASHDIR": "1"}
    good, output = run("cmake", "-S", copy, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                       "-DHEDDLE_CUDA=OFF", "-DHEDDLE_BENCH=OFF", env=environment)
    if good:
        good, output = run("ninja", "-C", build, *extension.programs, env=environment)
    for program, tests in extension.programs.items():
        if good:
            good, output = run(build / program, "--gtest_brief=1", f"--gtest_filter={tests}", cwd=copy)
            if good and "[  PASSED  ] 0 tests" in output:
                good, output = False, f"{program}: no test is called {tests}"
    return "" if good else output


def breach(copy, name, extension, build):
    """Nothing, or what is wrong with a patch. The copy is left as it was."""
    if extension.onto:
        under = ROOT / "tests/extending" / f"{extension.onto}.patch"
        good, output = run("git", "apply", under, cwd=copy)
        if not good:
            return f"{under.name} does not apply under it\n{output}"
        try:
            return breach(copy, name, extension._replace(onto=""), build)
        finally:
            run("git", "apply", "--reverse", under, cwd=copy)
    patch = ROOT / "tests/extending" / f"{name}.patch"
    good, output = run("git", "apply", "--check", patch, cwd=copy)
    if not good:
        return f"does not apply; make it anew as docs/extending.md says\n{output}"
    found, stated = counted(copy, patch), extension[:5]
    if found != stated:
        return f"made, changed, lines, tests, pages are {found}, stated are {stated}"
    run("git", "apply", patch, cwd=copy)
    try:
        for tool in ("check_layers.py", "check_docs.py"):
            good, output = run(sys.executable, copy / "tools" / tool)
            if not good:
                return output
        return built(copy, extension) if build else ""
    finally:
        run("git", "apply", "--reverse", patch, cwd=copy)


def main():
    words = sys.argv[1:]
    build = "--build" in words
    names = [word for word in words if word != "--build"] or list(EXTENSIONS)
    stored = {path.stem for path in (ROOT / "tests/extending").glob("*.patch")}
    if stored != set(EXTENSIONS):
        sys.exit(f"patches {sorted(stored)}, but the table has {sorted(EXTENSIONS)}")
    good, files = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    if not good:
        print("not a working copy of git: what belongs to the tree is not known")
        sys.exit(77)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder).resolve() / "heddle"
        for file in filter(None, files.split("\0")):
            if (ROOT / file).is_file():
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, copy / file)
        for name in names:
            wrong = breach(copy, name, EXTENSIONS[name], build)
            print(f"{name}: {wrong[-4000:] or ('builds and passes' if build else 'applies')}", flush=True)
            failed |= wrong != ""
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
