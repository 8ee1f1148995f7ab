#!/usr/bin/env python3
"""Lists the messages of the program, so that all of them can be read in one go.

    list_messages.py [--kind KIND]… [--words N] [PATH …]     (default: src; all kinds; messages of 3 words or more)

A message is a string of C++, adjacent strings joined; {} stands for a value. Its kind follows from the innermost known call
around it:

    error     what ends a command: fail, refuse, require, a thrown error, Support::no
    check     what ends it as a fault of the program: HEDDLE_CHECK
    warning   warn
    line      what a command prints while it works: say, tell, note, line
    help      texts of options, keys and commands: rows of tables and the command lines' declarations
    other     the rest: reports, charts, traces, facts
"""
import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CALLS = {
    "error": {"fail", "refuse", "refused", "require", "ConfigError", "SystemError", "PeerError", "Error", "no", "must", "fail_at",
              "check_cuda", "check_driver", "failed", "refusal"},
    "check": {"HEDDLE_CHECK", "InternalError", "check_failed"},
    "warning": {"warn", "warning"},
    "line": {"say", "tell", "note", "line", "say_line", "print", "progress"},
    "help": {"integer", "number", "flag", "text", "choice", "option", "add_option", "add_flag", "add_subcommand", "description",
             "words", "switch_", "enumeration", "list", "boolean", "path"},
}
HELP_FILES = re.compile(r"(settings|switches|options|keys)\.(cpp|h)$|/cli/")
TOKEN = re.compile(
    r'(?P<raw>R"(?P<mark>[^ ()\\\n]*)\((?P<body>.*?)\)(?P=mark)")|//[^\n]*|/\*.*?\*/|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*'
    r'|(?P<text>"(?:[^"\\\n]|\\.)*")|(?<!\w)\'(?:[^\'\\\n]|\\.)+\'|(?P<name>[A-Za-z_]\w*)|(?P<sign>[(){}\[\];,])|(?P<gap>\s+)',
    re.S | re.M)


def messages(text):
    """(line, calls around it, message) of each string; adjacent strings are one."""
    around, name, held = [], "", None
    for found in TOKEN.finditer(text):
        string = found["body"] if found["raw"] else found["text"][1:-1] if found["text"] else None
        if string is not None:
            held = held or [text.count("\n", 0, found.start()) + 1, [call for call in around if call], ""]
            held[2] += string
            continue
        if found["gap"] or found.group().startswith(("//", "/*")):
            continue
        if held:
            yield held
            held = None
        if found["name"]:
            name = found["name"]
            continue
        sign = found["sign"]
        if sign in ("(", "{", "["):
            around.append(name if sign == "(" or name.endswith("Error") else "")
        elif sign in (")", "}", "]") and around:
            around.pop()
        name = ""


def kind_of(path, calls):
    for call in reversed(calls):
        for kind, names in CALLS.items():
            if call in names and (kind != "help" or HELP_FILES.search(path)):
                return kind
    return "help" if HELP_FILES.search(path) else "other"


def listed(paths):
    for path in sorted(p for given in paths for p in ([given] if given.is_file() else given.rglob("*")) if p.suffix in (".cpp", ".h", ".cu")):
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        for line, calls, message in messages(path.read_text(errors="replace")):
            yield name, line, kind_of(name, calls), message


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", action="append", choices=[*CALLS, "other"])
    parser.add_argument("--words", type=int, default=3, metavar="N", help="messages of at least so many words")
    parser.add_argument("paths", nargs="*", type=lambda p: pathlib.Path(p).resolve(), default=[ROOT / "src"])
    options = parser.parse_args()
    count = 0
    for name, line, kind, message in listed(options.paths):
        if len(re.findall(r"[^\W\d_]{2,}", message)) >= options.words and (not options.kind or kind in options.kind):
            print(f"{name}:{line}: {kind}: " + message.replace("\n", "\\n"))
            count += 1
    print(f"{count} messages", file=sys.stderr)


if __name__ == "__main__":
    main()
