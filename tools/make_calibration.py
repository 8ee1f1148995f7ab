#!/usr/bin/env python3
"""Makes the calibrations that are part of the program, of the measured rows in src/advisor/points/measured.csv, and
the tables of errors in docs/predict.md.

    tools/make_calibration.py build/heddle            writes calibration.csv and memory_calibration.csv beside them
    tools/make_calibration.py build/heddle --check    fails where the written ones would differ

The program then needs a build: the calibrations are compiled into it.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
POINTS = ROOT / "src/advisor/points"
PAGE = ROOT / "docs/predict.md"
BY = ("rows", "models", "sources", "devices")
GROUPS = ("all", "printed", "not printed", "NVIDIA, dense", "NVIDIA, experts", "Ascend, dense", "Ascend, experts", "AMD, dense", "AMD, experts", "TPU",
          "Gaudi", "not named")
BESIDE = ("median utilization", "nearest row", "ridge")


def both(errors):
    return f"{100 * errors['median']:.1f}, {100 * errors['p90']:.1f}"


def line(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def row_of(group):
    return line(group["held_out"], group["group"], group["rows"], both(group), f"{100 * group['covered']:.0f}",
                *(both(group["beside"][name]) for name in BESIDE))


def page_of(summary, page):
    """The page with the tables and counts of this summary."""
    groups = {(g["held_out"], g["group"]): g for g in summary["groups"]}
    time = [line("held out", "group", "rows", "Heddle", "in interval", "median MFU", "nearest row", "ridge"),
            "|---|---|---|---|---|---|---|---|",
            *(row_of(groups[by, name]) for by in BY for name in GROUPS[:1 if by == "devices" else None])]
    memory = [line("peak memory, held out", "group", "rows", "Heddle", "in interval"), "|---|---|---|---|---|"]
    for by in BY[:3]:
        for name, key in (("all", "memory_held_out"), ("printed", "memory_printed_held_out")):
            errors = summary[f"{key}_{by}"]
            memory.append(line(by, name, errors["rows"], both(errors), f"{100 * errors['covered']:.0f}"))
    for table in (time, memory):
        page = re.sub(re.escape(table[0]) + r"\n(\|.*\n)*", lambda _: "\n".join(table) + "\n", page)
    rows, measured = summary["rows"], summary["held_out_rows"]["rows"]
    page = re.sub(r"\d+ measured rows of \d+", f"{measured} measured rows of {rows}", page)
    page = re.sub(r"\d+ of \d+ rows are predicted", f"{summary['predicted']} of {rows} rows are predicted", page)
    return re.sub(r"(BLOOM layout sweep is) [\d.]+(, held out)",
                  rf"\1 {summary['layout_sweep_rank_correlation']:.3f}\2", page)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heddle")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    names = {"--calibrate": "calibration.csv", "--calibrate-memory": "memory_calibration.csv"}
    with tempfile.TemporaryDirectory() as folder:
        made = {POINTS / name: pathlib.Path(folder) / name for name in names.values()}
        command = [options.heddle, "predict", "--points", str(POINTS / "measured.csv"), "--json"]
        for flag, name in names.items():
            command += [flag, str(made[POINTS / name])]
        summary = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        texts = {path: file.read_text() for path, file in made.items()}
        texts[PAGE] = page_of(summary, PAGE.read_text())
        for path, text in texts.items():
            if not options.check:
                path.write_text(text)
            elif text != path.read_text():
                sys.exit(f"{path.name} is not what {POINTS / 'measured.csv'} gives: run tools/make_calibration.py")


if __name__ == "__main__":
    main()
