#!/usr/bin/env python3
"""Counts the host's half of a step: how large TrainingRun and Trainer are, and how many project headers they pull.

    tools/count_host_half.py [ROOT]

A class's lines are those of its header and of the files that define its methods. Its methods are those that its body
declares, constructor and destructor included. Headers are those that a file reaches, itself not among them.
"""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^\s*#\s*include\s+"(heddle/[^"]+)"', re.M)
EXTRA = re.compile(r'metrics\.extra\[')


def without_comments(text):
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    return re.sub(r"//[^\n]*", "", text)


def headers_of(source, name, seen=None):
    """The project headers that a file below `source` reaches, as paths from there."""
    seen = set() if seen is None else seen
    for header in INCLUDE.findall((source / name).read_text()):
        if header not in seen and (source / header).is_file():
            seen.add(header)
            headers_of(source, header, seen)
    return seen


def body_of(text, name):
    """What stands between the braces of a class or struct."""
    start = re.search(r"\b(?:class|struct) %s\b[^;{]*\{" % name, text)
    if not start:
        return ""
    depth, at = 1, start.end()
    while depth and at < len(text):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return text[start.end():at - 1]


def statements_of(body):
    """The declarations of a class body: nested braces, and those of default arguments, are left out."""
    flat, braces, parens = "", 0, 0
    for letter in body:
        braces += {"{": 1, "}": -1}.get(letter, 0)
        if letter in "{}":
            flat += ";" if letter == "}" and braces == 0 and parens == 0 else ""
        elif braces == 0:
            parens += {"(": 1, ")": -1}.get(letter, 0)
            flat += letter
    flat = re.sub(r"\b(?:public|private|protected)\s*:", "", flat)
    return [one for part in flat.split(";") if (one := " ".join(part.split()))]


def methods_and_members(text, name):
    methods = members = 0
    for one in statements_of(body_of(without_comments(text), name)):
        head = re.sub(r"^template <[^>]*> ?", "", one).split("=")[0]
        while re.search(r"<[^<>]*>", head):
            head = re.sub(r"<[^<>]*>", "", head)
        if re.match(r"(using|struct|class|enum|friend|static constexpr|static_assert)\b", head):
            continue
        if "(" in head:
            methods += 1
        else:
            members += 1 + head.count(",")
    return methods, members


def files_of(folder, name, header):
    """The header, and every file of the folder and below that defines a method of the class."""
    return [header] + sorted(path for path in folder.rglob("*.cpp") if re.search(r"\b%s::" % name, path.read_text()))


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent
    source = root / "src"
    for floor, name, file in (("session", "TrainingRun", "training_run.h"), ("train", "Trainer", "trainer.h")):
        folder = source / "heddle" / floor
        header = folder / file
        files = files_of(folder, name, header)
        lines = sum(len(path.read_text().splitlines()) for path in files)
        methods, members = methods_and_members(header.read_text(), name)
        reached = headers_of(source, f"heddle/{floor}/{file}")
        print(f"{name}: {methods} methods, {members} members, {lines} lines in {len(files)} files; "
              f"{floor}/{file} reaches {len(reached)} project headers")
    context = source / "heddle/session/run/context.h"
    if context.is_file():
        methods, members = methods_and_members(context.read_text(), "RunContext")
        lines = sum(len(path.read_text().splitlines()) for path in (context, context.with_suffix(".cpp")))
        reached = headers_of(source, "heddle/session/run/context.h")
        print(f"RunContext: {methods} methods, {members} members, {lines} lines; "
              f"session/run/context.h reaches {len(reached)} project headers")
    uses = [path for path in sorted((source / "heddle").rglob("*.cpp")) if EXTRA.search(path.read_text())]
    print(f'metrics.extra["…"]: {sum(len(EXTRA.findall(path.read_text())) for path in uses)} in {len(uses)} files')


if __name__ == "__main__":
    main()
