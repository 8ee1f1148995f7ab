"""Damage to checkpoints that nobody uses, and what their next reader makes of it: none that is damaged may load.

Three forms are damaged: shards with their manifest, as ranks write them; whole tensors, as one rank does; and the sets in
memory that a job which was killed has left. Of the first two `heddle convert` must refuse what differs by a byte, unless
the manifest still says the same; a run that goes on must come to the digests of one that nothing happened to, from memory, from
an older set, from disk or from the beginning.
"""
import concurrent.futures
import contextlib
import json
import pathlib
import random
import shutil
import signal
import subprocess
import time

from emulated import MACHINE_SECONDS, digests, environment, write_inputs

RANKS, STEPS, EVERY = 4, 12, 4
RATES = "train.decay_steps=0"    # runs of any length do the same steps
FORMS = {"shards": 900, "whole": 300, "memory": 500, "gone on": 300}    # how many of 2,000
HOWS = ("flip", "flip", "flips", "cut", "longer", "zeros", "swap", "another's", "older", "gone", "link", "header")


def train(heddle, folder, *words, **options):
    return subprocess.run([heddle, "train", "tiny.toml", "--quiet", "--set", RATES, *words], cwd=folder, env=environment(folder),
                          capture_output=True, text=True, errors="replace", timeout=MACHINE_SECONDS, **options)


class Whole:
    """What is damaged, before it is."""

    def __init__(self, heddle, folder):
        self.heddle, self.folder = heddle, folder
        folder.mkdir()
        write_inputs(folder)
        layout = ("--ranks", str(RANKS), "--set", f"mesh.ranks={RANKS}")
        self.layout = layout
        for name, words in (("whole", ()), ("shards", layout)):
            done = train(heddle, folder, "--steps", str(STEPS), "--set", f"output={name}", *words)
            if done.returncode != 0:
                raise RuntimeError(done.stderr)
        self.memory = self.killed_with_memory()
        going_on = train(heddle, folder, "--set", "output=undisturbed", *self.layout)
        if going_on.returncode != 0:
            raise RuntimeError(going_on.stderr)
        self.digests, _ = digests(folder / "undisturbed")
        self.converted = {form: self.convert(folder / form / f"checkpoints/step-{STEPS:06}", folder / f"{form}-out")[1]
                          for form in ("shards", "whole")}

    def convert(self, path, out):
        done = subprocess.run([self.heddle, "convert", path, "--to", out], cwd=self.folder, env=environment(self.folder),
                              capture_output=True, text=True, errors="replace", timeout=MACHINE_SECONDS)
        model = out / "model.safetensors"
        held = model.read_bytes() if done.returncode == 0 and model.exists() else None
        shutil.rmtree(out, ignore_errors=True)
        return done, held

    def killed_with_memory(self):
        """A run that ended by SIGKILL: its folder, and a copy of what it left in memory, which goes itself."""
        run = self.folder / "killed"
        job = subprocess.Popen([self.heddle, "train", "tiny.toml", "--quiet", *self.layout, "--set", RATES, "--set",
                                "output=killed", "--set", "train.snapshot_every=1"], cwd=self.folder, env=environment(self.folder),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log = run / "metrics.jsonl"
        while job.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < EVERY + 2):
            time.sleep(0.002)
        job.send_signal(signal.SIGKILL)
        job.wait()
        left = pathlib.Path((run / ".memory").read_text().strip())
        shutil.copytree(left, self.folder / "memory")
        shutil.rmtree(left)
        return self.folder / "memory"


def other_bytes(held, draw, how, others):
    """What takes the place of a file's bytes."""
    if how in ("flip", "flips"):
        made = bytearray(held)
        for _ in range(1 if how == "flip" else draw.randint(2, 64)):
            made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
        return bytes(made)
    if how == "cut":
        return held[:draw.randrange(len(held))]
    if how == "longer":
        return held + bytes(draw.randrange(256) for _ in range(draw.randint(1, 4096)))
    if how == "zeros":
        first = draw.randrange(len(held))
        count = min(len(held) - first, draw.choice((1, 64, 512, 4096)))
        return held[:first] + bytes(count) + held[first + count:]
    if how == "swap":    # two blocks of it
        block = draw.choice((8, 64, 4096))
        a, b = sorted(draw.randrange(max(1, len(held) - block)) for _ in range(2))
        if b < a + block:
            return held
        return held[:a] + held[b:b + block] + held[a + block:b] + held[a:a + block] + held[b + block:]
    if how == "header":    # the length that comes first, or what follows it
        return draw.randbytes(draw.choice((1, 8, 16))) + held[16:]
    return draw.choice(others).read_bytes()    # another's, older


def damage(folder, older, work, draw):
    """Damages one file of a folder: what was done, and whether a byte is another."""
    files = sorted(p for p in folder.iterdir() if p.is_file() and p.stat().st_size > 0)
    file, how = draw.choice(files), draw.choice(HOWS)
    held = file.read_bytes()
    others = [p for p in files if p != file and p.suffix == file.suffix] or files
    if how == "older":
        others = [p for p in (older / file.name,) if p.exists()] if older else others
        if not others:
            how, others = "another's", files
    if how == "gone":
        file.unlink()
    elif how == "link":    # to the same bytes: links are not followed where somebody else may have laid them
        away = work / file.name
        shutil.move(file, away)
        file.symlink_to(away)
    else:
        made = other_bytes(held, draw, how, others)
        if made == held:
            return how, file.name, False
        file.write_bytes(made)
    return how, file.name, True


def same_manifest(a, b):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(a.read_text()) == json.loads(b.read_text())
    return False


def crashed(done):
    return done.returncode < 0 or done.returncode > 2 or "internal" in done.stderr.lower()


def of_disk(whole, form, work, draw):
    shutil.copytree(whole.folder / form / "checkpoints", work / "checkpoints")
    newest, older = work / f"checkpoints/step-{STEPS:06}", work / f"checkpoints/step-{STEPS - EVERY:06}"
    how, name, changed = damage(newest, older, work, draw)
    done, held = whole.convert(newest, work / "out")
    row = {"how": how, "file": name, "loaded": done.returncode == 0, "changed": changed}
    told = [line for line in done.stderr.splitlines() if line.startswith("heddle: ")]
    if crashed(done):
        return row, f"ended with status {done.returncode}: {done.stderr[-300:]}"
    if done.returncode != 0:
        return row, "" if changed and len(told) == 1 else f"refused with {len(told)} lines: {done.stderr[-300:]}"
    like = held == whole.converted[form]
    intact = not changed or how == "link" or name == "state.json" and same_manifest(
        newest / name, whole.folder / form / f"checkpoints/step-{STEPS:06}" / name)
    return row, "" if intact and like else "a damaged checkpoint loaded"


def gone_on(whole, form, work, draw):
    """A run goes on after its newest checkpoint, or what it had in memory, was damaged."""
    memory = None
    source = {"memory": "killed", "gone on": "shards"}[form]
    shutil.copytree(whole.folder / source, work / "run")
    for name in ("tiny.toml", "text.txt"):
        shutil.copy(whole.folder / name, work)
    shutil.copytree(whole.folder / "prepared", work / "prepared")
    if form == "memory":
        memory = pathlib.Path(f"/dev/shm/heddle-{random.getrandbits(128):032x}")
        shutil.copytree(whole.memory, memory)
        memory.chmod(0o700)
        (work / "run/.memory").write_text(f"{memory}\n")
        row = dict(zip(("how", "file", "changed"), damage(memory, None, work, draw)))
        last = EVERY + 6
    else:
        checkpoints = work / "run/checkpoints"
        newest, older = checkpoints / f"step-{STEPS:06}", checkpoints / f"step-{STEPS - EVERY:06}"
        row = dict(zip(("how", "file", "changed"), damage(newest, older, work, draw)))
        last = STEPS + 2
    try:
        done = train(whole.heddle, work, "--resume", "--steps", str(last), *whole.layout, "--set", "output=run")
    finally:
        if memory:
            shutil.rmtree(memory, ignore_errors=True)
    row["loaded"] = "memory of step" in done.stderr if form == "memory" else "passed over" not in done.stderr
    if done.returncode != 0:
        return row, f"ended with status {done.returncode}: {done.stderr[-300:]}"
    made, order = digests(work / "run")
    wrong = [step for step in range(1, last + 1) if made.get(step) != whole.digests[step]]
    if wrong or order != list(range(1, last + 1)):
        return row, f"other weights in steps {wrong[:3]}: {done.stderr[-300:]}"
    return row, ""


def one(whole, base, seed, number):
    draw = random.Random(f"{seed}:corruption:{number}")
    form = draw.choices(list(FORMS), list(FORMS.values()))[0]
    work = base / f"corruption-{number}"
    work.mkdir()
    try:
        row, wrong = (of_disk if form in ("shards", "whole") else gone_on)(whole, form, work, draw)
    except (OSError, subprocess.TimeoutExpired) as error:
        row, wrong = {}, f"{error!r}"[:500]
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return {"number": number, "seed": seed, "form": form, **row, "violations": [wrong] if wrong else []}


def run(heddle, base, numbers, seed, parallel):
    whole = Whole(heddle, base / "whole")
    with concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        table = list(pool.map(lambda number: one(whole, base, seed, number), numbers))
    by_form = {form: {"runs": sum(r["form"] == form for r in table),
                      "refused": sum(r["form"] == form and not r.get("loaded") for r in table),
                      "violations": sum(r["form"] == form and bool(r["violations"]) for r in table)} for form in FORMS}
    return {"runs": len(table), "violations": sum(bool(r["violations"]) for r in table), "seed": seed, "forms": by_form,
            "table": table}
