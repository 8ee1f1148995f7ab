#!/usr/bin/env python3
"""Makes docs/claims.md of what `heddle claims --json` prints.

    tools/make_claims.py build/heddle            writes the page
    tools/make_claims.py build/heddle --check    fails where the written one would differ

Rows of the book (src/advisor/claims/claims.json) are compiled into the program: build it first.
"""
import argparse
import difflib
import json
import pathlib
import subprocess
import sys

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs/claims.md"

HEAD = """# The book of claims

<!-- Made by tools/make_claims.py: change src/advisor/claims/claims.json, or this script. -->

```sh
heddle claims            # all of them
heddle claims merging    # one, with its setting, source and command
```

Each row takes a figure that another system publishes about training large models. *Computed* is the same comparison at the published setting. It comes from the closed forms of `heddle predict` (estimate), the timing of pipeline schedules, a simulation of the step's program, or rated figures. *Measured* ran here, as its entry below says. Settings that a source leaves open are marked (ours).

The verdict compares the measured figure, or else the computed one. Each published end counts as met from 95 % of it on. *Beyond* is more than 5 % ahead of the better end. No figure comes from a GPU ([status](status.md)): *paced* steps run the real executor, with ops that last as long as on a device of stated rates.
"""
SYSTEMS = {"MindSpeed": "MindSpeed", "MindSpore": "MindSpore", "MXMACA": "MXMACA", "others": "Other sources"}


def cell(text):
    return text.replace("|", "\\|")


def sentence(text):
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


def page_of(rows):
    verdicts = {word: [row["claim"] for row in rows if row["verdict"] == word] for word in ("beyond", "level", "weaker")}
    lines = [HEAD, "| verdict | rows | |", "|---|---|---|"]
    lines += [f"| *{word}* | {len(names)} | {', '.join(names) if word == 'weaker' else ''} |"
              for word, names in verdicts.items()]
    for system, title in SYSTEMS.items():
        lines += ["", f"## {title}", "", "| claim | published | computed | measured | verdict | of what |",
                  "|---|---|---|---|---|---|"]
        for row in rows:
            if row["system"] == system:
                lines.append("| " + " | ".join(cell(text) for text in (
                    row["claim"], row["published"], row.get("computed", ""), row.get("measured", {}).get("figure", ""),
                    row["verdict"], row["what"])) + " |")
    lines += ["", "## Settings, sources and reasons", "",
              "Each entry has the setting, the source with its figure, what computes and measures ours, and why they differ.", ""]
    for row in rows:
        how = []
        if row["by"]:
            how.append(f"computed by {row['by']}")
        if "measured" in row:
            it = row["measured"]
            how.append(f"measured {it['date']}: {it['setting']} (`{it['command']}`, [{it['page']}]({it['page']}))")
        parts = (row["setting"], row["source"], "; ".join(how), row["reason"])
        lines.append(f"- **{row['claim']}**: " + " ".join(sentence(part) for part in parts if part))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("heddle")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    printed = subprocess.run([options.heddle, "claims", "--json"], check=True, capture_output=True, text=True).stdout
    page = page_of(json.loads(printed))
    if not options.check:
        PAGE.write_text(page)
    elif page != PAGE.read_text():
        sys.stdout.writelines(difflib.unified_diff(PAGE.read_text().splitlines(True), page.splitlines(True), "written", "made"))
        sys.exit("docs/claims.md is not what the program prints: run tools/make_claims.py")


if __name__ == "__main__":
    main()
