"""tools/hosts --self-test: is what tools/hosts promises so on this machine?

Each part runs tools/hosts as a user would, with hosts_probe (or sleep) as the program, and looks at what came of it.
Whatever else runs on this machine can only make a rate lower and a latency longer, so these have three attempts; a rate
above the limit or a latency below the delay fails at once.
"""
import json
import os
import pathlib
import subprocess
import sys
import time

HOSTS = pathlib.Path(__file__).resolve().parent / "hosts"
ATTEMPTS = 3
LEAST_SHARE = 0.95      # of the limit; headers take 0.7 % at this MTU, the rest is room for noise
MOST_EXCESS_US = 60     # of latency above the delay: the way itself takes 6 to 10, a busy machine's scheduler the rest
LEAST_RATIO = 3         # rate within a host over rate between hosts


class Failed(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failed(what)


class SelfTest:
    def __init__(self, rate_bit, latency_ns, build):
        self.rate_mbit, self.latency_us = rate_bit / 1e6, latency_ns / 1e3
        self.build, self.probe = build, pathlib.Path(build, "hosts_probe").resolve()
        self.found = {}

    def hosts(self, *options, program, most_s=60):
        """(exit status, what the program said); raises what tools/hosts raises where it is unable to run."""
        command = [sys.executable, HOSTS, "--build", self.build, *options, "--", *program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=most_s)
        if done.returncode == 77:
            raise Skipped(done.stderr.strip().removeprefix("tools/hosts: skipped: "))
        return done.returncode, done.stdout, done.stderr

    def probed(self, *options, mode, seconds):
        status, said, complaint = self.hosts(*options, program=[self.probe, mode, str(seconds)])
        require(status == 0, f"the probe failed ({status}): {complaint.strip()}")
        found = json.loads(said)
        require(found["hosts"] == ["host0", "host0", "host1", "host1"], f"ranks are on {found['hosts']}")
        return found

    def measured(self, *options):
        found = self.probed("--rate", f"{round(self.rate_mbit * 1e6)}bit", *options, mode="measure", seconds=0.4)
        for way in ("forth_mbit", "back_mbit"):
            require(found["far"][way] <= self.rate_mbit, f"{found['far'][way]} Mbit/s is above the limit")
        return found

    def rate_is_met(self, found):
        return min(found["far"]["forth_mbit"], found["far"]["back_mbit"]) >= LEAST_SHARE * self.rate_mbit

    def check_rate(self):
        for _ in range(ATTEMPTS):
            found = self.found["rate"] = self.measured()
            ratio = found["near"]["forth_mbit"] / found["far"]["forth_mbit"]
            if self.rate_is_met(found) and ratio >= LEAST_RATIO:
                return (f"{found['far']['forth_mbit']:.1f} and {found['far']['back_mbit']:.1f} of {self.rate_mbit:.0f} Mbit/s "
                        f"between hosts, {found['near']['forth_mbit']:.0f} within one")
        raise Failed(f"{found}, with a limit of {self.rate_mbit:.0f} Mbit/s")

    def check_latency(self):
        for _ in range(ATTEMPTS):
            found = self.found["latency"] = self.measured("--latency", f"{round(self.latency_us * 1e3)}ns")
            took_us = found["far"]["latency_us"]
            require(took_us >= self.latency_us, f"{took_us} us is below the delay of {self.latency_us:.0f} us")
            if took_us <= self.latency_us + MOST_EXCESS_US and found["near"]["latency_us"] < took_us:
                return (f"{took_us:.1f} us with a delay of {self.latency_us:.0f} us, "
                        f"{self.found['rate']['far']['latency_us']:.1f} without, {found['near']['latency_us']:.1f} within a host; "
                        f"{found['far']['forth_mbit']:.1f} Mbit/s")
        raise Failed(f"{found}, with a delay of {self.latency_us:.0f} us")

    def check_cut_and_stop(self):
        felt_s = []
        for fault, options in (("--cut", ["1@0.2-0.6"]), ("--cut", ["1@0.2-0.6", "--latency", "1ms"]), ("--stop", ["2@0.2-0.6"])):
            gaps = self.probed(fault, *options, mode="pulse", seconds=0.9)["gaps"]
            # TCP tries again at growing intervals: a cut of 0.4 s is felt until the first try after it.
            require(len(gaps) == 1 and gaps[0][0] < 0.5 and 0.35 <= gaps[0][1] < 1.5,
                    f"{fault} {' '.join(options)} was felt as [when, how long] {gaps}")
            felt_s.append(gaps[0][1])
        self.found["felt_s"] = felt_s
        return "cuts of 0.4 s were felt for {:.2f} s, with a delay {:.2f} s, a stop of 0.4 s for {:.2f} s".format(*felt_s)

    def check_kill(self):
        start = time.monotonic()
        status, _, _ = self.hosts("--kill", "2@0.2", program=[self.probe, "pulse", "30"])
        self.found["kill_s"] = took_s = time.monotonic() - start
        require(status == 128 + 9 and took_s < 20, f"exit status {status} after {took_s:.1f} s")
        return f"a killed rank ended the run with {status} after {took_s:.1f} s in all"

    def check_nothing_is_left(self):
        mark = f"HEDDLE_SELF_TEST={os.getpid()}"
        environment = dict(os.environ, **dict([mark.split("=")]))
        process = subprocess.Popen([sys.executable, HOSTS, "--build", self.build, "--latency", "1ms", "--", "sleep", "100"],
                                   env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def marked():
            found = []
            for folder in pathlib.Path("/proc").iterdir():
                try:
                    if folder.name.isdecimal() and mark.encode() in (folder / "environ").read_bytes().split(b"\0"):
                        found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:
                    pass
            return found

        def wait_until(holds, what):
            end = time.monotonic() + 10
            while not holds():
                require(time.monotonic() < end, f"{what}: {marked()}")
                time.sleep(0.05)

        try:
            wait_until(lambda: sum(line.startswith("sleep 100") for line in marked()) == 4, "four ranks did not start")
            count = len(marked())
        finally:
            process.kill()
            process.wait()
        wait_until(lambda: not marked(), "processes were left behind")
        return f"tools/hosts killed by SIGKILL: all {count} processes went with it"


class Skipped(Exception):
    """This machine is unable."""


def run(rate_bit, latency_ns, build):
    """(exit status, report)."""
    test = SelfTest(rate_bit, latency_ns, build)
    if not test.probe.exists():
        raise Skipped(f"{test.probe} is not there: it is built where CMake finds MPI")
    status, outcome = 0, {}
    for name in ("rate", "latency", "cut_and_stop", "kill", "nothing_is_left"):
        start = time.monotonic()
        try:
            said, passed = getattr(test, f"check_{name}")(), True
        except (Failed, subprocess.TimeoutExpired) as failure:
            said, passed, status = str(failure), False, 1
        outcome[name] = {"passed": passed, "said": said}
        print(f"{'ok    ' if passed else 'FAILED'} {name} ({time.monotonic() - start:.1f} s): {said}", file=sys.stderr, flush=True)
    return status, {"rate_bit": rate_bit, "latency_ns": latency_ns, "checks": outcome, "measured": test.found}
