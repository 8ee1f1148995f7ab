#!/usr/bin/env python3
"""Holds the documentation to the code.

- every op kind defined in src/heddle/ops has a row in docs/ops.md, and every row an op
- every switch has its page, and every page of docs/features a switch
- links between documents lead to a file, and #anchors to a heading
- paths of this repository named in `code` exist
- commands named in documents (`./dev …`, `heddle …`) exist

Prints each breach as `file:line: what`, exits 1 on any.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
SKIPPED = {"build", ".git", ".vendor"}


def documents():
    for path in sorted(ROOT.rglob("*.md")):
        top = path.relative_to(ROOT).parts[0]
        if top not in SKIPPED and not top.startswith(("build-", ".venv")) and top != "runs":
            yield path


def numbered(path):
    return enumerate(path.read_text().splitlines(), 1)


def check_ops():
    defined = set()
    for path in (ROOT / "src/heddle/ops").rglob("*.cpp"):
        defined |= set(re.findall(r'\.kind = "(\w+)"', path.read_text()))
    rows, page = {}, ROOT / "docs/ops.md"
    for number, line in numbered(page):
        if line.startswith("| `"):
            for kind in re.findall(r"`(\w+)`", line.split("|")[1]):
                rows.setdefault(kind, number)
    if not defined:
        yield f"{page}:1: no op definitions were found; has their form changed?"
    yield from (f"{page}:1: no row for op '{kind}'" for kind in sorted(defined - set(rows)))
    yield from (f"{page}:{rows[kind]}: no op '{kind}' is defined" for kind in sorted(set(rows) - defined))


def check_switches():
    pages = {}
    for table in sorted((ROOT / "src/heddle").rglob("*.cpp")):
        for name in re.findall(r'\bpage\("(\w+)"\)', table.read_text()):
            pages[f"docs/features/{name}.md"] = table
    if not pages:
        yield f"{ROOT}/src/heddle:1: no pages were found; has their form changed?"
    yield from (f"{pages[page]}:1: page {page} does not exist" for page in sorted(pages) if not (ROOT / page).exists())
    for path in sorted((ROOT / "docs/features").glob("*.md")):
        if path.name != "README.md" and str(path.relative_to(ROOT)) not in pages:
            yield f"{path}:1: no switch names this page"
        if f"(features/{path.name})" not in (ROOT / "docs/features.md").read_text():
            yield f"{path}:1: docs/features.md has no link to this page"


def anchors(path):
    """GitHub's: lower case, punctuation dropped, spaces to dashes."""
    headings = re.findall(r"^#+\s+(.*)$", path.read_text(), re.M)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading.strip().lower())) for heading in headings}


def check_links(path):
    for number, line in numbered(path):
        for target in re.findall(r"\]\(([^)\s]+)\)", line):
            if re.match(r"[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            at = (path.parent / file).resolve() if file else path
            if not at.exists():
                yield f"{path}:{number}: link to {target}, which does not exist"
            elif anchor and at.suffix == ".md" and anchor not in anchors(at):
                yield f"{path}:{number}: {target}: no such heading"


def check_paths(path):
    named = re.compile(r"`((?:src|docs|tests|tools|bench|examples|\.ci)/[\w./*{},-]*)`")
    for number, line in numbered(path):
        for name in named.findall(line):
            if "{" in name or not name.rstrip("/"):
                continue
            if not (any(ROOT.glob(name)) if "*" in name else (ROOT / name).exists()):
                yield f"{path}:{number}: `{name}` does not exist"


def check_commands(path):
    dev = set(re.findall(r"^  ([a-z]+)", usage_of_dev(), re.M))
    program = {file.stem for folder in ("heddle/cli", "advisor/commands", "check/commands") for file in (ROOT / "src" / folder).rglob("*.cpp")}
    benches = {file.stem for file in (ROOT / "bench").glob("*.cpp")}
    benches |= {file.stem.removesuffix("_bench") for file in (ROOT / "bench").glob("*_bench.py")}
    fenced = False
    for number, line in numbered(path):
        if line.startswith("```"):
            fenced = not fenced
            continue
        for code in [line] if fenced else re.findall(r"`([^`]+)`", line):
            for word in re.findall(r"\./dev ([a-z]+)", code):
                if word not in dev:
                    yield f"{path}:{number}: './dev {word}' is no command"
            for word in re.findall(r"\./dev bench ([a-z_]+)", code):
                if word not in benches:
                    yield f"{path}:{number}: './dev bench {word}' is no benchmark"
            for word in re.findall(r"^\s*\$?\s*(?:build/)?heddle ([a-z]+)", code):
                if program and word not in program:
                    yield f"{path}:{number}: 'heddle {word}' is no command"


def usage_of_dev():
    return re.search(r"<<'END'\n(.*?)\nEND", (ROOT / "dev").read_text(), re.S).group(1)


def breaches():
    yield from check_ops()
    yield from check_switches()
    for path in documents():
        for check in (check_links, check_paths, check_commands):
            yield from check(path)


if __name__ == "__main__":
    found = [breach.replace(f"{ROOT}/", "") for breach in breaches()]
    print("\n".join(found) if found else "documentation holds")
    sys.exit(1 if found else 0)
