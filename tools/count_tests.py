#!/usr/bin/env python3
"""Counts what ./dev test ran and prints one last plain line: "N passed, N failed".

    python3 tools/count_tests.py FOLDER…

Each FOLDER holds ctest.xml (ctest --output-junit) and, for each GoogleTest program NAME_test, NAME_test.json. A program
is counted by its cases; a check without such a file, or a program that ended badly without a failed case, counts as one.
Exits 1 when anything failed or nothing ran.
"""
import json
import pathlib
import sys
import xml.etree.ElementTree as xml


def count(folder):
    passed, failures, skipped = 0, [], 0
    report = folder / "ctest.xml"
    if not report.exists():
        return 0, [f"{folder}: the tests did not run"], 0
    for case in xml.parse(report).getroot().iter("testcase"):
        name, good = case.get("name"), case.get("status") == "run"
        cases = folder / f"{name}_test.json"
        skip = case.find("skipped")
        if skip is not None and "SKIP_RETURN_CODE" in skip.get("message", ""):
            skipped += 1
            print(f"skipped {name}: {' '.join((case.findtext('system-out') or '').split())}")
            continue
        if not cases.exists():
            passed += good
            failures += [] if good else [name]
            continue
        broken = []
        for suite in json.loads(cases.read_text())["testsuites"]:
            for test in suite["testsuite"]:
                if test.get("failures"):
                    broken.append(f"{suite['name']}.{test['name']}")
                elif test.get("result") == "SKIPPED":
                    skipped += 1
                elif test.get("status") == "RUN":
                    passed += 1
        failures += broken if broken or good else [f"{name}_test (ended badly)"]
    return passed, failures, skipped


def main():
    results = [count(pathlib.Path(folder)) for folder in sys.argv[1:]]
    passed, skipped = sum(r[0] for r in results), sum(r[2] for r in results)
    failures = [name for r in results for name in r[1]]
    for name in failures:
        print(f"FAILED {name}")
    if skipped:
        print(f"{skipped} skipped")
    if not passed and not failures:
        print("no test matches")
    print(f"{passed} passed, {len(failures)} failed")
    return 1 if failures or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
