"""Faults of files: at a call into the file system, drawn by number or by name (tests/cli/fail_calls.c), and damage to what
lies on disk or in memory while the job runs."""
import contextlib
import os
import pathlib

from emulated import EVERY

from faults.processes import kill_rank

# Named points: a call and, below the run's folder, a path. The last ones are reached by a job that goes on from disk.
POINTS = """
fsync ..generation.*
write ..generation.*
rename .generation
open .generation
flock .lock
pwrite .lock
write .config.toml.*
fsync .config.toml.*
rename config.toml
write .tokenizer.json.*
rename tokenizer.json
open metrics.jsonl
write metrics.jsonl
open job.jsonl
write job.jsonl
mkdir ranks
open ranks/rank-*
pwrite ranks/rank-*
fallocate ranks/rank-*
rename ranks/program.txt
write tensorboard/*
mkdir checkpoints
mkdir checkpoints/.step-*
open checkpoints/.step-*/.shard-*
write checkpoints/.step-*/.shard-*
fsync checkpoints/.step-*/.shard-*
close checkpoints/.step-*/.shard-*
rename checkpoints/.step-*/shard-*
open checkpoints/.step-*/shard-*
write checkpoints/.step-*/.state.json.*
fsync checkpoints/.step-*/.state.json.*
rename checkpoints/.step-*/state.json
read checkpoints/.step-*/state.json
fsync checkpoints/.step-*
rename checkpoints/step-*
fsync checkpoints
write checkpoints/.latest.*
rename checkpoints/latest
rename checkpoints/.step-*
unlinkat checkpoints/.step-*
remove checkpoints/.step-*
unlinkat ranks/rank-*
rmdir ranks
""".strip().splitlines()
POINTS_OF_GOING_ON = """
open checkpoints/step-*/shard-*
read checkpoints/step-*/state.json
open checkpoints/step-*/state.json
read config.toml
fopen metrics.jsonl
""".strip().splitlines()
# Below /dev/shm, of a job with copies in memory.
POINTS_OF_MEMORY = """
fallocate heddle-*/rank-*.data
write heddle-*/*.index*
rename heddle-*/*.index
open heddle-*/*.hold-*
write heddle-*/*.seal-*
rename heddle-*/*.seal-*
unlink heddle-*/*.seal-*
flock heddle-*
""".strip().splitlines()
ALL_POINTS = POINTS + POINTS_OF_GOING_ON + POINTS_OF_MEMORY


def shim_variables(shim, folder, how, draw):
    """The environment of a job whose processes are struck at a call. `how`: as FAIL_HOW says it, "point" before it: at a
    named point."""
    named, _, word = how.rpartition(" ")
    variables = {"LD_PRELOAD": str(shim), "FAIL_FOLDER": str(folder / "run"), "FAIL_AT": str(draw["call"]), "FAIL_HOW": word,
                 "FAIL_ONCE": str(folder / "strike")}
    if named == "point":
        if draw["point"] in POINTS_OF_MEMORY:
            variables["FAIL_FOLDER"] = "/dev/shm"
        variables |= {"FAIL_POINT": draw["point"], "FAIL_AT": str(1 + draw["call"] % 4)}
    elif named == "fsync" and word != "once":
        variables |= {"FAIL_POINT": "fsync *", "FAIL_AT": str(1 + draw["call"] % 30)}
    elif named == "data" and word == "EIO":    # what a rank reads as it starts
        variables |= {"FAIL_FOLDER": str(folder / "prepared"), "FAIL_POINT": ("open *", "read *")[draw["call"] % 2],
                      "FAIL_AT": str(1 + draw["call"] // 2 % 6)}
    elif named == "data":
        variables |= {"FAIL_FOLDER": str(folder / "prepared"), "FAIL_AT": "1", "FAIL_SLOW_MS": str(20 + int(80 * draw["part"]))}
    elif named == "fsync" and word == "once":    # longer than any step, and than its peers wait for one
        variables |= {"FAIL_POINT": "fsync checkpoints/*", "FAIL_AT": str(1 + draw["call"] % 6), "FAIL_HOW": "once",
                      "FAIL_SLOW_MS": str(65000 + int(30000 * draw["part"]))}
    elif word == "slow":
        variables |= {"FAIL_POINT": "fsync *", "FAIL_AT": "1", "FAIL_SLOW_MS": str(20 + int(100 * draw["part"]))}
    return variables


# ---- damage

def flip(file, part, bit):
    size = file.stat().st_size
    if size == 0:
        return False
    place = min(size - 1, int(size * part))
    with open(file, "r+b") as bytes_:
        bytes_.seek(place)
        byte = bytes_.read(1)
        bytes_.seek(place)
        bytes_.write(bytes([byte[0] ^ (1 << bit)]))
    return True


def damage(files, draw, how):
    """One of the files. Whether it was there to be damaged."""
    if not files:
        return False
    file = sorted(files)[int(draw["part"] * 1e6) % len(files)]
    with contextlib.suppress(FileNotFoundError):
        if how == "cut":
            os.truncate(file, int(file.stat().st_size * draw["part"]))
            return True
        return flip(file, draw["part"], int(draw["moment"] * 80) % 8)
    return False


def damage_checkpoint(how):
    def strike(job, draw):
        """The newest one, and a rank is killed: the one before has to do."""
        if job.newest_checkpoint() < 2 * EVERY:
            return False
        newest = job.run / f"checkpoints/step-{job.newest_checkpoint():06}"
        damaged = damage(list(newest.glob("*.safetensors")) if draw["part"] < 0.8 else [newest / "state.json"], draw, how)
        return kill_rank(job, draw) and damaged
    return strike


def damage_memory(how):
    def strike(job, draw):
        """Of a rank's copies, and it is killed: another copy, or the disk, has to do."""
        rank = f"rank-{draw['rank']:05}-*"
        kind = ("data", "index", "seal-0", "seal-1")[int(draw["part"] * 400) % 4]
        struck = kill_rank(job, draw)    # first, lest it writes over the damage
        files = [pathlib.Path(p) for folder in job.memories() for p in folder.glob(f"{rank}.{kind}")]
        return damage(files, draw, how) and struck
    return strike
