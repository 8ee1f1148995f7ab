#!/usr/bin/env python3
"""Learns what a device can be asked, in stages, on a bare machine with a driver and PyTorch: no network, no root.

    python3 session/session.py [--visit 1|2|3] [--stages tests,ops] [--minutes 9] [--out FOLDER] [--dry-run]

It runs from the unpacked bundle that `./dev gpu_session` made. After each stage FOLDER/NN_NAME.json says what came of
it: done, failed or skipped, with the reason, and how long it took; FOLDER/summary.json has all, FOLDER/summary.md the
predictions beside what was measured. A stage that fails or runs out of time leaves the others alone. The exit status
is 1 where a stage failed.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import stages  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent


@dataclass
class Told:
    status: int
    out: str
    errors: str

    def lines(self):
        return self.out.strip().splitlines()

    def end(self):
        last = (self.errors.strip() or self.out.strip()).splitlines()[-1:] or ["without a word"]
        return f"status {self.status}: {last[0][:300]}"


class Session:
    """Where a stage finds the programs, writes its files, and runs commands within what is left of its time."""

    def __init__(self, root, out, dry):
        self.root, self.out, self.dry, self.until = root, out, dry, 0.0
        libraries = [str(root / "lib"), *self.libraries_of_torch(), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
                            "PYTHONPATH": str(root / "python"),
                            # Open MPI looks where it was installed unless it is told.
                            "OPAL_PREFIX": str(root / "mpi"), "OPAL_BINDIR": str(root / "mpi/bin"),
                            "OPAL_LIBDIR": str(root / "mpi/lib"), "OPAL_PKGLIBDIR": str(root / "mpi/lib/openmpi3"),
                            "OPAL_PKGDATADIR": str(root / "mpi/share/openmpi"),
                            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    @staticmethod
    def libraries_of_torch():
        """The folders of the libraries of NVIDIA that came with PyTorch: they are not on the loader's path."""
        told = subprocess.run([sys.executable, "-c", "import importlib.util as u; s = u.find_spec('nvidia'); "
                               "print('\\n'.join(s.submodule_search_locations if s else []))"],
                              capture_output=True, text=True)
        return sorted(str(folder) for place in told.stdout.split() for folder in pathlib.Path(place).glob("*/lib"))

    def programs(self):
        return sorted((self.root / "bin").iterdir())

    def program(self, name):
        path = self.root / "bin" / name
        if not path.exists():
            raise stages.Skip(f"the bundle has no {name}")
        return str(path)

    def mpirun(self, ranks):
        mpirun = self.root / "mpi/bin/mpirun"
        if not mpirun.exists():
            raise stages.Skip("the bundle has no mpirun")
        return [str(mpirun), "-np", str(ranks), "--oversubscribe", "--bind-to", "none"]

    def keep(self, name, text):
        (self.out / "logs").mkdir(exist_ok=True)
        (self.out / "logs" / name).write_text(text)

    def run(self, command, may_fail=False, **environment):
        left = self.until - time.monotonic()
        if left <= 0:
            raise stages.Failed("no time is left to the stage")
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace", cwd=self.root,
                                   env={**self.environment, **environment}, start_new_session=True)
        try:
            out, errors = process.communicate(timeout=left)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise stages.Failed(f"{pathlib.Path(command[0]).name} took longer than the stage has") from None
        told = Told(process.returncode, out, errors)
        if told.status == 77 and not may_fail:
            raise stages.Skip(told.end())
        if told.status != 0 and not may_fail:
            raise stages.Failed(f"{pathlib.Path(command[0]).name}: {told.end()}")
        return told


def measured(results, key):
    stage, name = key.split(".", 1)
    found = results.get(stage, {}).get("result") or {}
    value = found.get(name)
    return value if isinstance(value, (int, float)) else None


def summary(results, predictions):
    lines = ["# A session on a device", "", "| stage | came to | seconds | |", "|---|---|---:|---|"]
    for name, told in results.items():
        lines.append(f"| {name} | {told['status']} | {told['seconds']:.1f} | {told.get('reason', '')} |")
    lines += ["", "| prediction | from | to | measured | |", "|---|---:|---:|---:|---|"]
    for row in predictions:
        value = measured(results, row["key"])
        verdict = "" if value is None else "below" if value < row["low"] else "above" if value > row["high"] else "as predicted"
        lines.append(f"| {row['what']} | {row['low']:.3g} | {row['high']:.3g} | "
                     f"{'' if value is None else f'{value:.3g}'} | {verdict} |")
    return "\n".join(lines) + "\n"


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, *_ in stages.STAGES]
    parse.add_argument("--visit", type=int, choices=(1, 2, 3))
    parse.add_argument("--stages", help=f"apart by commas, of {', '.join(names)}")
    parse.add_argument("--minutes", type=float, default=9.0, help="for all stages; those that find none left are skipped")
    parse.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_session_results"))
    parse.add_argument("--dry-run", action="store_true", help="on this machine's processor, as small as can be")
    arguments = parse.parse_args()
    wanted = arguments.stages.split(",") if arguments.stages else names
    for name in wanted:
        if name not in names:
            parse.error(f"--stages: '{name}' is none of {', '.join(names)}")
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    session = Session(ROOT, out, arguments.dry_run)
    predictions = json.loads((ROOT / "session/predictions.json").read_text())
    results, end = {}, time.monotonic() + 60 * arguments.minutes
    for number, (name, visit, seconds, work) in enumerate(stages.STAGES):
        if name not in wanted or (arguments.visit and visit != arguments.visit):
            continue
        start = time.monotonic()
        session.until = min(start + seconds, end)
        told = {"stage": name, "visit": visit, "status": "done"}
        try:
            if session.until <= start:
                raise stages.Skip("no time is left to the session")
            told["result"] = work(session)
        except stages.Skip as reason:
            told.update(status="skipped", reason=str(reason))
        except stages.Failed as reason:
            told.update(status="failed", reason=reason.args[0])
            if len(reason.args) > 1:
                told["result"] = reason.args[1]
        except Exception as error:      # a stage that reads what it does not know leaves the others alone
            told.update(status="failed", reason=f"{type(error).__name__}: {error}"[:300])
        told["seconds"] = round(time.monotonic() - start, 2)
        results[name] = told
        (out / f"{number:02}_{name}.json").write_text(json.dumps(told, indent=1) + "\n")
        (out / "summary.json").write_text(json.dumps(results, indent=1) + "\n")
        (out / "summary.md").write_text(summary(results, predictions))
        print(f"{name:12} {told['status']:8} {told['seconds']:7.1f} s  {told.get('reason', '')}", flush=True)
    return 1 if any(told["status"] == "failed" for told in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
