"""A job of `heddle launch` on hosts that this machine pretends to be (tools/emulated_host), and what can happen to it.

Every process of a job has HEDDLE_HOSTS=FOLDER in its environment, those of a host HEDDLE_HOST=NAME too: so they are
found, struck and counted.
"""
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests/cli"))
from tiny_toml import TINY_MODEL, tiny_toml  # noqa: E402

SHELL = ROOT / "tools/emulated_host"
MACHINE_SECONDS = 300    # after which a job hangs, however many others run: of one that is meant to last, Job.patience
STEPS, EVERY = 40, 4

CONFIG = tiny_toml({**TINY_MODEL, "vocab_size": 320}, steps=STEPS, global_batch=12, microbatch=1, sequence_length=192,
                   warmup_steps=1, decay_steps=1, eval_every=0, checkpoint_every=EVERY, keep_checkpoints=3,
                   sample_tokens=0, exact_sums=True)


def write_inputs(folder):
    (folder / "tiny.toml").write_text(CONFIG)
    draw = random.Random(1)
    words = "the shuttle passes between warp and weft".split()
    (folder / "text.txt").write_text("\n\n".join(" ".join(draw.choices(words, k=30)) + "." for _ in range(200)))


def environment(folder, **more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("FAIL_", "OMPI_", "SLURM_", "HEDDLE_JOB"))}
    # Daemons of several hosts on one machine each put hwloc's tree at an address of their choice, where at times
    # something lies already: without rtc's hwloc, which only binds ranks to cores, they do not.
    single = {"btl": "self,tcp", "btl_tcp_if_include": "lo", "oob_tcp_if_include": "lo", "orte_leave_session_attached": "1",
              "mpi_yield_when_idle": "1", "rtc": "^hwloc"}
    return {**kept, "NO_COLOR": "1", "HEDDLE_HOSTS": str(folder), "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "XDG_CACHE_HOME": str(folder / "cache"), "OMP_WAIT_POLICY": "passive",
            "TMPDIR": str(folder), **{f"OMPI_MCA_{k}": v for k, v in single.items()}, **more}


def digests(run):
    """step -> digest, and the steps in the order of the log."""
    found, order = {}, []
    for line in (run / "metrics.jsonl").read_text().splitlines():
        with contextlib.suppress(ValueError):
            step = json.loads(line)
            found[step["step"]] = step["weights_digest"]
            order.append(step["step"])
    return found, order


def events(run):
    path, found = run / "job.jsonl", []
    for line in path.read_text().splitlines() if path.exists() else []:
        with contextlib.suppress(ValueError):    # a supervisor that was killed as it wrote leaves half a line
            found.append(json.loads(line))
    return found


class Reference:
    """The digests of a run on one rank that nothing happens to. `more`: words for its line, and for those of its jobs."""

    def __init__(self, heddle, folder, more=()):
        write_inputs(folder)
        self.more = list(more)
        done = subprocess.run([heddle, "train", "tiny.toml", "--quiet", "--set", "output=reference", *more], cwd=folder,
                              env=environment(folder), capture_output=True, text=True, timeout=MACHINE_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        self.heddle, self.folder = heddle, folder
        self.digests, _ = digests(folder / "reference")

        self.weights = {}    # step -> what its checkpoint comes to as a released model, of those that are kept
        for path in (folder / "reference/checkpoints").glob("step-*"):
            out = folder / f"weights-{path.name}"
            subprocess.run([heddle, "convert", path, "--to", out], cwd=folder, env=environment(folder), check=True,
                           capture_output=True, timeout=MACHINE_SECONDS)
            self.weights[int(path.name[5:])] = (out / "model.safetensors").read_bytes()


class Job:
    """agents: partners of each other; the ranks copy their state after each step."""

    def __init__(self, heddle, reference, folder, hosts=4, slots=1, more=(), agents=False, patience=MACHINE_SECONDS,
                 **variables):
        self.heddle, self.folder, self.variables, self.patience = heddle, folder, variables, patience
        folder.mkdir()
        self.hosts = [f"node{i}" for i in range(hosts)]
        self.memory = set()    # folders in memory that were seen to be the job's, where hosts have none of their own
        shutil.copy(reference.folder / "tiny.toml", folder)
        shutil.copy(reference.folder / "text.txt", folder)
        shutil.copytree(reference.folder / "prepared", folder / "prepared")
        (folder / "hosts").write_text("".join(f"{host} slots={slots}\n" for host in self.hosts))
        self.run = folder / "run"
        self.more = [*reference.more, *more, *(["--listen", "lo", "--set", "train.snapshot_every=1"] if agents else [])]
        self.log = open(folder / "log", "w+", encoding="utf-8")
        self.output = None    # where its output goes instead: has `writer`
        self.supervisor = None

    def start(self):
        command = self.command()
        out = self.output.writer if self.output else self.log
        self.supervisor = subprocess.Popen(command, cwd=self.folder, env=environment(self.folder, **self.variables),
                                           stdout=out, stderr=out, start_new_session=True)

    def command(self):
        return [self.heddle, "launch", "tiny.toml", "--hosts", "hosts", "--shell", str(SHELL), "--by", "mpirun", "--resume",
                "--pause", "0.2", "--look-every", "0.3", "--attempts", "5", "--set", "output=run", *self.more]

    # ---- what is seen

    def processes(self):
        """pid -> (role, host, rank). A rank of a later generation than the one that may write stands by."""
        mark, found, now = f"HEDDLE_HOSTS={self.folder}".encode(), {}, 0
        with contextlib.suppress(OSError):
            now = int((self.run / ".generation").read_text().split()[0])
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                said = (entry / "environ").read_bytes().split(b"\0")
                if mark not in said:
                    continue
                words = (entry / "cmdline").read_bytes().split(b"\0")
                values = dict(s.split(b"=", 1) for s in said if b"=" in s)
                name = os.path.basename(words[0].decode())
                number = values.get(b"OMPI_COMM_WORLD_RANK", values.get(b"SLURM_PROCID"))
                role = ("rank" if number is not None and b"train" in words[:2] else
                        "launcher" if name in ("mpirun", "srun") else "daemon" if name == "orted" else
                        "agent" if b"agent" in words[:2] else "supervisor" if b"launch" in words[:2] else "other")
                if int(values.get(b"HEDDLE_JOB", b"0").split(b":")[0]) > now:
                    role = "standby" if role == "rank" else "of a standby"
                host = values.get(b"HEDDLE_HOST", values.get(b"SLURMD_NODENAME", b""))
                found[int(entry.name)] = (role, host.decode(), int(number) if role == "rank" else -1)
        return found

    def of_role(self, role):
        return sorted(pid for pid, one in self.processes().items() if one[0] == role)

    def steps_done(self):
        path = self.run / "metrics.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def newest_checkpoint(self):
        steps = [int(p.name[5:]) for p in self.run.glob("checkpoints/step-*")]
        return max(steps, default=0)

    def look(self):
        """Remembers where in memory the ranks have made themselves folders."""
        with contextlib.suppress(OSError):
            self.memory |= {pathlib.Path(line) for line in (self.run / ".memory").read_text().split()}

    def memories(self):
        """Those, and what hosts have in a memory of their own."""
        return self.memory | set(self.folder.glob("*.memory/heddle-*"))

    def look_back(self):
        """The same of what the shim has written down (FAIL_LOG), which misses nothing."""
        with contextlib.suppress(OSError):
            self.memory |= {pathlib.Path(path) for path in re.findall(r"/dev/shm/heddle-[0-9a-f]{32}",
                                                                      (self.folder / "calls").read_text())}

    def wait_until(self, ready, seconds=None):
        """Whether it came to that before the job was over."""
        until = time.monotonic() + (seconds or self.patience)
        while time.monotonic() < until:
            self.look()
            if ready():
                return True
            if self.supervisor.poll() is not None:
                return bool(ready())
            time.sleep(0.01)
        raise TimeoutError(f"{self.folder.name}: nothing happens\n{self.text()}")

    def starts(self):
        return sum(e["event"] == "start" for e in events(self.run))

    def text(self):
        return (self.folder / "log").read_text(errors="replace")

    # ---- what happens to it

    @staticmethod
    def strike(pids, number=signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(pids)

    def lose_host(self, name):
        (self.folder / f"{name}.down").touch()
        while pids := [pid for pid, one in self.processes().items() if one[1] == name]:
            self.strike(pids)
        shutil.rmtree(self.folder / f"{name}.memory", ignore_errors=True)    # its memory goes with it

    def mend_host(self, name):
        with contextlib.suppress(FileNotFoundError):
            (self.folder / f"{name}.down").unlink()

    # ---- its end

    def wait(self):
        until = time.monotonic() + self.patience
        while self.supervisor.poll() is None:
            self.look()
            if time.monotonic() > until:
                self.end()
                raise TimeoutError(f"{self.folder.name} does not end\n{self.text()}")
            time.sleep(0.02)
        return self.supervisor.returncode

    def end(self):
        for _ in range(100):
            pids = list(self.processes())
            if not pids:
                break
            self.strike(pids)
            time.sleep(0.02)
        with contextlib.suppress(Exception):
            self.supervisor.wait(timeout=5)
        self.look_back()
        for folder in self.memory:
            if str(folder).startswith("/dev/shm/heddle-"):
                shutil.rmtree(folder, ignore_errors=True)
        self.log.close()

    def left_behind(self):
        """Processes and files that should be gone."""
        until = time.monotonic() + 10    # the kernel takes its time with what was killed
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.05)
        strays = [f"process {one}" for one in left.values()]
        strays += [f"file {p.relative_to(self.folder)}" for p in self.run.rglob("*") if re.search(r"\.part$|^\.pending-", p.name)]
        strays += [f"file {p.name}" for p in self.run.iterdir() if p.name in ("ranks", ".memory")]
        self.look_back()
        strays += [f"memory {p.name}" for p in self.memory if p.exists()]
        strays += [f"file {p.name}" for p in self.folder.glob("heddle-launch-*")]
        strays += [f"memory {p}" for p in self.folder.glob("*.memory/*")]
        strays += [f"file {p}" for name in (".agents", ".memory") for p in self.run.glob(name)]
        strays += [f"file {p.name}" for p in self.run.glob("checkpoints/.*")]
        strays += [f"file {p.name}" for p in self.folder.glob("ompi.*")]
        return strays
