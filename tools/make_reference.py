#!/usr/bin/env python3
"""Writes docs/reference.md, every key and every figure of a run, from the rows that the program itself has.

    make_reference.py PATH_OF_HEDDLE            # writes it
    make_reference.py PATH_OF_HEDDLE --check    # exits 1 where it is not what would be written
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference.md"
SECTIONS = {"": "Of the run itself", "model": "[model]: the model", "data": "[data]: the text", "train": "[train]: how it is trained",
            "lora": "[lora]: adapters beside frozen weights", "device": "[device]: what runs it",
            "mesh": "[mesh]: ranks and degrees", "parallel": "[parallel]: schedule, messages",
            "moe": "[moe]: copies and homes of experts",
            "memory": "[memory]: what is not kept", "fusions": "[fusions]: ops in one"}
HEAD = """# Every key, every figure

One table a section of a configuration. A key that leads to its page has a class and a cost behind its effect. `bitwise` leaves every bit as it is, `reassociates` sums in another order, `changes_maths` trains something else. Ranges include their ends. `heddle explain KEY` prints all that is known of a key; `--set KEY=VALUE` gives it. Below them stand [the figures](#figures) of a step and a run. Written by `tools/make_reference.py` from the program's rows; a test holds it to them.
"""


FIGURES = """
## Figures

By their keys in `metrics.jsonl` and in MLflow; behind `heddle_` in Prometheus. `{}` stands for each layer or channel, which is a label in Prometheus. `of the run`: how the run's number comes from those of its steps, and its name in `heddle train --json`, `heddle report --json` and the report's own JSON. `heddle explain --figures` prints them.

| figure | unit | of the run | |
|---|---|---|---|
"""


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def code(text):
    return f"`{cell(text)}`"


# What a key takes, for a column that is read from top to bottom: without articles, bounds as signs.
SHORTER = ((r"^an? ", ""), (r"\bor an (?=integer)", "or "), (r"^true or false$", "bool"), (r"\bof (\S+) or more\b", r"≥ \1"),
           (r"\b(integer|number) from ", r"\1 "), (r"\bnumber above ", "number > "))


def takes(accepted):
    for form, shorter in SHORTER:
        accepted = re.sub(form, shorter, accepted)
    return cell(accepted)


def row_of(key):
    name, switch = code(key["key"]), key.get("switch")
    what = cell(switch["effect"] if switch else key["meaning"])
    if switch:
        name = f"[{name}]({switch['page'].removeprefix('docs/')})"
        what += f" *{switch['maths_class']}*: {cell(switch['cost'])}"
        if switch.get("unless"):
            what += f". Unless: {cell(switch['unless'])}"
    return f"| {name} | {takes(key['accepted'])} | {code(key['default'])} | {what} |"


def figure_row(figure):
    run = figure.get("over_steps", "")
    if "in_run" in figure:
        run += f"{': ' if run else ''}{code(figure['in_run'])}"
    what = cell(figure["meaning"])
    if "list" in figure:
        what += f" One for each {figure['list']}, in each layer."
    if "was" in figure:
        what += f" Earlier versions called it {code(figure['was'])}."
    return f"| {code(figure['key'])} | {cell(figure['unit'])} | {run} | {what} |"


def page_of(keys, figures):
    sections = {}
    for key in keys:
        section = key["key"].split(".")[0] if "." in key["key"] else ""
        sections.setdefault(section, []).append(key)
    missing = set(sections) - set(SECTIONS)
    if missing:
        sys.exit(f"tools/make_reference.py has no heading for the sections {sorted(missing)}")
    text = HEAD
    for section, heading in SECTIONS.items():
        text += f"\n## {heading}\n\n| key | takes | default | effect *class*: cost |\n|---|---|---|---|\n"
        text += "\n".join(row_of(key) for key in sections[section]) + "\n"
    return text + FIGURES + "\n".join(map(figure_row, figures)) + "\n"


def main():
    heddle, check = pathlib.Path(sys.argv[1]).resolve(), "--check" in sys.argv[2:]
    keys, figures = (json.loads(subprocess.run([heddle, "explain", *what, "--json"], check=True, capture_output=True,
                                               text=True).stdout) for what in ([], ["--figures"]))
    text = page_of(keys, figures)
    if not check:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        print(f"docs/reference.md has all {len(keys)} keys and {len(figures)} figures as they are")
        return 0
    old = set(PAGE.read_text().splitlines())
    print("docs/reference.md is not what the program's rows say; tools/make_reference.py build/heddle writes it anew:")
    print("\n".join(line for line in text.splitlines() if line not in old))
    return 1


if __name__ == "__main__":
    sys.exit(main())
