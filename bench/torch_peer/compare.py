#!/usr/bin/env python3
"""Compare peers in interleaved rounds, so that a noisy machine disturbs them alike.

    python compare.py --shape shapes/wide.json --dtype bf16 --rounds 9 plain pieces "compiled --attention sdpa"

Each argument is a peer with options of peer.py. All are started and warmed up first, one after the other; then every
round runs one step of each. Prints medians and, per peer, the median over rounds of its time / the first peer's time.
"""
import argparse
import atexit
import json
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", required=True)
    parser.add_argument("--dtype", choices=("bf16", "f32"), required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("peers", nargs="+")
    args = parser.parse_args()
    script = pathlib.Path(__file__).with_name("peer.py")
    running, started = [], []
    atexit.register(lambda: [process.kill() for process in started if process.poll() is None])

    def stop(*_):    # end by way of the line above, undisturbed by further signals
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(143)

    signal.signal(signal.SIGTERM, stop)
    for peer in args.peers:
        process = subprocess.Popen(
            [sys.executable, str(script), "--shape", args.shape, "--dtype", args.dtype, "--threads", str(args.threads),
             "--peer", *shlex.split(peer)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        started.append(process)
        ready = dict(warm_up_step=0)
        while "warm_up_step" in ready:
            ready = json.loads(process.stdout.readline() or '{"error": "ended without a word"}')
        if "error" in ready:
            print(json.dumps(dict(peer=peer, **ready)))
            continue
        ready.pop("ready")
        running.append((peer, process, ready, []))
    for _ in range(args.rounds):
        for _, process, _, times in running:
            process.stdin.write("step\n")
            process.stdin.flush()
            times.append(json.loads(process.stdout.readline()))
    for peer, process, ready, times in running:
        process.stdin.write("quit\n")
        process.stdin.close()
        process.wait()
        wall = [t["seconds"] for t in times]
        ratios = [w / first["seconds"] for w, first in zip(wall, running[0][3])]
        print(json.dumps(dict(
            shape=pathlib.Path(args.shape).stem, run=peer, median_seconds=round(statistics.median(wall), 4),
            least_seconds=round(min(wall), 4),
            median_cpu_seconds=round(statistics.median(t["cpu_seconds"] for t in times), 4),
            ratio_to_first=round(statistics.median(ratios), 3), last_loss=round(times[-1]["loss"], 4), **ready)))


if __name__ == "__main__":
    main()
