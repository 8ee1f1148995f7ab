#!/usr/bin/env python3
"""Runs every command of the documentation as it is printed there, in a folder that looks like a working copy.

    commands_test.py PATH_OF_HEDDLE [--whole] [--page NAME]

The demo is as deep as printed, but narrow, and its text is the documentation itself, so that all pages take about a
minute. What a block says it needs is not run; `--whole` runs what only needs time. A command that stands on several
pages runs once.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

from page_commands import NEEDS, read_all

ROOT = pathlib.Path(__file__).resolve().parents[2]
COMMAND_SECONDS = 600    # after which a command hangs, however many others run
NARROW = {"vocab_size": 512, "hidden_size": 32, "intermediate_size": 64, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
          "qk_rope_head_dim": 4, "v_head_dim": 8, "moe_intermediate_size": 16, "sequence_length": 64, "minutes": 0.02,
          "source": '"text"'}


def narrowed(text):
    for key, value in NARROW.items():
        text, times = re.subn(rf"^{key} = [^#\n]*", f"{key} = {value} ", text, flags=re.M)
        if times != 1:
            sys.exit(f"examples/demo.toml has {times} lines of {key}: it must be made narrow elsewhere")
    return text


def lay_out(folder, heddle):
    """A working copy as its reader has it after ./dev build: links to what is only read, copies of what is narrow."""
    (folder / "build").mkdir()
    (folder / "build/heddle").symlink_to(heddle)
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "examples/demo.toml").write_text(narrowed((ROOT / "examples/demo.toml").read_text()))
    for name in ("tests", "docs", "tools", "src"):
        (folder / name).symlink_to(ROOT / name)
    text = "\n\n".join(path.read_text() for path in sorted((ROOT / "docs").rglob("*.md")))
    (folder / "text").mkdir()
    (folder / "text/pages.txt").write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin/heddle").symlink_to(heddle)


def environment(folder):
    return os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "XDG_CACHE_HOME": f"{folder}/cache", "HOME": str(folder),
                         "NO_COLOR": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--page", default="")
    given = parser.parse_args()
    commands, breaches = read_all(ROOT)
    print(*breaches, sep="\n", end="\n" if breaches else "")
    skipped = set(NEEDS) - ({"long"} if given.whole or os.environ.get("HEDDLE_DOCS_WHOLE") else set())
    if shutil.which("mpirun") is None:
        commands = [c for c in commands if not c.text.startswith("mpirun")]
    run = {}
    for command in commands:
        if not command.needs & skipped and given.page in command.page:
            run.setdefault(command.text, command)
    failed, slowest, begin = len(breaches), [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="heddle-docs-") as name:
        folder = pathlib.Path(name)
        lay_out(folder, given.heddle.resolve())
        env = environment(folder)
        # What a reader has measured once.
        subprocess.run(["heddle", "profile", "--seconds", "2"], cwd=folder, env=env, check=True, capture_output=True)
        for command in run.values():
            start = time.monotonic()
            try:
                done = subprocess.run(["bash", "-eo", "pipefail", "-c", command.text], cwd=folder, env=env, text=True,
                                      capture_output=True, timeout=COMMAND_SECONDS, stdin=subprocess.DEVNULL)
                status, said = done.returncode, (done.stderr or done.stdout).strip().splitlines()[-3:]
            except subprocess.TimeoutExpired:
                status, said = "none", [f"still running after {COMMAND_SECONDS} s"]
            slowest.append((time.monotonic() - start, command))
            if status != command.status:
                failed += 1
                print(f"{command.place}: {command.text}\n  status {status}: " + "\n  ".join(said))
    slowest.sort(key=lambda each: -each[0])
    print(f"{len(run)} commands of {len(commands)} in {time.monotonic() - begin:.0f} s, {failed} failed; the slowest: "
          + "; ".join(f"{c.place} {s:.1f} s" for s, c in slowest[:4]))
    if not given.page and len(run) < 40:
        print("so few commands were found: has the form of the pages changed?")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
