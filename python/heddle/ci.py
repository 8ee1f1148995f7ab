"""Checks launch scripts of a change: does each job still fit, and is it slower than before?

    python -m heddle.ci scripts/train_qwen3.sh --cluster H100 --base origin/main --slower 2

The exit status is 1 where a job does not fit or is slower than allowed, 2 for bad input. The script of before is taken
from git, from the commit that --base names; without it only the fit is checked. Scripts are read and never run.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from typing import Optional, Sequence

import heddle

from ._verdicts import misfit, slowdown

_columns = ("script", "fits", "memory of a device", "tokens/s", "against before")


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m heddle.ci", description=__doc__.split("\n")[0] if __doc__ else ""
    )
    parser.add_argument("script", nargs="+", help="launch scripts of Megatron-LM or MindSpeed, or configurations")
    parser.add_argument("--cluster", help="accelerator such as H100, or a TOML file of a cluster")
    parser.add_argument("--devices", type=int, help="accelerators; otherwise as the script says")
    parser.add_argument("--base", help="commit whose scripts to compare with, such as origin/main")
    parser.add_argument("--slower", type=float, default=2, help="per cent that a job may be slower; 2")
    parser.add_argument(
        "--summary", default=os.environ.get("GITHUB_STEP_SUMMARY"), help="file for a table in Markdown"
    )
    options = parser.parse_args(arguments)
    rows, failures = [], []
    try:
        for script in options.script:
            row, wrong = check(script, options)
            rows.append(row)
            failures += wrong
    except heddle.InputError as error:
        print(f"heddle: {error}", file=sys.stderr)
        return 2
    if options.summary:
        with open(options.summary, "a", encoding="utf-8") as file:
            file.write(table(rows))
    print(table(rows), end="")
    for failure in failures:
        print(f"heddle: {failure}", file=sys.stderr)
    return 1 if failures else 0


def check(script: str, options: argparse.Namespace) -> tuple[tuple[str, ...], list[str]]:
    """A row of the table, and what is wrong with a script's job."""
    with tempfile.TemporaryDirectory(prefix="heddle-ci-") as folder:
        before = script_at(options.base, script, folder) if options.base else None
        plan = heddle.plan(script, options.cluster, options.devices, beside=before)
    failures = []
    if not plan.fits:
        failures.append(misfit(plan))
    elif (text := slowdown(plan, options.slower)) is not None:
        failures.append(text.replace(before or "", f"{script} at {options.base}"))
    memory = f"{plan.peak_bytes / 2**30:.1f} of {plan.memory_bytes / 2**30:.1f} GiB" if plan.found else ""
    speed = f"{plan.tokens_per_s.value:,.0f}" if plan.tokens_per_s else ""
    ratio = "new" if options.base and not plan.beside else ""
    if plan.beside and plan.beside.speed_ratio is not None:
        ratio = f"{100 * (plan.beside.speed_ratio - 1):+.1f} %"
    return (script, "yes" if plan.fits else "no", memory, speed, ratio), failures


def script_at(base: str, script: str, folder: str) -> Optional[str]:
    """The path of a commit's script below `folder`; None where the commit has no such file."""
    whole = os.path.abspath(script)
    place = ["git", "-C", os.path.dirname(whole)]
    top = subprocess.run([*place, "rev-parse", "--show-toplevel"], capture_output=True, text=True)
    if top.returncode != 0:
        raise heddle.InputError(f"{script}: --base needs a git repository: {top.stderr.strip()}")
    if subprocess.run(
        [*place, "rev-parse", "--verify", "--quiet", f"{base}^{{commit}}"], capture_output=True
    ).returncode:
        raise heddle.InputError(f"--base {base}: no such commit; in a shallow clone fetch it first")
    name = os.path.relpath(os.path.realpath(whole), os.path.realpath(top.stdout.strip()))
    # With its folder: a script may read files that lie beside it.
    archive = ["git", "-C", top.stdout.strip(), "archive", base, "--", os.path.dirname(name) or "."]
    shown = subprocess.run(archive, capture_output=True)
    if shown.returncode != 0:
        return None
    with tarfile.open(fileobj=io.BytesIO(shown.stdout)) as files:
        files.extractall(folder, filter="data")
    path = os.path.join(folder, name)
    return path if os.path.isfile(path) else None


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in Markdown."""
    lines = ["| " + " | ".join(cells) + " |\n" for cells in (_columns, ("---",) * len(_columns), *rows)]
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
