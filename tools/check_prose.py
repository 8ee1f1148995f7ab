#!/usr/bin/env python3
"""Counts what makes pages, comments and messages hard to read, and refuses what is new.

    check_prose.py [--list] [--json] [PATH …]     (default: README.md, CHANGELOG.md, CONTRIBUTING.md, docs, src)

In pages: sentences of more than 30 words, paragraphs of more than six lines of 120 columns, words of the private list. In
comments of C++: sentences of more than 30 words, words of the private list, and comments that begin with a clause that has no
subject of its own ("What …", "Of …", "Whether …"). In messages of C++ (tools/list_messages.py): words of the private list.
Formulas and tables in comments, indented by two blanks or more, are not counted; nor are lists of names in a table's cell.

`tools/prose_exceptions.txt` has the places that stay, chosen by hand, a line each as --list prints them, without the line's
number. The exit status is 1 where another place has a fault, and where an exception is no longer one.
"""
import argparse
import json
import pathlib
import re
import sys

import list_messages

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXCEPTIONS = ROOT / "tools/prose_exceptions.txt"
MOST_WORDS, MOST_COLUMNS = 30, 6 * 120
HEADLESS = re.compile(r"^(what|of|whether|where|who|whom|whose|that which|those that|those of|that of|likewise|the same)\b", re.I)
# A private word and the field's own.
PRIVATE = {
    r"foret(?:ell|ells|elling|old)": "predict", r"reckon(?:s|ed|ing)?": "estimate", r"forecasts?(?:ed|ing)?": "predict, prediction",
    r"way home": "combine", r"letters? by letters?": "message by message", r"parcels?": "messages", r"is told": "is reported, prints",
    r"are told": "are reported, print", r"a look at": "an evaluation of", r"gives? up": "stop, give back", r"lends?": "share",
    r"beside (?:it|them|each other) stands?": "beside", r"goes by": "depends on",
}
PRIVATE_WORDS = re.compile(r"\b(?:" + "|".join(PRIVATE) + r")\b", re.I)


def sentences(text):
    text = re.sub(r"`[^`]*`", "X", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"(?<=\d)\.(?=\d)|\b(e\.g|i\.e|cf|vs|al|arXiv|Fig|Eq|No)\.", lambda m: m.group().replace(".", "·"), text)
    for sentence in re.split(r"(?<=[.!?:;])\s+(?=[A-Z\"*`(«X0-9])|(?<=[.!?])\s*$", text):
        words = re.findall(r"[^\W\d_][\w'’-]*", sentence)
        if words:
            yield sentence.strip(), len(words)


def page_paragraphs(text):
    """(line, text, kind) of each paragraph, list item and table cell outside of code and comments."""
    text = re.sub(r"<!--.*?-->", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)
    held, first = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        stripped = line.strip()
        begins = not stripped or stripped.startswith(("#", "|", "- ", "* ", ">")) or re.match(r"\d+\. ", stripped)
        if begins and held:
            yield first, " ".join(held), "paragraph"
            held = []
        if stripped.startswith("|"):
            if not re.fullmatch(r"[|\s:-]+", stripped):
                for cell in re.split(r"(?<!\\)\|", stripped.strip("|")):
                    yield number, cell.strip(), "cell"
        elif stripped and not stripped.startswith("#"):
            if not held:
                first = number
            held.append(re.sub(r"^(?:[-*>]|\d+\.) ", "", stripped))


def comments(text):
    """(line, lines) of each block of // comments that has lines of its own; formulas and tables are empty lines."""
    held, first = [], 0
    for number, line in enumerate(text.split("\n") + [""], 1):
        found = re.match(r"\s*///?<?(?: (.*)|$)", line)
        if found and not re.match(r"\s*// (?:clang-format|NOLINT)", line):
            if not held:
                first = number
            line = found.group(1) or ""
            held.append("." if line.startswith("  ") else line)
        elif held:
            yield first, held
            held = []


def without_formulas(lines):
    """The comment as one text, in which a formula or table ends the sentence before it."""
    return re.sub(r"[:;,]?(?: \.)+(?= |$)", ". ", " ".join(lines)).strip(" .")


def faults_of(path):
    text = path.read_text(errors="replace")
    if path.suffix == ".md":
        for line, paragraph, kind in page_paragraphs(text):
            for sentence, words in sentences(paragraph.replace("; ", ". X ") if kind == "cell" else paragraph):
                is_list = kind == "cell" and 3 * sentence.count(",") >= words  # of names, such as values of a key
                if words > MOST_WORDS and not is_list:
                    yield line, "long sentence", f"{words} words: {sentence[:90]}"
            if kind == "paragraph" and len(paragraph) > MOST_COLUMNS:
                yield line, "long paragraph", f"{len(paragraph)} characters: {paragraph[:80]}"
            for word in PRIVATE_WORDS.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", paragraph)):
                yield line, "private word", word
        return
    for line, lines in comments(text):
        whole = without_formulas(lines)
        if HEADLESS.match(whole):
            yield line, "headless comment", whole[:90]
        for sentence, words in sentences(whole):
            if words > MOST_WORDS:
                yield line, "long sentence", f"{words} words: {sentence[:90]}"
        for word in PRIVATE_WORDS.findall(re.sub(r"`[^`]*`", "", whole)):
            yield line, "private word", word
    for line, _, message in list_messages.messages(text):
        for word in PRIVATE_WORDS.findall(message) if " " in message else ():
            yield line, "private word", f"{word} in \"{message[:60]}\""


def files(paths):
    for path in paths:
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.suffix in (".md", ".h", ".cpp", ".cu"))
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name each place, exceptions too")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("paths", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    usual = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "src")]
    exceptions = [line for line in EXCEPTIONS.read_text().splitlines() if line and not line.startswith("#")]
    counts, words, met, broken = {}, 0, set(), False
    for path in files(options.paths or usual):
        path = path.resolve()
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        if path.suffix == ".md":
            words += sum(count for _, text, _ in page_paragraphs(path.read_text()) for _, count in sentences(text))
        for line, kind, what in faults_of(path):
            excepted = f"{name}: {kind}: {what}" in exceptions
            met.add(f"{name}: {kind}: {what}")
            if options.list:
                print(f"{name}:{line}: {kind}: {what}")
            if not excepted:
                where = "pages" if path.suffix == ".md" else "comments and messages"
                counts[f"{where}: {kind}"] = counts.get(f"{where}: {kind}", 0) + 1
                broken = True
                print(f"{name}:{line}: {kind}: {what}", file=sys.stderr)
    if not options.paths:
        for line in exceptions:
            if line not in met:
                broken = True
                print(f"tools/prose_exceptions.txt: no longer a fault, remove it: {line}", file=sys.stderr)
    counts["exceptions"] = len(exceptions)
    counts["pages: words"] = words
    print(json.dumps(counts) if options.json else "\n".join(f"{count:7} {what}" for what, count in sorted(counts.items())))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
