#!/usr/bin/env python3
"""Makes the demonstration's corpus out of the packages of tools/corpus_packages.txt.

    tools/make_corpus.py [--roots data/packages /] [--out data/corpus] [--bytes 12000000]

The packages lie unpacked below one of the roots. It writes OUT/documents.jsonl, a line {"text": ...} a document, and
OUT/packages.json, a list of {"name", "licence", "files", "text_bytes"}. The text is prose: a paragraph a line, without
markup, without paragraphs that came before, cut into documents at paragraphs. No package gives more than a third; of a
larger one documents from all over it are taken. The same packages make the same bytes.
"""

import argparse
import gzip
import json
import pathlib
import re
import struct
import sys
import zlib

LEAST_DOCUMENT_BYTES = 8 << 10
LEAST_COMPARED_BYTES = 64  # shorter paragraphs (headings, "See also") may repeat
LEAST_TEXT_BYTES = 256
LETTER = rb"[A-Za-z\x80-\xff]"


# ---- plain text

def blocks_of(text):
    """The lines between blank lines, joined."""
    block = []
    for line in text.split(b"\n"):
        if line.strip():
            block.append(line.removesuffix(b"\r") + b"\n")
        elif block:
            yield b"".join(block)
            block = []
    if block:
        yield b"".join(block)


def has_letter(text):
    return re.search(LETTER, text) is not None


def prose(text):
    """A paragraph on one line. A word that is broken behind its hyphen at a line's end is joined."""
    text = re.sub(rb"(?<=" + LETTER + rb"-)[ \t\r\f\v]*\n\s*(?=" + LETTER + rb")", b"", text.strip())
    return re.sub(rb"\s+", b" ", text) + b"\n"


def verbatim(block):
    """Lines as they are, less their common indentation."""
    lines = block.splitlines()
    indent = min(len(line) - len(line.lstrip(b" \t")) for line in lines)
    return b"".join(line[indent:].rstrip() + b"\n" for line in lines)


def reads_as_prose(block):
    """Whether lines are running text, not a drawing, a table or code."""
    lines = [line.strip() for line in block.splitlines()]
    words = sum(len(re.findall(rb"[A-Za-z\x80-\xff ,.]", line)) for line in lines)
    gaps = sum(line.count(b"   ") for line in lines)
    return words * 4 >= len(block) * 3 and gaps * 3 < len(lines)


def plain(text):
    return b"\n".join(prose(block) if reads_as_prose(block) else verbatim(block) for block in blocks_of(text)
                      if has_letter(block) or len(block) <= 8)


# ---- dictionaries in the form that dictd serves (RFC 2229)

def behind_bracket(text, at):
    depth = 0
    for bracket in re.compile(rb"[][]").finditer(text, at):
        depth += 1 if bracket[0] == b"[" else -1
        if depth == 0:
            return bracket.end()
    return len(text)


PRONUNCIATION = re.compile(rb"\\[^\\]{0,119}\\")
ANOTHER = re.compile(rb"[ \n\t\r]*\(([^)]{0,120})\)")


def behind_pronunciation(text, at):
    """Behind \\...\\, and behind another way to write it that follows in parentheses."""
    found = PRONUNCIATION.match(text, at)
    if not found:
        return at + 1
    another = ANOTHER.match(text, found.end())
    if another and (re.search(rb'[\[?"*]', another[1]) or b" " not in another[1]):
        return another.end()
    return found.end()


SUBJECT = re.compile(rb"<[A-Za-z \n\t\r,]{1,60}>")


def letters_of(accent):
    """Brackets around "'e" and the like hold an accent and a letter, a letter and its accent's name, or two letters."""
    if len(accent) > 4 or re.search(rb"[ .]", accent) or not re.search(rb"[a-z]", accent):
        return b""
    letters = re.sub(rb"[^A-Za-z]", b"", accent)
    return letters[:1] if len(letters) > 2 else letters


def dictionary_prose(text):
    """Without pronunciations, remarks in brackets, subjects in angle brackets, and the braces of references."""
    out, at = [], 0
    while special := re.compile(rb"[{}\\<[]").search(text, at):
        out.append(text[at:special.start()])
        at = special.start()
        if special[0] == b"\\":
            at = behind_pronunciation(text, at)
        elif special[0] == b"[":
            end = behind_bracket(text, at)
            out.append(letters_of(text[at + 1:end - 1]))
            at = end
        elif special[0] == b"<":
            subject = SUBJECT.match(text, at)
            out.append(b"" if subject else b"<")
            at = subject.end() if subject else at + 1
        else:
            at += 1
    out.append(text[at:])
    # There was a space on either side of a part that is left out.
    return re.sub(rb" (?=[,;.])", b"", re.sub(rb" [ \n\t\r]+", b" ", b"".join(out)))


def dictionary(text):
    """An entry is a paragraph. A headword that stands alone begins the next one."""
    out, headword, passed_over = [], b"", False
    for block in blocks_of(text):
        begins = not block[:1].isspace()
        if begins:
            passed_over = block.startswith((b"00-database", b"00database"))  # it tells of the dictionary itself
            headword = b""
        if passed_over:
            continue
        inner = dictionary_prose(block).strip()
        if not has_letter(inner):
            continue
        if begins and b"\n" not in inner and not inner.endswith(b"."):
            headword = inner + b": "
            continue
        out.append(prose(headword + inner))
        headword = b""
    return b"\n".join(out)


# ---- packages of GNU R: a lazy-load database is a sequence of objects, each its size (4 bytes, the highest first) and
# a zlib stream of R's serialisation (R Internals, section 1.8)

def r_lines(serialised):
    """The lines of a vector of texts; None for another object."""
    at = 2

    def number():
        nonlocal at
        at += 4
        return struct.unpack_from(">I", serialised, at - 4)[0]

    if serialised[:2] != b"X\n":
        return None
    version, _, _ = number(), number(), number()
    if version == 3:
        name_bytes = number()  # of the encoding
        at += name_bytes
    if number() != 16:
        return None
    lines = []
    for _ in range(number()):
        _, size = number(), number()
        lines.append(serialised[at:at + size] + b"\n")
        at += size
    return b"".join(lines)


def r_texts(database):
    at = 0
    while at < len(database):
        inflate = zlib.decompressobj()
        lines = r_lines(inflate.decompress(database[at + 4:]))
        at = len(database) - len(inflate.unused_data)
        if lines is not None:
            yield lines


# ---- packages, in order of preference: name, folder below the root, ending of the files' names, their texts, markup

def packed(data):
    yield gzip.decompress(data)


PACKAGES = (
    ("r-cran-janeaustenr", "usr/lib/R/site-library/janeaustenr/data", ".rdb", r_texts, plain),
    ("dict-gcide", "usr/share/dictd", "gcide.dict.dz", packed, dictionary),
    ("jargon-text", "usr/share/doc/jargon-text", ".txt.gz", packed, plain),
    ("dict-foldoc", "usr/share/dictd", "foldoc.dict.dz", packed, dictionary),
)


def licence_of(root, package):
    """The licences that the package's copyright file names first, or a hint to that file."""
    path = root / "usr/share/doc" / package / "copyright"
    text = path.read_text(errors="replace") if path.is_file() else ""
    names = list(dict.fromkeys(re.findall(r"(?<=\nLicense: )\S.{0,59}(?=\n)", text)[:2]))
    if names and "Format: " in text:
        return ", ".join(names)
    for phrase, name in (("public domain", "public domain"), ("GNU General Public License", "GPL"),
                         ("GNU Free Documentation License", "GFDL")):
        if phrase in text:
            return name
    return f"see /usr/share/doc/{package}/copyright"


def without_repeats(text, seen):
    kept = []
    for paragraph in text.rstrip(b"\n").split(b"\n\n"):
        if len(paragraph) >= LEAST_COMPARED_BYTES:
            if paragraph in seen:
                continue
            seen.add(paragraph)
        kept.append(paragraph)
    return b"\n\n".join(kept)


def cut(text):
    """Documents of a share that can be held out evenly."""
    begin = 0
    while begin < len(text):
        end = -1 if len(text) - begin <= 2 * LEAST_DOCUMENT_BYTES else text.find(b"\n\n", begin + LEAST_DOCUMENT_BYTES)
        if end < 0:
            end = len(text)
        yield text[begin:end]
        begin = end + 2


def thinned_out(documents, most_bytes):
    """Documents from all over, in their order, that come to no more than `most_bytes`."""
    share = most_bytes / max(1, sum(map(len, documents)))
    if share >= 1:
        return documents
    seen, kept, chosen = 0, 0, []
    for document in documents:
        seen += len(document)
        if kept + len(document) <= seen * share:
            kept += len(document)
            chosen.append(document)
    return chosen


def first_with_files(roots, folder, ending):
    for root in roots:
        if files := sorted(path for path in (root / folder).rglob("*" + ending) if path.is_file()):
            return root, files
    return None, []


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    roots = [pathlib.Path("data/packages"), pathlib.Path("/")]
    parser.add_argument("--roots", nargs="+", type=pathlib.Path, default=roots)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("data/corpus"))
    parser.add_argument("--bytes", type=int, default=12_000_000)
    options = parser.parse_args()
    seen, documents, packages, total = set(), [], [], 0
    for name, folder, ending, texts_of, markup in PACKAGES:
        root, files = first_with_files(options.roots, folder, ending)
        texts = [without_repeats(markup(data.decode(errors="replace").encode()), seen)
                 for path in files for data in texts_of(path.read_bytes())]
        texts = [text for text in texts if len(text) >= LEAST_TEXT_BYTES]
        if not texts:
            continue
        chosen = thinned_out([document for text in texts for document in cut(text)],
                             min(options.bytes // 3, options.bytes - total))
        size = sum(map(len, chosen))
        total += size
        documents += chosen
        packages.append({"name": name, "licence": licence_of(root, name), "files": len(texts), "text_bytes": size})
    if not documents:
        sys.exit(f"no text to train on is in {' or '.join(map(str, options.roots))}: it holds none of the packages "
                 + ", ".join(package[0] for package in PACKAGES))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "packages.json").write_text(json.dumps(packages, indent=1) + "\n")
    place = options.out / "documents.jsonl"  # last: whoever finds it finds both
    with open(f"{place}.part", "w", encoding="utf-8") as file:
        for document in documents:
            file.write(json.dumps({"text": document.decode()}, ensure_ascii=False) + "\n")
    pathlib.Path(f"{place}.part").rename(place)


if __name__ == "__main__":
    main()
