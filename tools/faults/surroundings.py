"""Faults of what a job stands on: its folder's name, the end of its output, its agents' port, its hosts' clocks, room in
their memory, and a thread that stands still while its process answers."""
import contextlib
import ctypes
import os
import pathlib
import signal
import socket
import subprocess
import threading
import time

from faults.processes import kill_rank, ranks, stop_rank


# ---- the folder's name

def rename_folder(job, draw):
    """The run's folder is renamed, and another one stands in its place."""
    os.rename(job.run, job.folder / "renamed")
    (job.run / "checkpoints/step-000001").mkdir(parents=True)
    for name in ("metrics.jsonl", "checkpoints/step-000001/state.json", "config.toml"):
        (job.run / name).write_text("another's\n")
    if draw["part"] < 0.5:
        kill_rank(job, draw)
    return True


def put_back(job):
    """What stood in its place must be as it was laid there; the job is started again where its folder is."""
    found = {str(p.relative_to(job.run)): p.read_text(errors="replace") for p in job.run.rglob("*") if p.is_file()}
    laid = {name: "another's\n" for name in ("metrics.jsonl", "checkpoints/step-000001/state.json", "config.toml")}
    os.rename(job.run, job.folder / "another")
    os.rename(job.folder / "renamed", job.run)
    return [] if found == laid else [f"I10 another's folder was written to: {sorted(set(found) ^ set(laid)) or 'other bytes'}"]


# ---- the end of its output

def full_output(job, draw):
    """Where its output goes there is no more room, or nobody, and there is something to say."""
    job.output.close_reader()
    return kill_rank(job, draw)


class Output:
    """Where a job's output goes: a device that is full, or a pipe that is read until its reader goes."""

    def __init__(self, log, full):
        self.full = full
        if full:
            self.writer, self.reader = open("/dev/full", "w", encoding="utf-8"), None
            return
        reader, writer = os.pipe()
        self.writer, self.reader = open(writer, "w", encoding="utf-8"), reader

        def copy():
            with contextlib.suppress(OSError):
                while held := os.read(reader, 65536):
                    log.write(held.decode(errors="replace"))
                    log.flush()
        threading.Thread(target=copy, daemon=True).start()

    def close_reader(self):
        if self.reader is not None:
            os.dup2(os.open("/dev/null", os.O_RDONLY), self.reader)    # its last reader is gone, and the thread comes to its end
        self.reader = None
        self.writer.close()


# ---- strangers at agents' ports

def strangers(job, draw):
    """At every agent's port: many that say nothing, some that give a byte now and then, one that announces megabytes; until the
    job has ended. A rank is killed beside them."""
    def visit(address, how):
        with contextlib.suppress(OSError):
            while job.supervisor.poll() is None:
                with socket.create_connection(address, timeout=5) as one:
                    for turn in range(600):
                        if how == "drips":
                            one.send(b"x")
                        elif how == "announces" and turn == 0:
                            one.send(b"\xff\xff\x7f\x00H" + bytes(4096))
                        elif how == "speaks" and turn == 0:
                            one.send(b"GET / HTTP/1.1\r\n\r\n")
                        one.settimeout(0.2)
                        with contextlib.suppress(TimeoutError):
                            if one.recv(4096) == b"" or job.supervisor.poll() is not None:
                                break

    found = []
    for entry in job.run.glob(".agents/*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            host, port = entry.read_text().splitlines()[1].rsplit(":", 1)
            found.append((host, int(port)))
    for address in found:
        for how, many in (("idles", 12 + int(20 * draw["part"])), ("drips", 4), ("announces", 3), ("speaks", 2)):
            for _ in range(many):
                threading.Thread(target=visit, args=(address, how), daemon=True).start()
    time.sleep(draw["moment"] * 5)
    if draw["part"] < 0.7:
        kill_rank(job, draw)
    return bool(found)


# ---- clocks

def clocks(job, draw):
    """Of each host, seconds that its clock is ahead: an hour, or it is behind."""
    return " ".join(f"{host}:{(-3600, 0, 3600)[(draw['call'] + place) % 3]}" for place, host in enumerate(job.hosts))


def stop_or_kill_rank(job, draw):
    return stop_rank(job, draw) if draw["part"] < 0.5 else kill_rank(job, draw)


# ---- agents

def stop_agent(job, draw):
    """It stands still and keeps its port, its memory and its locks. A rank is killed a moment later, or nothing else happens."""
    found = job.of_role("agent")
    if not found or not job.strike([found[draw["rank"] % len(found)]], signal.SIGSTOP):
        return False
    if draw["part"] < 0.5:
        time.sleep(draw["moment"] * 20)
        kill_rank(job, draw)
    return True


# ---- room in a host's memory

ROOM_KIB = {"none": 200, "filled": 65536}


def limit_memory(job, draw):
    """Some hosts' memory is small: from the beginning, or it is filled while the job runs."""
    job.limited = [job.hosts[draw["rank"]]] if draw["part"] < 0.7 else list(job.hosts)
    size = ROOM_KIB["none" if draw["call"] % 2 else "filled"]
    for host in job.limited:
        folder = job.folder / f"{host}.memory"
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k,mode=1777", "tmpfs", folder], check=True)


def fill_memory(job, draw):
    for host in job.limited:
        with contextlib.suppress(OSError), open(job.folder / f"{host}.memory/filler", "wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
    if draw["part"] < 0.5:
        kill_rank(job, draw)
    return True


def free_memory(job):
    for host in getattr(job, "limited", []):
        (job.folder / f"{host}.memory/filler").unlink(missing_ok=True)
        left = [p.name for p in (job.folder / f"{host}.memory").iterdir()]
        subprocess.run(["umount", "-l", job.folder / f"{host}.memory"], check=False, capture_output=True)
        if left:
            return [f"I6 left behind: memory {left} of {host}"]
    return []


# ---- a thread that stands still

PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


def freeze_thread(job, draw):
    """A rank's first thread, in the step behind a checkpoint; its others, that of MPI among them, go on."""
    before = job.newest_checkpoint()
    if not job.wait_until(lambda: job.newest_checkpoint() > before):
        return False
    time.sleep(draw["moment"] * 5)    # in the rest of the checkpoint, or in a step behind it
    pids = ranks(job, draw)
    if not pids:
        return False
    frozen = threading.Event()

    def hold():    # whoever traces is one thread, and holds until the process is gone
        if libc.ptrace(PTRACE_SEIZE, pids[0], None, None) != 0 or libc.ptrace(PTRACE_INTERRUPT, pids[0], None, None) != 0:
            return
        frozen.set()
        with contextlib.suppress(OSError):
            while True:
                _, status = os.waitpid(pids[0], WALL)
                if os.WIFEXITED(status) or os.WIFSIGNALED(status):
                    return
    threading.Thread(target=hold, daemon=True).start()
    return frozen.wait(5)


def may_mount():
    return subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True).returncode == 0 and \
        os.geteuid() == 0


def may_trace():
    path = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    return os.geteuid() == 0 or not path.exists() or path.read_text().strip() == "0"
