#!/usr/bin/env python3
"""Damaged input of every kind against the program as users have it: it must refuse each in one line, or work.

    mutate_inputs.py HEDDLE [--inputs N] [--seed S] [--first N] [--only KIND] [--parallel N] [--json] [--keep FOLDER]

Kinds: checkpoints of one rank and of shards (and their manifests, with checksums made right), times of ops, logs, alarms,
configurations, tokenizers, JSON lines, launch scripts, released models, and frames to an agent by one that knows the token.
Each input is made of its number and the seed alone: bytes flipped, cut, doubled and exchanged; numbers and values of JSON, TOML and scripts
exchanged for others that are meant to hurt. Counted as a fault: an end by a signal or with a status other than 0, 1, 2, words of
a bug or of a library, more than 10 s of processor time or 60 s in all, more than 512 MiB. A search or simulation that has
begun is ended: its script has been read. Exit status 1 where there is a fault.
"""
import argparse
import concurrent.futures
import contextlib
import copy
import hashlib
import hmac
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tests/job"))
from emulated import write_inputs  # noqa: E402

CPU_SECONDS, WALL_SECONDS, MOST_MIB, KILL_MIB = 10, 60, 512, 1536
SEARCHES = re.compile("searching for a better plan|simulating the best")
WORDS = re.compile(r"this is a bug|terminate called|json\.exception|std::|basic_string|vector::|Assertion|runtime error|stoll|stod")
TOKEN = "0123456789abcdef0123456789abcdef"

# ---- what becomes of an input

NUMBERS = ("0", "-1", "1", "2", "7", "255", "65536", "2147483647", "2147483648", "-2147483649", "4294967296", "9007199254740993",
           "9223372036854775807", "9223372036854775808", "-9223372036854775808", "18446744073709551616", "1e308", "-1e308", "1e999",
           "1e-320", "0.5", "NaN", "Infinity", "-0.0", "1" * 400, "0x10", "1_000")
VALUES = (None, True, False, 0, -1, 1, 2**31, 2**53 + 1, 2**63 - 1, -2**63, 2**64, 1e308, 0.5, "", "x", "\0", "\ud83d\ude00", "x" * 5000,
          "../../etc/passwd", "/dev/zero", "nan", [], {}, [[]], [None], {"": 0}, [0] * 200, [2**40, 2**40], "%s%n", "\x1b[2J")


def of_bytes(held, draw):
    made = bytearray(held)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 16))):
        how = draw.randrange(7)
        size = len(made)
        at, to = (draw.randrange(size + 1) for _ in range(2))
        if how == 0 and size:
            made[at % size] ^= 1 << draw.randrange(8)
        elif how == 1 and size:
            made[at % size] = draw.choice((0, 255, 34, 91, 123, 92, 10, 127, draw.randrange(256)))
        elif how == 2:
            del made[at:]
        elif how == 3:
            del made[at:at + draw.choice((1, 4, 64, 1024))]
        elif how == 4:
            made[at:at] = draw.choice((draw.randbytes(draw.choice((1, 8, 300))), made[to:to + draw.choice((8, 256, 4096))],
                                       b"[" * draw.choice((10, 3000)), b'{"a":' * draw.choice((10, 3000)), b"\xff\xfe", b"\n" * 50))
        elif how == 5 and size:
            made[at % size:at % size + 8] = struct.pack("<q", draw.choice((0, -1, 1, 2**31, 2**40, 2**62, 2**63 - 1)))
        elif how == 6:
            made[to:to + 16], made[at:at + 16] = made[at:at + 16], made[to:to + 16]
    return bytes(made[:1 << 22])


def of_text(held, draw):
    """Numbers and words of it for others."""
    text = held.decode("utf-8", "surrogateescape")
    for _ in range(draw.choice((1, 1, 2, 3))):
        how = draw.randrange(5)
        if how < 3:
            places = [m.span() for m in re.finditer(r"-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", text)]
            made = draw.choice(NUMBERS)
        elif how == 3:
            places = [m.span() for m in re.finditer(r"[A-Za-z_][A-Za-z_0-9.\-]*", text)]
            made = draw.choice(("", "x", "true", "null", "$(", "${A", "`", "'", '"', "\\", "é" * 300, "a" * 9000, "--", "=", "[", "]]", "#"))
        else:
            places = [m.span() for m in re.finditer(r"[^\n]*\n", text)]
            first, last = draw.choice(places) if places else (0, 0)
            made = draw.choice(("", text[first:last] * 2, text[first:last] * 300))
        if places:
            first, last = draw.choice(places) if how != 4 else (first, last)
            text = text[:first] + made + text[last:]
    return text.encode("utf-8", "surrogateescape")[:1 << 22]


def paths_of(value, at=()):
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in list(items)[:200]:
        yield from paths_of(one, (*at, key))


def other_json(root, draw):
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at = draw.choice(list(paths_of(root)))
        if not at:
            return copy.deepcopy(draw.choice(VALUES))
        inner = root
        for key in at[:-1]:
            inner = inner[key]
        key, how = at[-1], draw.randrange(6)
        if how == 0:
            del inner[key]
        elif how == 1 and isinstance(inner, list):
            inner.extend(copy.deepcopy(inner[key]) for _ in range(draw.choice((1, 3, 500))))
        elif how == 1:
            inner[draw.choice(("", "x", f"{key}x", "__proto__"))] = inner.pop(key)
        elif how == 2 and isinstance(inner[key], (int, float)) and not isinstance(inner[key], bool):
            inner[key] = draw.choice((inner[key] + 1, -inner[key], inner[key] * 2, inner[key] * 2**40, inner[key] + 0.5))
        else:
            inner[key] = copy.deepcopy(draw.choice(VALUES))
    return root


def dumped(root, **how):
    return json.dumps(root, ensure_ascii=True, allow_nan=True, **how).encode()


def of_json(held, draw):
    if draw.random() < 0.3:
        return (of_text if draw.random() < 0.5 else of_bytes)(held, draw)
    try:
        return dumped(other_json(json.loads(held), draw))
    except (ValueError, RecursionError, IndexError, KeyError, TypeError):
        return of_bytes(held, draw)


def of_lines(held, draw):
    """A line of JSON lines."""
    lines = held.split(b"\n")
    at = draw.randrange(len(lines))
    lines[at] = of_json(lines[at], draw) if lines[at] else of_bytes(held, draw)[:4096]
    return b"\n".join(lines)


TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82f63b78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


def of_manifest(held, draw):
    """With its checksum made right, so that what it says is looked at."""
    if draw.random() < 0.2:
        return of_bytes(held, draw)
    state = other_json(json.loads(held)["state"], draw)
    said = json.dumps(state, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    whole = {"checksum": f"{crc32c(said):08x}", "state": state}
    return (json.dumps(whole, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def of_safetensors(held, draw):
    if len(held) < 8 or draw.random() < 0.3:
        return of_bytes(held, draw)
    (size,) = struct.unpack("<Q", held[:8])
    header = of_json(held[8:8 + size], draw)
    if draw.random() < 0.1:
        size = draw.choice((0, 1, 2**31, 2**63, 2**64 - 1))
        return struct.pack("<Q", size) + header + held[8 + size:]
    return struct.pack("<Q", len(header)) + header + held[8 + size:]


# ---- the kinds: what is damaged, and what reads it

class Kinds:
    def __init__(self, heddle, folder):
        self.heddle, self.folder = heddle, folder
        write_inputs(folder)
        (folder / "samples.jsonl").write_text("".join(json.dumps({"text": f"warp and weft {n}", "weight": n / 7, "messages": [
            {"role": "user", "content": f"what is {n}?"}, {"role": "assistant", "content": f"a number {n}"}]}) + "\n" for n in range(20)))
        common = ("--quiet", "--steps", "6", "--set", "train.checkpoint_every=3", "--set", "train.op_times_steps=2-3")
        self.run("train", "tiny.toml", *common, "--set", "output=whole")
        self.run("train", "tiny.toml", *common, "--set", "output=shards", "--set", "mesh.ranks=2", "--ranks", "2")
        self.run("convert", "whole", "--to", "released")
        (folder / "whole/alarms.jsonl").touch()
        seeds = ROOT / "tests/fuzz/seeds"
        scripts = sorted([*(ROOT / "examples/launch").glob("*.sh"), *seeds.glob("*.sh")])
        tokenizers = sorted(p for p in (ROOT / "tests/fixtures/tokenizers").glob("*.json") if p.stat().st_size < 400_000)
        configs = [folder / "tiny.toml", *sorted((ROOT / "examples").glob("*.toml"))]
        step = "checkpoints/step-000006"
        self.all = {    # name -> (share, files or folders to choose from, files below it, mutations, command on the copy)
            "checkpoint": (10, [folder / f"whole/{step}", folder / f"shards/{step}"], "*.safetensors", (of_safetensors, of_bytes),
                           lambda at: ("convert", at, "--to", f"{at}-out")),
            "manifest": (14, [folder / f"whole/{step}", folder / f"shards/{step}"], "state.json", (of_manifest,),
                         lambda at: ("convert", at, "--to", f"{at}-out")),
            "released model": (8, [folder / "released"], "*", (of_json, of_safetensors), lambda at: ("convert", at, "--to", f"{at}-out")),
            "times of ops": (8, [folder / "whole"], "op*times*.json", (of_json,), lambda at: ("report", at, "--html", f"{at}.html")),
            "log": (10, [folder / "whole"], "metrics.jsonl", (of_lines, of_text, of_bytes), lambda at: ("report", at)),
            "run's files": (8, [folder / "whole"], "*.json*", (of_json, of_lines, of_bytes), lambda at: ("report", at)),
            "configuration": (14, configs, "", (of_text, of_text, of_bytes), lambda at: ("inspect", at)),
            "tokenizer": (10, tokenizers, "", (of_json, of_text, of_bytes),
                          lambda at: ("data", folder / "text.txt", "--out", f"{at}-out", "--tokenizer", at, "--threads", "1")),
            "JSON lines": (10, [folder / "samples.jsonl"], "", (of_lines, of_text, of_bytes),
                           lambda at: ("data", at, "--out", f"{at}-out", "--vocabulary", "300", "--key", "text", "--threads", "1")),
            "launch script": (8, scripts, "", (of_text, of_text, of_bytes),
                              lambda at: ("search", "--from", at, "--cluster", "H100", "--emit", "heddle", "--out", f"{at}-out")),
        }

        for name, (_, sources, _, _, command) in self.all.items():    # of whole ones those that are taken, and there must be some
            sources[:] = [source for source in sources if self.takes(source, command)]
            if not sources:
                raise RuntimeError(f"{name}: no whole input is taken")

    def takes(self, source, command):
        place = self.folder / "taken"
        place.mkdir()
        at = place / source.name
        if source.is_dir():
            shutil.copytree(source, at, symlinks=True)
        else:
            shutil.copy(source, at)
        status, *_ = watched([self.heddle, *command(at)], place)
        shutil.rmtree(place)
        return status == 0

    def run(self, *words):
        done = subprocess.run([self.heddle, *words], cwd=self.folder, capture_output=True, text=True, env=environment(self.folder))
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stderr}")

    def input_of(self, name, draw, place):
        """Makes the damaged input; the command that reads it."""
        _, sources, below, mutations, command = self.all[name]
        source = draw.choice(sources)
        at = place / source.name
        if source.is_dir():
            shutil.copytree(source, at, symlinks=True)
            files = sorted(p for p in at.rglob(below) if p.is_file() and p.stat().st_size > 0)
            damaged = draw.choice(files)
        else:
            shutil.copy(source, at)
            damaged = at
        damaged.write_bytes(draw.choice(mutations)(damaged.read_bytes(), draw))
        return command(at)


def environment(folder):
    return {**os.environ, "NO_COLOR": "1", "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1", "HOME": str(folder)}


def watched(words, folder):
    """Status, what it said, seconds of the processor, MiB."""
    with open(folder / "said", "w+", encoding="utf-8", errors="replace") as said:
        job = subprocess.Popen(list(map(str, words)), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said,
                               env=environment(folder))
        began, killed = time.monotonic(), ""
        while True:
            pid, status, usage = os.wait4(job.pid, os.WNOHANG)
            if pid:
                break
            with contextlib.suppress(OSError, IndexError, ValueError):
                pages = int(pathlib.Path(f"/proc/{job.pid}/statm").read_text().split()[1])
                if pages * 4 > KILL_MIB * 1024:
                    killed = f"more than {KILL_MIB} MiB"
            if SEARCHES.search((folder / "said").read_text(errors="replace")):
                job.send_signal(signal.SIGKILL)    # it has read its input; a search takes what it takes
                os.waitpid(job.pid, 0)
                job.returncode = 0
                return 0, "", 0, 0, ""
            if time.monotonic() - began > WALL_SECONDS:
                killed = f"more than {WALL_SECONDS} s"
            if killed:
                job.send_signal(signal.SIGKILL)
            time.sleep(0.01)
        job.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read(1 << 16)
    return job.returncode, text, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, killed


def faults_of(status, said, cpu_s, mib, killed):
    found = [killed] if killed else []
    if not killed and status not in (0, 1, 2):
        found.append(f"ended with status {status}")
    if WORDS.search(said):
        found.append("words of a bug or a library")
    if cpu_s > CPU_SECONDS:
        found.append(f"{cpu_s:.1f} s of the processor")
    if mib > MOST_MIB:
        found.append(f"{mib:.0f} MiB")
    ours = [line for line in said.splitlines() if line.startswith("heddle: ") and not line.startswith("heddle: warning")]
    if status in (1, 2) and not ours:
        found.append("refused without a line")
    return found


# ---- frames to an agent, by one that knows the token

class Agent:
    def __init__(self, heddle, folder):
        self.folder = folder
        folder.mkdir()
        (folder / "token").write_text(TOKEN + "\n")
        self.process = subprocess.Popen([heddle, "agent", "run", "--listen", "lo", "--token-file", "token"], cwd=folder, text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        words = self.process.stdout.readline().split()
        self.address, self.memory = words[4], pathlib.Path(words[6])
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def hold_a_run(self, heddle, folder):
        """It keeps what a run that was killed had in memory: what lies in there beside the values."""
        words = ["--quiet", "--steps", "4000", "--set", "train.snapshot_every=1", "--set", "output=held"]
        job = subprocess.Popen([heddle, "train", "tiny.toml", *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               env={**environment(folder), "HEDDLE_AGENT": str(self.memory)})
        while job.poll() is None and not list(self.memory.glob("rank-*.seal-1")):
            time.sleep(0.01)
        held = [path.read_bytes() for end in ("index", "seal-0", "seal-1") for path in self.memory.glob(f"rank-*.{end}")]
        job.kill()
        job.wait()
        return held

    def connected(self):
        host, port = self.address.rsplit(":", 1)
        one = socket.create_connection((host, int(port)), timeout=WALL_SECONDS)
        said = b""
        while len(said) < 15 + 32 and (more := one.recv(15 + 32 - len(said))):
            said += more
        nonce = os.urandom(32)
        proof = hmac.new(TOKEN.encode(), b"heddle agent, caller " + said[15:] + nonce + self.address.encode(), hashlib.sha256).digest()
        one.sendall(nonce + proof)
        while len(said) < 15 + 64 and (more := one.recv(32)):
            said += more
        return one

    def visited(self, draw, indexes):
        frames = []
        for _ in range(draw.randint(1, 4)):
            kind = draw.choice(b"AVRIBSHKN\0\xff")
            name = f"rank-{draw.randrange(99999):05}-{draw.getrandbits(128):032x}".encode()
            body = {ord("I"): draw.choice((name, b"../x", name[:9])) + b"\n" + draw.choice((of_json, of_manifest))(indexes[0], draw),
                    ord("B"): draw.choice((b"0", b"1", b"9", b"")) + struct.pack("<q", draw.choice((0, -1, 4096, 2**40, 2**63 - 1))) + bytes(99),
                    ord("S"): draw.choice((b"0", b"1", b"x")) + draw.choice((of_json, of_manifest))(draw.choice(indexes), draw),
                    ord("V"): struct.pack("<qqq", *(draw.choice((0, -1, 1, 2, 2**62)) for _ in range(3))),
                    ord("R"): struct.pack("<qqq", *(draw.choice((0, -1, 1, 4096, 2**22, 2**62)) for _ in range(3)))}.get(kind, b"")
            if draw.random() < 0.3:
                body = of_bytes(body, draw)
            size = len(body) if draw.random() < 0.9 else draw.choice((0, 1, 2**23 - 1, 2**23, 2**32 - 1))
            frames.append(struct.pack("<I", size) + bytes([kind]) + body)
        with contextlib.suppress(OSError), self.connected() as one:
            one.sendall(b"".join(frames))
            one.shutdown(socket.SHUT_WR)
            one.settimeout(20)
            while one.recv(1 << 16):
                pass
        found = []
        if self.process.poll() is not None:
            found.append(f"the agent ended with status {self.process.returncode}: {self.process.stderr.read()[-300:]}")
        else:
            pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
            held = sum(p.stat().st_blocks * 512 for p in self.memory.rglob("*") if p.is_file())
            if pages * 4 / 1024 > MOST_MIB:
                found.append(f"the agent has {pages * 4 // 1024} MiB")
            if held > MOST_MIB << 20:
                found.append(f"{held >> 20} MiB in the agent's folder")
        return found

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(timeout=WALL_SECONDS)
        finally:
            self.process.kill()
            shutil.rmtree(self.memory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description="Damaged input of every kind against the program.")
    parser.add_argument("heddle", type=lambda text: pathlib.Path(text).resolve())
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="number of the first input")
    parser.add_argument("--only", action="append", help="a kind; may be given again")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seconds", type=float, help="begin no further input after so long")
    parser.add_argument("--keep", type=pathlib.Path, help="inputs that were counted are kept here")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    base = pathlib.Path(tempfile.mkdtemp(prefix="heddle-mutate-")).resolve()
    (base / "base").mkdir()
    agent, began = None, time.monotonic()
    try:
        kinds = Kinds(given.heddle, base / "base")
        agent = Agent(given.heddle, base / "agent")
        names = given.only or [*kinds.all, "agent's frames"]
        shares = [kinds.all[name][0] if name in kinds.all else 10 for name in names]
        indexes = agent.hold_a_run(given.heddle, base / "base")
        counts = {name: {"inputs": 0, "refused": 0, "faults": 0, "most_s": 0.0, "most_mib": 0} for name in names}
        counted = []

        def one(number):
            draw = random.Random(f"{given.seed}:{number}")
            name = draw.choices(names, shares)[0]
            if given.seconds and time.monotonic() - began > given.seconds:
                return None
            if name not in kinds.all:
                return name, number, 0, "", 0, 0, agent.visited(draw, indexes)
            place = base / f"input-{number}"
            place.mkdir()
            try:
                words = kinds.input_of(name, draw, place)
                status, said, cpu_s, mib, killed = watched([given.heddle, *words], place)
                found = faults_of(status, said, cpu_s, mib, killed)
                if found and given.keep:
                    shutil.copytree(place, given.keep / f"{given.seed}-{number}", symlinks=True, dirs_exist_ok=True)
                return name, number, status, said, cpu_s, mib, found
            finally:
                shutil.rmtree(place, ignore_errors=True)

        with concurrent.futures.ThreadPoolExecutor(given.parallel) as pool:
            for done in pool.map(one, range(given.first, given.first + given.inputs)):
                if done is None:
                    continue
                name, number, status, said, cpu_s, mib, found = done
                row = counts[name]
                row["inputs"] += 1
                row["refused"] += status != 0
                row["most_s"], row["most_mib"] = max(row["most_s"], round(cpu_s, 2)), max(row["most_mib"], int(mib))
                if found:
                    row["faults"] += 1
                    counted.append({"number": number, "kind": name, "faults": found, "said": said[-300:]})
                    print(f"{number}: {name}: {'; '.join(found)}: {said[-200:].strip()}", file=sys.stderr, flush=True)
    finally:
        if agent:
            agent.end()
        shutil.rmtree(base, ignore_errors=True)
    total = {"inputs": sum(row["inputs"] for row in counts.values()), "faults": len(counted), "seed": given.seed}
    if given.json:
        print(json.dumps({**total, "kinds": counts, "counted": counted}, indent=1))
    else:
        for name, row in counts.items():
            print(f"{name:16} {row['inputs']:6} inputs, {row['refused']:6} refused, at most {row['most_s']:5.2f} s and {row['most_mib']:4} MiB, "
                  f"{row['faults']} faults")
        print(f"{total['inputs']} inputs, {total['faults']} faults (seed {given.seed})")
    sys.exit(1 if counted else 0)


if __name__ == "__main__":
    main()
