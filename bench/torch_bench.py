#!/usr/bin/env python3
"""Heddle's training step against PyTorch's, in interleaved pairs of one run:  ./dev bench torch [--json]

For each shape (bench/torch_peer/shapes) and dtype, Heddle (build/bench_torch_step) and every peer (torch_peer/peer.py
says which and what a step is) start and warm up one after the other; then, in each round and for each peer, one step
of Heddle and one of the peer run back to back, in alternating order. A pair gives a ratio peer ÷ Heddle; a noisy
machine disturbs both sides of it alike. "ratio_vs_torch" is the median ratio against the fastest peer: that with the
least median time. All have the same threads, batch and dtype. A peer that fails or exceeds its time is named with the
reason and leaves the others alone; pairs that it has measured until then count. A side has --side-limit seconds for a
shape and dtype, all sides together --limit.
"""
import argparse
import itertools
import json
import os
import pathlib
import platform
import queue
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "support"))
import stops  # noqa: E402

SHAPES = ("demo", "small_experts", "wide")
DTYPES = ("bf16", "f32")
PEERS = ("plain", "pieces", "transformers", "compiled")
# On a GPU (docs/howto/gpu.md), where memory has room for Heddle and one peer at a time.
GPU_SHAPES = ("v2_lite",)
GPU_PEERS = ("transformers", "compiled", "megatron")


class Failed(Exception):
    pass


class Process:
    """One side of the comparison, spoken to in lines of JSON. It has so many seconds in all for its answers."""

    def __init__(self, name, command, seconds):
        self.name, self.left, self.limit, self.warmed = name, seconds, seconds, []
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
                                        text=True, start_new_session=True)    # Ctrl-C is for this program alone
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def answer(self, seconds):
        """The next answer, for which it has `seconds`, but no more than are left of its own."""
        begun, room = time.monotonic(), min(seconds, self.left)
        told = {}
        while not told or "warm_up_step" in told:
            told = self._line(room - (time.monotonic() - begun), room)
            if "warm_up_step" in told:
                self.warmed.append(told["warm_up_step"])
        self.left -= time.monotonic() - begun
        return told

    def _line(self, seconds, room):
        try:
            line = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            of = f", all that was left of its {self.limit:.0f} s (--side-limit)" if room == self.left else ""
            steps = "".join(f", {s:.1f} s" for s in self.warmed)
            raise Failed(f"no answer within {room:.0f} s{of}" +
                         (f"; steps of its warm-up took{steps[1:]}" if self.warmed else "")) from None
        if line is None:
            self.process.wait()
            self.errors.seek(0)
            last = self.errors.read().strip().splitlines()[-1:] or ["without a word"]
            raise Failed(f"ended with status {self.process.returncode}: {last[0][:300]}")
        told = json.loads(line)
        if "error" in told:
            raise Failed(told["error"][:500])
        return told

    def step(self, seconds):
        try:
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass    # answer() tells why it ended
        return self.answer(seconds)

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.errors.close()


def spread(values):
    return dict(min=round(min(values), 3), median=round(statistics.median(values), 3), max=round(max(values), 3))


def compare(shape, dtype, peers, args, say, result):
    """One shape and dtype, into `result`, whatever it ends with. Raises Failed when Heddle itself fails."""
    common = ["--shape", str(HERE / "torch_peer/shapes" / f"{shape}.json"), "--dtype", dtype, "--threads",
              str(args.threads), "--device", args.device]
    failures, sides, ended, started = [], [], [], []
    try:
        say(f"{shape} {dtype}: warming up heddle")
        heddle = Process("heddle", [str(args.program), *common], args.side_limit)
        started.append(heddle)
        facts = heddle.answer(args.side_limit)
        result.update(parameters=facts["parameters"], tokens_per_step=facts["tokens_per_step"],
                      flops_per_step=facts["flops_per_step"], memory={k: facts[k] for k in facts if k.endswith("_bytes")})
        for name in peers:
            say(f"{shape} {dtype}: warming up {name}")
            peer = Process(name, [*args.peer_program, *common, "--peer", name], args.side_limit)
            started.append(peer)
            try:
                told = peer.answer(args.side_limit)
                told.pop("ready")
                sides.append((peer, told, []))
            except Failed as reason:
                peer.end()
                failures.append(dict(name=name, failed=str(reason)))
        for turn in range(args.rounds):
            say(f"{shape} {dtype}: round {turn + 1} of {args.rounds}")
            for side in list(sides):
                peer, _, pairs = side
                try:
                    if turn % 2:
                        theirs = peer.step(args.step_limit)
                        ours = heddle.step(args.step_limit)
                    else:
                        ours = heddle.step(args.step_limit)
                        theirs = peer.step(args.step_limit)
                    pairs.append((ours, theirs))
                except Failed as reason:
                    if heddle.process.poll() is not None or heddle.left <= 0:
                        raise
                    peer.end()
                    if pairs:    # they are as good as any
                        say(f"{shape} {dtype}: {peer.name} after {len(pairs)} pairs: {reason}", lasting=True)
                        ended.append(side)
                    else:
                        failures.append(dict(name=peer.name, failed=str(reason)))
                    sides.remove(side)
    finally:
        for process in started:
            process.end()
        summarise(result, [side for side in ended + sides if side[2]], failures)


def summarise(result, sides, failures):
    ours = [o for _, _, pairs in sides for o, _ in pairs]
    if ours:
        result["heddle"] = dict(
            median_seconds=round(statistics.median(o["seconds"] for o in ours), 5),
            median_cpu_seconds=round(statistics.median(o["cpu_seconds"] for o in ours), 5),
            last_loss=round(ours[-1]["loss"], 4))
    result["peers"] = failures + [dict(
        name=peer.name, pairs=len(pairs), median_seconds=round(statistics.median(t["seconds"] for _, t in pairs), 5),
        median_cpu_seconds=round(statistics.median(t["cpu_seconds"] for _, t in pairs), 5),
        ratio=spread([t["seconds"] / o["seconds"] for o, t in pairs]), last_loss=round(pairs[-1][1]["loss"], 4),
        facts=facts) for peer, facts, pairs in sides]
    timed = [peer for peer in result["peers"] if "ratio" in peer]
    if timed:
        fastest = min(timed, key=lambda peer: peer["median_seconds"])
        result.update(fastest_peer=fastest["name"], ratio_vs_torch=fastest["ratio"]["median"], ratio=fastest["ratio"])


def work(result, seconds, args):
    """Model FLOP/s of a side and, where the peak is known, its share: the same work for all, counted once."""
    rate = result["flops_per_step"] / seconds
    share = f", MFU {rate / (args.peak_tflops * 1e12):.3f}" if args.peak_tflops else ""
    return f"{result['tokens_per_step'] / seconds:10.0f} tokens/s {rate / 1e12:8.2f} TFLOP/s{share}"


def memory(told):
    return "".join(f", {name[:-len('_bytes')]} {told[name] / 2**30:.2f} GiB" for name in told if name.endswith("_bytes"))


def table(result, args):
    tokens = result["tokens_per_step"]
    lines = [f"{result['shape']} {result['dtype']}: {result['parameters'] / 1e6:.1f} M parameters, {tokens} tokens a step"]
    if "heddle" in result:
        seconds = result["heddle"]["median_seconds"]
        lines.append(f"  {'heddle':14}{seconds * 1e3:10.1f} ms{work(result, seconds, args)}{memory(result['memory'])}")
    for peer in result["peers"]:
        if "failed" in peer:
            lines.append(f"  {peer['name']:14}failed: {peer['failed']}")
            continue
        seconds, ratio = peer["median_seconds"], peer["ratio"]
        fastest = "  <- fastest peer" if peer["name"] == result["fastest_peer"] else ""
        lines.append(f"  {peer['name']:14}{seconds * 1e3:10.1f} ms{work(result, seconds, args)}{memory(peer['facts'])}; "
                     f"heddle is {ratio['median']:.2f} times as fast ({ratio['min']:.2f} to {ratio['max']:.2f}){fastest}")
    return "\n".join(lines)


def words(accepted):
    def parse(text):
        chosen = [word for word in text.split(",") if word]
        wrong = [word for word in chosen if word not in accepted]
        if wrong or not chosen:
            raise argparse.ArgumentTypeError(f"{', '.join(wrong) or 'nothing'}: accepted are {', '.join(accepted)}")
        return chosen
    return parse


def arguments():
    parser = argparse.ArgumentParser(prog="./dev bench torch", description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output instead of tables")
    parser.add_argument("--quick", action="store_true", help="demo only, peers that need no compiler, 5 rounds")
    parser.add_argument("--rounds", type=int, help="pairs a peer (default 15)")
    parser.add_argument("--shapes", type=words(SHAPES + GPU_SHAPES),
                        help=f"comma-separated, of {', '.join(SHAPES + GPU_SHAPES)}")
    parser.add_argument("--dtypes", type=words(DTYPES), help=f"comma-separated, of {', '.join(DTYPES)}")
    parser.add_argument("--peers", type=words(dict.fromkeys(PEERS + GPU_PEERS)),
                        help=f"comma-separated, of {', '.join(dict.fromkeys(PEERS + GPU_PEERS))}")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where all sides run")
    parser.add_argument("--peak-tflops", type=float, help="the device's peak in this dtype: prints MFU")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores")
    parser.add_argument("--limit", **stops.LIMIT)
    parser.add_argument("--side-limit", type=float, default=600, metavar="SECONDS",
                        help="seconds that a side may take for a shape and dtype, warm-up and steps (default 600)")
    parser.add_argument("--step-limit", type=float, default=120, help="seconds a step may take (default 120)")
    parser.add_argument("--program", type=pathlib.Path, default=HERE.parent / "build/bench_torch_step")
    parser.add_argument("--peer-program", type=shlex.split, metavar="COMMAND",
                        default=[sys.executable, str(HERE / "torch_peer/peer.py")], help=argparse.SUPPRESS)    # of its test
    args = parser.parse_args()
    args.rounds = args.rounds or (5 if args.quick else 15)
    gpu = args.device == "cuda"
    args.shapes = args.shapes or (list(GPU_SHAPES) if gpu else ["demo"] if args.quick else list(SHAPES))
    args.dtypes = args.dtypes or (["bf16"] if gpu else list(DTYPES))
    args.peers = args.peers or (["plain", "transformers"] if args.quick else list(GPU_PEERS if gpu else PEERS))
    return args


def main():
    args = arguments()
    shown = sys.stderr.isatty()

    def say(text, lasting=False):
        """On a terminal one line that changes; elsewhere what is begun, but not each round."""
        if shown:
            print(f"\r\033[K{text}", end="\n" if lasting else "", file=sys.stderr, flush=True)
        elif text and (lasting or ": round " not in text):
            print(text, file=sys.stderr, flush=True)

    results, status, start = [], 0, time.monotonic()
    groups = [[peer] for peer in args.peers] if args.device == "cuda" else [args.peers]
    say(f"Each side has at most {args.side_limit:.0f} s for a shape and dtype (--side-limit), {args.step_limit:.0f} s for a "
        "step (--step-limit).", lasting=True)

    def told(result):
        results.append(result)
        if not args.json:
            print(f"{result['shape']} {result['dtype']}: {result['failed']}" if "failed" in result else table(result, args),
                  flush=True)

    result = {}
    with stops.watched("./dev bench torch", args.limit) as stop:
        for shape, dtype, peers in itertools.product(args.shapes, args.dtypes, groups):
            result = dict(shape=shape, dtype=dtype)
            try:
                compare(shape, dtype, peers, args, say, result)
            except Failed as reason:
                result["failed"] = f"heddle: {reason}"
            if "ratio_vs_torch" not in result:
                status = 1
            say("")
            told(result)
            result = {}
    if stop.status and "heddle" in result:    # pairs of the comparison that was under way
        told(result)
    if args.json:
        print(json.dumps(dict(
            benchmark="torch", device=args.device, threads=args.threads, rounds=args.rounds, machine=platform.machine(),
            seconds=round(time.monotonic() - start, 1),
            ratio_vs_torch={"/".join((r["shape"], r["dtype"], *[r["fastest_peer"]][:args.device == "cuda"])):
                            r["ratio_vs_torch"] for r in results if "ratio_vs_torch" in r},
            results=results), indent=1))
    return stop.status or status


if __name__ == "__main__":
    sys.exit(main())
