"""The commands of the documentation, as they stand in its fenced blocks.

A block marked `sh` holds commands, one a line (a backslash continues it, `<<'WORD'` the lines up to WORD, ` # ` begins a comment, `# exit status 2` says that it is refused); in one marked
`console` they stand behind `$ `, and what they print between them. A line `<!-- needs: WORD -->` above a block says
what its commands need that not every machine has; NEEDS lists the words.
"""
import pathlib
import re

NEEDS = {
    "gpu": "an NVIDIA GPU",
    "slurm": "a cluster with Slurm",
    "hosts": "several machines, or the right to make some of one (tools/hosts)",
    "yours": "a file or program of the reader's own, under a name that stands for it",
    "long": "minutes: run by ./dev test --full",
    "checkout": "a working copy, built as a whole, perhaps the machine to itself",
    "other": "another program: PyTorch, TensorBoard, a checkout of someone else's",
}
STARTS = re.compile(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*(?:build/|\./dev|tools/|tests/)?(?:heddle(?= [a-z])|dev|mpirun|srun|ninja|cmake|tensorboard|hosts|bench_\w+|\w+_test)\b")


class Command:
    def __init__(self, page, line, text, needs, status):
        self.page, self.line, self.text, self.needs, self.status = page, line, text, needs, status

    @property
    def place(self):
        return f"{self.page}:{self.line}"


def uncommented(line):
    return re.sub(r"(^|\s)#(\s.*|$)", "", line).rstrip()


def read_page(path, name):
    """(commands, breaches: blocks of commands that are not marked, words that are not listed)"""
    commands, breaches = [], []
    language, needs, marked, held, start = None, set(), set(), "", 0
    word, here = None, []    # of a here-document, and its command with the lines so far
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if word is not None:
            here.append(line)
            if line == word:
                commands.append(Command(name, start, "\n".join(here) + "\n", needs, 0))
                word = None
            elif line.startswith("```"):
                breaches.append(f"{name}:{start}: a here-document that goes on behind the block")
                word, language = None, None
            continue
        if line.strip().startswith("```"):
            if language is None:
                language, needs, marked = line.strip()[3:].strip(), marked, set()
            else:
                if held:
                    breaches.append(f"{name}:{start}: a command that goes on behind the block")
                language, held = None, ""
            continue
        if language is None:
            found = re.match(r"\s*<!-- needs: ([\w, ]+) -->\s*$", line)
            if found:
                marked = {word.strip() for word in found.group(1).split(",")}
                breaches += [f"{name}:{number}: needs '{word}', accepted: {', '.join(NEEDS)}"
                             for word in sorted(marked - set(NEEDS))]
            elif line.strip():
                marked = set()
            continue
        if language not in ("sh", "console"):
            if STARTS.match(line.strip()) and language == "":
                breaches.append(f"{name}:{number}: a command in a block that is marked neither sh nor console")
            continue
        text = line.strip()
        if language == "console":
            if not text.startswith("$ ") and not held:
                continue
            text = text.removeprefix("$ ")
        status = re.search(r"# exit status (\d+)\s*$", text)
        text = uncommented(text)
        if not held:
            start = number
        if text.endswith("\\"):
            held += text[:-1].rstrip() + " "
            continue
        text, held = (held + text).strip(), ""
        if opened := re.search(r"<<'(\w+)'", text):
            word, here = opened.group(1), [text]
            continue
        if text:
            commands.append(Command(name, start, text, needs, int(status.group(1)) if status else 0))
    return commands, breaches


def pages(root):
    for path in [root / "README.md", *sorted((root / "docs").rglob("*.md")), root / "examples/README.md"]:
        yield path, str(path.relative_to(root))


def read_all(root):
    commands, breaches = [], []
    for path, name in pages(root):
        of_page, wrong = read_page(path, name)
        commands += of_page
        breaches += wrong
    return commands, breaches


if __name__ == "__main__":
    for command in read_all(pathlib.Path(__file__).resolve().parents[2])[0]:
        print(command.place, sorted(command.needs), command.text)
