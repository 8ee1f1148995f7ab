#!/usr/bin/env python3
"""Makes the calibrations that are part of the program, of the measured rows in src/advisor/points/measured.csv.

    tools/make_calibration.py build/heddle            writes calibration.csv and memory_calibration.csv beside them
    tools/make_calibration.py build/heddle --check    fails where the written ones would differ

The program then needs a build: the texts are compiled into it.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

POINTS = pathlib.Path(__file__).resolve().parent.parent / "src/advisor/points"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heddle")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    names = {"--calibrate": "calibration.csv", "--calibrate-memory": "memory_calibration.csv"}
    with tempfile.TemporaryDirectory() as folder:
        made = {name: pathlib.Path(folder) / name for name in names.values()}
        command = [options.heddle, "predict", "--points", str(POINTS / "measured.csv"), "--json"]
        for flag, name in names.items():
            command += [flag, str(made[name])]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name, path in made.items():
            text = path.read_text()
            if not options.check:
                (POINTS / name).write_text(text)
            elif text != (POINTS / name).read_text():
                sys.exit(f"{name} is not what {POINTS / 'measured.csv'} gives: run tools/make_calibration.py")


if __name__ == "__main__":
    main()
