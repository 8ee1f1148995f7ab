#!/usr/bin/env python3
"""Holds the promise of docs/compatibility.md: what tests/packages/stable.json lists is still there.

    compatibility_test.py PATH_OF_HEDDLE           fails where a name is gone, or one of COMPLETE is not listed, or a
                                                   field of an answer is no attribute in Python
    compatibility_test.py PATH_OF_HEDDLE --write   adds new names; it takes none away

stable.json lists the keys of configurations, figures, commands with their flags, the fields of each command's --json,
and public headers. A name leaves it by hand, with a line in CHANGELOG.md that says what replaces it.
"""
import ast
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HEDDLE = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/heddle").resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/cli"))
from tiny_toml import TINY_MODEL, tiny_toml  # noqa: E402

STORED = pathlib.Path(__file__).with_name("stable.json")
SECONDS = 300
SCRIPT = ROOT / "examples/launch/qwen3_30b.sh"
ASKED = "--cluster H100 --devices 32 --global-batch 256 --sequence 4096 --json --threads 1"
TINY = tiny_toml(TINY_MODEL, steps=4, global_batch=4, microbatch=2, sequence_length=32, warmup_steps=1, decay_steps=1,
                 eval_sequences=4, sample_tokens=0)
# By name: the command, in a folder with tiny.toml and text.txt; in this order.
JSON = {
    "plan MODEL": f"plan Qwen3-30B-A3B {ASKED}",
    "plan SCRIPT": f"plan {SCRIPT} --cluster H100 --json --threads 1",
    "plan that does not fit": "plan Qwen3-30B-A3B --cluster H100 --devices 1 --global-batch 8 --json --threads 1",
    "search --model": f"search --model Qwen3-30B-A3B {ASKED} --top 1",
    "search --from": f"search --from {SCRIPT} --cluster H100 --json",
    "schedule": "schedule zb_v --ranks 4 --microbatches 8 --json",
    "explain": "explain mesh.tp --json",
    "inspect": "inspect tiny.toml --json",
    "inspect --model": "inspect --model DeepSeek-V3 --json",
    "data": "data text.txt --out prepared --vocabulary 300 --json",
    "train": "train tiny.toml --quiet --json",
    "eval": "eval runs/tiny --json",
    "generate": "generate runs/tiny --prompt the --tokens 2 --json",
}
# The class of python/heddle/ that an answer is read into: by tests/python too, where the module is built.
TYPED = {"plan MODEL": "PlanAnswer", "plan SCRIPT": "PlanAnswer", "plan that does not fit": "PlanAnswer",
         "search --model": "SearchResult", "search --from": "ScriptAnswer", "schedule": "Schedule",
         "inspect --model": "ModelFacts"}
COMPLETE = ("keys", "figures", "flags")    # fields depend on what an answer has to say
OPEN = re.compile(r"[^a-z0-9_]")    # a mapping by names that are data, such as "experts' activations"


def fields(value, path=""):
    """"changes[].speed_ratio": the paths of an answer. Those below a name that is data are left out."""
    if isinstance(value, list):
        return set().union(*(fields(item, path + "[]") for item in value), {path})
    if not isinstance(value, dict):
        return {path}
    found = {path} if path else set()
    for key, item in value.items():
        if not OPEN.search(key):
            found |= fields(item, f"{path}.{key}" if path else key)
    return found


def python_classes():
    """By class of the typed results: annotations by attribute."""
    found = {}
    for path in (ROOT / "python/heddle/_results.py", ROOT / "python/heddle/_plan.py"):
        for each in ast.parse(path.read_text()).body:
            if isinstance(each, ast.ClassDef):
                found[each.name] = {line.target.id: ast.unparse(line.annotation) for line in each.body
                                    if isinstance(line, ast.AnnAssign)}
    return found


def untyped(value, kind, classes, path):
    """Fields of an answer that are no attributes of its class."""
    if isinstance(value, list):
        return set().union(*(untyped(item, kind, classes, path + "[]") for item in value))
    found = set()
    for key, item in value.items() if isinstance(value, dict) else ():
        if key not in classes[kind]:
            found.add(f"{kind}.{key} ({path})")
            continue
        for inner in set(re.findall(r"\w+", classes[kind][key])) & set(classes):
            # A mapping by names that are data has its class as the values' own.
            by_name = classes[kind][key].startswith("dict") and isinstance(item, dict)
            found |= untyped(list(item.values()) if by_name else item, inner, classes, f"{path}.{key}")
    return found


def run(arguments, folder, statuses=(0,)):
    done = subprocess.run([HEDDLE, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode not in statuses:
        sys.exit(f"heddle {' '.join(map(str, arguments))}: status {done.returncode}\n{done.stderr}")
    return done.stdout


def names_now():
    with tempfile.TemporaryDirectory(prefix="heddle-stable-") as name:
        folder = pathlib.Path(name)
        (folder / "tiny.toml").write_text(TINY)
        (folder / "text.txt").write_text("\n\n".join(f"the shuttle passes {i} warp threads and {i * i} wefts " * 4
                                                     for i in range(600)))
        now = {"keys": {each["key"] for each in json.loads(run(["explain", "--json"], folder))},
               "figures": {each["key"] for each in json.loads(run(["explain", "--figures", "--json"], folder))}}
        commands = re.findall(r"^  heddle (\w+)", run(["help"], folder), re.M)
        now["flags"] = {f"{command} {flag}" for command in commands
                        for flag in ["--help", *re.findall(r"^  (--[\w-]+)", run([command, "--help"], folder), re.M)]}
        answers = {name: json.loads(run(line.split(), folder, statuses=(0, 1))) for name, line in JSON.items()}
        now["fields"] = {f"{name}: {field}" for name, answer in answers.items() for field in fields(answer)}
    embed = (ROOT / "examples/embed/embed.cpp").read_text()
    headers = re.findall(r'#include "(heddle/[^"]+)"', embed)
    now["headers"] = {header for header in headers if (ROOT / "src" / header).exists()}
    classes = python_classes()
    missing = set().union(*(untyped(answers[name], kind, classes, name) for name, kind in TYPED.items()))
    return {kind: sorted(names) for kind, names in now.items()}, sorted(missing)


def main():
    now, missing = names_now()
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    if "--write" in sys.argv:
        STORED.write_text(json.dumps({kind: sorted({*stored.get(kind, ()), *names}) for kind, names in now.items()},
                                     indent=1) + "\n")
        return 0
    gone = [f"{kind}: {name}" for kind, names in stored.items() for name in names if name not in now.get(kind, ())]
    for name in gone:
        print(f"{name} is gone, which docs/compatibility.md promises to keep")
    for name in [f"{kind}: {name}" for kind in COMPLETE for name in now[kind] if name not in stored.get(kind, ())]:
        gone.append(name)
        print(f"{name} is new: compatibility_test.py --write lists it")
    for name in missing:
        gone.append(name)
        print(f"{name} is no attribute: python/heddle/ lacks it")
    for kind in now:
        if len(stored.get(kind, ())) < 4:
            gone.append(kind)
            print(f"{STORED.name} has hardly any {kind}")
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
