"""tools/hosts --self-test: is what tools/hosts promises so on this machine?

Each part runs tools/hosts as a user would, with hosts_probe (or sleep) as the program, and looks at what came of it.
Whatever else runs on this machine can make a rate lower, a latency longer and a fault felt for longer, or begin what
should feel it too late; a pause of the whole machine can also shorten what a probe measures. Each bound therefore has
five attempts, and one that holds is enough: a defect breaks them all. Where none holds, a low rate, a long latency and a
long fault still pass if other programs took a share of the cores; a rate above the limit and a latency below the delay
fail.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HOSTS = pathlib.Path(__file__).resolve().parent / "hosts"
ATTEMPTS = 5
LEAST_SHARE = 0.95      # of the limit; headers take 0.7 % at this MTU, the rest is room for noise
MOST_EXCESS_US = 60     # of latency above the delay: the way itself takes 6 to 10, a busy machine's scheduler the rest
LEAST_RATIO = 3         # rate within a host over rate between hosts
LEAST_IDLE = 0.9        # of all cores' time, where nobody else is there
MOST_SECONDS = 300      # of one run, on a machine of which others leave little


class Failed(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Failed(what)


def idle_share(seconds=0.3):
    """Of all cores' time now, while this program sleeps."""
    def read():
        times = [int(word) for word in pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        return times[3] + times[4], sum(times)
    idle, total = read()
    time.sleep(seconds)
    idle_after, total_after = read()
    return (idle_after - idle) / max(1, total_after - total)


class SelfTest:
    def __init__(self, rate_bit, latency_ns, build):
        self.rate_mbit, self.latency_us = rate_bit / 1e6, latency_ns / 1e3
        self.build, self.probe = build, pathlib.Path(build, "hosts_probe").resolve()
        self.found = {}

    def hosts(self, *options, program, most_s=MOST_SECONDS):
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

    def bounded(self, attempt):
        """Returns the words of the first attempt() that held; raises Failed where none did and no other program explains it."""
        idle, broken = [idle_share()], 0
        for _ in range(ATTEMPTS):
            try:
                holds, said = attempt()
            except Failed as failure:
                holds, said, broken = False, str(failure), broken + 1
            if holds:
                return said
            idle.append(idle_share())
        if broken == ATTEMPTS or min(idle) >= LEAST_IDLE:
            raise Failed(said)
        return f"not held to its bounds, for others left {100 * min(idle):.0f} % of the cores: {said}"

    def check_rate(self):
        def attempt():
            found = self.found["rate"] = self.measured()
            ratio = found["near"]["forth_mbit"] / found["far"]["forth_mbit"]
            return self.rate_is_met(found) and ratio >= LEAST_RATIO, (
                f"{found['far']['forth_mbit']:.1f} and {found['far']['back_mbit']:.1f} of {self.rate_mbit:.0f} Mbit/s "
                f"between hosts, {found['near']['forth_mbit']:.0f} within one")
        return self.bounded(attempt)

    def check_latency(self):
        def attempt():
            found = self.found["latency"] = self.measured("--latency", f"{round(self.latency_us * 1e3)}ns")
            took_us = found["far"]["latency_us"]
            require(took_us >= self.latency_us, f"{took_us} us is below the delay of {self.latency_us:.0f} us")
            return took_us <= self.latency_us + MOST_EXCESS_US and found["near"]["latency_us"] < took_us, (
                f"{took_us:.1f} us with a delay of {self.latency_us:.0f} us, "
                f"{self.found['rate']['far']['latency_us']:.1f} without, {found['near']['latency_us']:.1f} within a host; "
                f"{found['far']['forth_mbit']:.1f} Mbit/s")
        return self.bounded(attempt)

    def check_cut_and_stop(self):
        felt_s = self.found["felt_s"] = []

        def attempt(fault, options):
            with tempfile.NamedTemporaryFile("r") as file:
                gaps = self.probed(fault, *options, "--json", file.name, mode="pulse", seconds=1.5)["gaps"]
                faults = json.loads(file.read())["faults"]
            if len(faults) < 2:
                return False, f"the probe ended before the fault did: {faults}"
            lasted = faults[1]["begun_s"] - faults[0]["after_s"]
            longest = max((gap[1] for gap in gaps), default=0)
            # A pulse that is under way when the fault comes, and the probe's own clock, take a little of it.
            # Where others leave it no core, the probe may begin when all is over.
            if longest < lasted - 0.05 and lasted >= 0.3:
                return False, f"{fault} {' '.join(options)} lasted {lasted:.2f} s and was felt as [when, how long] {gaps}"
            felt_s.append(longest)
            # TCP tries again at growing intervals: a cut of 0.4 s is felt until the first try after it.
            return len(gaps) == 1 and gaps[0][0] < 0.5 and gaps[0][1] < 1.5, f"felt as {gaps}"

        said = []
        for fault, options in (("--cut", ["1@0.2-0.6"]), ("--cut", ["1@0.2-0.6", "--latency", "1ms"]), ("--stop", ["2@0.2-0.6"])):
            said.append(f"{fault} {' '.join(options)}: " + self.bounded(lambda: attempt(fault, options)))
        return "; ".join(said)

    def check_kill(self):
        start = time.monotonic()
        status, _, _ = self.hosts("--kill", "2@0.2", program=[self.probe, "pulse", "30"])
        self.found["kill_s"] = took_s = time.monotonic() - start
        require(status == 128 + 9, f"exit status {status} after {took_s:.1f} s")
        return f"a killed rank ended the run with {status} after {took_s:.1f} s in all"

    def check_nothing_is_left(self):
        mark = f"HEDDLE_SELF_TEST={os.getpid()}"
        environment = dict(os.environ, **dict([mark.split("=")]))
        process = subprocess.Popen([sys.executable, HOSTS, "--build", self.build, "--latency", "1ms", "--", "sleep", "1000"],
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
            end = time.monotonic() + MOST_SECONDS / 3
            while not holds():
                require(time.monotonic() < end, f"{what}: {marked()}")
                time.sleep(0.05)

        try:
            wait_until(lambda: sum(line.startswith("sleep 1000") for line in marked()) == 4, "four ranks did not start")
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
