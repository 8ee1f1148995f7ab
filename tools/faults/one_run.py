"""One run of the campaign: a job, what happens to it, and whether the invariants of docs/howto/launch.md hold of it."""
import contextlib
import re
import subprocess
import time

from emulated import EVERY, MACHINE_SECONDS, STEPS, Job, digests, environment, events

from faults.disk import POINTS_OF_GOING_ON, POINTS_OF_MEMORY, shim_variables
from faults.kinds import KINDS
from faults.network import NetworkJob
from faults.processes import kill_rank
from faults.surroundings import Output, clocks

# A thread of a process that answers is found by the patience of what its rank was at: 60 s at least of a step, 300 s of a
# checkpoint, by the ranks; half as long again and 20 s by the supervisor.
DETECT_SECONDS = {"process": 10, "host": 30, "hang": 20, "thread": 320}
END_SECONDS = 40    # from the ranks' end to the job's
AGAIN = 3    # starts of a job that its own end, or that of its supervisor, has struck


def job_of(kind, draw, heddle, shim, reference, folder):
    variables = shim_variables(shim, folder, kind.shim, draw) if kind.shim else {}
    more = [word for setting in kind.settings for word in ("--set", setting)]
    if draw.get("standby"):    # tables of before have no such key
        more.append("--standby")
    if kind.memory or kind.shim and draw["point"] in POINTS_OF_MEMORY:
        more += ["--set", "train.snapshot_every=1"]
    if (kind.memory or kind.agents) and not kind.shim:    # what is made in memory is written down, and no call struck
        variables = {"LD_PRELOAD": str(shim), "FAIL_FOLDER": "/dev/shm", "FAIL_POINT": "mkdir heddle-*"}
    if variables.get("FAIL_FOLDER") == "/dev/shm":
        variables["FAIL_LOG"] = str(folder / "calls")
    if kind.clocks:
        variables |= {"LD_PRELOAD": str(shim)}
    make = NetworkJob if kind.network else Job
    patience = MACHINE_SECONDS + DETECT_SECONDS["thread"] if kind.found_as == "thread" else MACHINE_SECONDS
    job = make(heddle, reference, folder, more=more, agents=kind.agents, patience=patience, **variables)
    if kind.clocks:
        job.variables["FAIL_CLOCKS"] = clocks(job, draw)
    if kind.output:
        job.output = Output(job.log, kind.output == "full")
    if kind.before:
        kind.before(job, draw)
    return job


def struck_at_a_call(job, kind, draw, strike):
    """Waits until it is, or the job is over. Points of going on need something to go on from."""
    def struck():
        return not strike.exists()
    if kind.shim.startswith("point") and draw["point"] in POINTS_OF_GOING_ON:
        if job.wait_until(lambda: job.steps_done() >= max(EVERY + 1, draw["step"])):
            kill_rank(job, draw)
    return job.wait_until(lambda: struck() or job.supervisor.poll() is not None) and struck()


def run(heddle, shim, reference, folder, draw):
    kind = KINDS[draw["kind"]]
    job = job_of(kind, draw, heddle, shim, reference, folder)
    found = {"struck": False, "violations": []}
    checkpoint, struck_at = 0, None
    began = time.time()
    try:
        strike = folder / "strike"
        if kind.shim:
            strike.touch()
        job.start()
        if kind.shim:
            found["struck"] = struck_at_a_call(job, kind, draw, strike)
            struck_at = time.time()
        elif job.wait_until(lambda: job.steps_done() >= draw["step"]):
            time.sleep(draw["moment"])
            if job.supervisor.poll() is None:
                checkpoint = job.newest_checkpoint()
                found["done_when_struck"] = job.steps_done()
                struck_at = time.time()
                found["struck"] = kind.strike(job, draw)
        status, tries = job.wait(), 0
        job.output = None    # of the one that was started first
        if kind.after and found["struck"]:
            found["violations"] += kind.after(job)
        while status != 0 and tries < AGAIN and found["struck"] and (kind.shim or kind.started_again):
            tries += 1
            job.start()
            status = job.wait()
        found["started_again"] = tries
        judgement = judged(job, reference, kind, status, checkpoint, struck_at if found["struck"] else None, tries)
        found |= {**judgement, "violations": found["violations"] + judgement["violations"]}
        found["seconds"] = round(time.time() - began, 3)
    except TimeoutError as error:
        found["violations"].append(f"I5 {error}"[:2000])
    except Exception as error:
        found["violations"].append(f"the campaign's own: {error!r}"[:500])
    finally:
        job.end()
        if kind.after:
            with contextlib.suppress(OSError):
                kind.after(job)
    return found


def different_steps(job, reference, kind):
    """Steps whose weights are others, or that are not there; and the steps of the log, in order."""
    made, order = digests(job.run)
    # A disk that refuses a line of the log costs that line, with a warning (docs/howto/runs.md): no more than that.
    lost = sorted(set(reference.digests) - set(made))
    if len(lost) == 1 and kind.shim.split(" ")[-1] in ("ENOSPC", "EIO") and "training goes on" in job.text():
        made[lost[0]] = reference.digests[lost[0]]
        order = sorted(order + lost)
    return [step for step, digest in reference.digests.items() if made.get(step) != digest], order


def audited(job, heddle, first):
    """What is wrong with what the audit says of a run whose weights are others from step `first` on."""
    done = subprocess.run([heddle, "audit", job.run, "--steps", f"1-{STEPS}"], cwd=job.folder, env=environment(job.folder),
                          capture_output=True, text=True, timeout=MACHINE_SECONDS)
    named = [int(line.split()[0]) for line in done.stdout.splitlines()
             if re.match(r" *\d+ +[0-9a-f]{16} +[0-9a-f]{16} ", line) and "the same" not in line]
    if done.returncode == 1 and named and named[0] == first:
        return []
    return [f"I1 other weights from step {first}; the audit ended with status {done.returncode} and named {named[:1]}: "
            f"{done.stderr[-300:]}"]


def checkpoints_that_differ(job, reference, heddle):
    """I2, I9: what stands on disk at the end is whole, and what the undisturbed run has at its step."""
    wrong = []
    for path in sorted(job.run.glob("checkpoints/step-*")):
        out = job.folder / f"out-{path.name}"
        done = subprocess.run([heddle, "convert", path, "--to", out], cwd=job.folder, env=environment(job.folder),
                              capture_output=True, text=True, timeout=MACHINE_SECONDS)
        like = reference.weights.get(int(path.name[5:]))
        if done.returncode != 0:
            wrong.append(f"I2 {path.name} does not open: {done.stderr[-300:]}")
        elif like and (out / "model.safetensors").read_bytes() != like:
            wrong.append(f"I9 {path.name} holds other weights")
    return wrong


def judged(job, reference, kind, status, checkpoint, struck_at, tries):
    wrong = []
    if status != 0:
        return {"violations": [f"the job ended with status {status}: {job.text()[-1500:]}"]}
    log = events(job.run)
    numbers = [e["generation"] for e in log if e["event"] == "start"]
    resumed = [int(step) for step in re.findall(r"going on after step (\d+)|going on from memory of step (\d+)", job.text())
               for step in step if step]
    from_memory = job.text().count("going on from memory of step")
    found = {"generations": len(numbers), "resumed_after": resumed, "from_memory": from_memory}
    different, order = different_steps(job, reference, kind)
    if different and kind.changes_values:
        found["differs_from_step"] = different[0]
        wrong += audited(job, reference.heddle, different[0])
    elif different:
        wrong.append(f"I1 other weights, or none, in steps {different[:5]}")
    else:
        damaged = kind.damages    # one that nobody has replaced since may still stand
        wrong += [] if damaged else checkpoints_that_differ(job, reference, reference.heddle)
    if order != list(range(1, STEPS + 1)):
        wrong.append(f"I4 steps in the log: {order}")
    if numbers != sorted(set(numbers)):
        wrong.append(f"I7 generations {numbers}")
    # I2, I3: not further back than the checkpoint that was there; where that one was damaged, than the one before.
    if struck_at and resumed and not kind.shim and resumed[0] < checkpoint - (EVERY if kind.damages else 0):
        wrong.append(f"I3 went on after step {resumed[0]}, there was a checkpoint of step {checkpoint}")
    wrong += times(found, log, kind, struck_at, tries)
    ended = [e["time"] for e in log if e["event"] == "end"]
    if ended and log[-1]["event"] == "over" and log[-1]["time"] - ended[-1] > END_SECONDS:
        wrong.append(f"I5 the job ended {log[-1]['time'] - ended[-1]:.1f} s after its ranks, {END_SECONDS} are allowed")
    if kind.lasts and tries:
        wrong.append("I5 it ended the job, which had to be started again")
    if kind.shim == "fsync once" and len(numbers) > 1:
        wrong.append("I5 a long fsync was taken for a hang")
    wrong += [f"I6 left behind: {what}" for what in job.left_behind()]
    return {**found, "violations": wrong}


def times(found, log, kind, struck_at, tries):
    """How long it took until a fault was found, and until steps were done again."""
    if not struck_at or tries or kind.shim and kind.shim.split(" ")[-1] != "kill":
        return []
    ends = [e["time"] for e in log if e["event"] == "end" and e["time"] > struck_at and e["cause"] == "fault"]
    going = [e["time"] for e in log if e["event"] == "running" and ends and e["time"] > ends[0]]
    if going:
        found["recovered_s"] = round(going[0] - struck_at, 3)
    if not ends:
        return []
    found["detected_s"] = round(ends[0] - struck_at, 3)
    limit = DETECT_SECONDS.get(kind.found_as)
    return [f"I5 detected after {found['detected_s']} s, {limit} are allowed"] if limit and found["detected_s"] > limit else []
