"""Slurm of several nodes that this machine pretends to be: one slurmctld, and a slurmd a node, as the user at hand.

Each node has a folder of its own where its PMIx plugin keeps files (TmpFS): in one for all, the second task of a step
is refused. The daemons end with this process.
"""
import contextlib
import ctypes
import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time

START_SECONDS = 30
SETTINGS = """
AuthType=auth/none
CredType=cred/none
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=300
"""


def missing():
    """Why there can be no Slurm here, or ""."""
    for name in "slurmctld", "slurmd", "srun", "salloc":
        if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin"):
            return f"no {name} here (Debian: slurm-wlm)"
    return ""


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)    # PR_SET_PDEATHSIG


class Slurm:
    def __init__(self, folder, nodes, cores):
        self.folder = pathlib.Path(folder)
        self.nodes = [f"node{i}" for i in range(nodes)]
        self.daemons = {}
        control, *ports = free_ports(nodes + 1)
        user, host = getpass.getuser(), socket.gethostname()
        lines = [f"ClusterName=heddle\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={control}",
                 f"SlurmUser={user}\nSlurmdUser={user}",
                 f"StateSaveLocation={self.folder}/state\nSlurmctldPidFile={self.folder}/slurmctld.pid",
                 f"SlurmdSpoolDir={self.folder}/%n/spool\nSlurmdPidFile={self.folder}/%n/pid\n"
                 f"SlurmdLogFile={self.folder}/%n/log\nTmpFS={self.folder}/%n/tmp", SETTINGS]
        for name, port in zip(self.nodes, ports):
            (self.folder / name / "tmp").mkdir(parents=True)
            lines.append(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cores}")
        lines.append("PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n")
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text("\n".join(lines))

    @property
    def variables(self):
        return {"SLURM_CONF": f"{self.folder}/slurm.conf"}

    def start(self):
        """Why it can't be started, or ""."""
        self.run_daemon("slurmctld", "-c")
        for name in self.nodes:
            self.run_daemon("slurmd", "-N", name, said=name)
        return self.await_nodes()

    def await_nodes(self):
        """Why they don't become idle, or ""."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            idle = subprocess.run(["sinfo", "-h", "-N", "-t", "idle", "-o", "%N"], env={**os.environ, **self.variables},
                                  capture_output=True, text=True, timeout=START_SECONDS).stdout.split()
            if idle == self.nodes:
                return ""
            for said, daemon in self.daemons.items():
                if daemon.poll() is not None:
                    lines = (self.folder / f"{said}.log").read_text().splitlines()
                    return f"{said} ends with {daemon.returncode}: {lines[-1] if lines else ''}"
            time.sleep(0.1)
        return f"the nodes are not idle after {START_SECONDS} s"

    def run_daemon(self, program, *words, said=None):
        path = shutil.which(program, path=os.environ["PATH"] + ":/usr/sbin")
        with open(self.folder / f"{said or program}.log", "w", encoding="utf-8") as log:
            self.daemons[said or program] = subprocess.Popen([path, "-D", *words], env={**os.environ, **self.variables},
                                                             stdout=log, stderr=log, preexec_fn=die_with_parent)

    def lose(self, name):
        """The node's daemons; a job's processes there are the caller's to end."""
        daemon = self.daemons.pop(name)
        daemon.kill()
        daemon.wait()
        self.end_steps(name)

    def mend(self, name):
        self.run_daemon("slurmd", "-N", name, said=name)
        return self.await_nodes()

    def end_steps(self, name):
        """A step has a daemon of its own on each node, which outlives the node's and writes into its log."""
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and (entry / "cmdline").read_bytes().startswith(b"slurmstepd") and (
                        f"{self.folder}/{name}/log" in map(os.readlink, (entry / "fd").iterdir())):
                    os.kill(int(entry.name), signal.SIGKILL)

    def end(self):
        for daemon in self.daemons.values():
            daemon.terminate()
        for daemon in self.daemons.values():
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for name in self.nodes:
            self.end_steps(name)
