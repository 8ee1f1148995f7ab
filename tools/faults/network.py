"""Faults of links between hosts that have a network of their own (tools/hosts): cut, cut one way, apart, flapping, slow, and
frames with a bit flipped."""
import os
import pathlib
import subprocess
import time

from emulated import EVERY, ROOT, STEPS, Job

HOSTS = ROOT / "tools/hosts"
LATENCY = "20us"     # its switch is the one that cuts one way


class NetworkJob(Job):
    """The supervisor runs on host 0, whose link stays."""

    def __init__(self, heddle, *arguments, **options):
        super().__init__(heddle, *arguments, **options)
        self.hosts = [f"host{i}" for i in range(len(self.hosts))]
        (self.folder / "hosts").write_text("".join(f"{host} slots=1\n" for host in self.hosts))
        self.pipe = self.folder / "orders"
        os.mkfifo(self.pipe)
        self.orders = os.open(self.pipe, os.O_RDWR)    # open for as long as the job lasts: nobody waits for the other end

    def command(self):
        inner = super().command()
        inner[inner.index("--shell") + 1] = str(ROOT / "tools/networked_host")
        return [HOSTS, "--hosts", str(len(self.hosts)), "--ranks-per-host", "1", "--latency", LATENCY, "--bare", "--orders",
                self.pipe, "--build", pathlib.Path(self.heddle).parent, "--", *inner]

    def order(self, *words):
        os.write(self.orders, (" ".join(map(str, words)) + "\n").encode())

    def end(self):
        super().end()
        if self.orders >= 0:
            os.close(self.orders)
        self.orders = -1


def may_run(heddle):
    """Whether this machine lends the namespaces that this takes."""
    command = [HOSTS, "--hosts", "2", "--ranks-per-host", "1", "--latency", LATENCY, "--bare", "--build",
               pathlib.Path(heddle).parent, "--", "true"]
    return subprocess.run(command, capture_output=True).returncode == 0


def place(draw):
    return 1 + draw["rank"] % 3


def cut(job, draw):
    job.order("cut", place(draw))
    return True


def cut_and_mend(job, draw):
    cut(job, draw)
    before = job.starts()
    job.wait_until(lambda: job.starts() > before and job.steps_done() < STEPS - EVERY)
    time.sleep(draw["moment"])
    job.order("mend", place(draw))
    return True


def one_way(job, draw):
    job.order("deaf" if draw["part"] < 0.5 else "mute", place(draw))
    return True


def partition(job, draw):
    """Hosts 0 and 1 see each other, as do 2 and 3."""
    for a in (0, 1):
        for b in (2, 3):
            job.order("apart", a, b)
    return True


def apart(job, draw):
    """Two hosts don't see each other; the supervisor sees both."""
    first, second = [(1, 2), (1, 3), (2, 3)][draw["rank"] % 3]
    job.order("apart", first, second)
    return True


def flap(job, draw):
    for turn in range(1 + int(5 * draw["part"])):
        job.order("cut", place(draw))
        time.sleep(0.2 + 20 * draw["moment"] * ((turn * 7 + 3) % 5) / 5)
        job.order("mend", place(draw))
        time.sleep(0.3)
    return True


def slow(job, draw):
    job.order("rate", place(draw), f"{2 + int(20 * draw['part'])}mbit")
    return True


def flip_frame(job, draw):
    job.order("flip", place(draw))
    return True
