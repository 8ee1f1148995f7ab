"""What a session on a device does, stage by stage. A stage is a function of a Session and a row of STAGES.

It returns what it found, as an object for JSON. It raises Skip with a reason where something that it needs is not
there, and Failed where something that should work does not. In a dry run it does the same on this machine's
processor, as small as can be, so that every command and every reading of what it prints is tried.
"""
import json
import os
import platform
import re
import shutil
import statistics
import sys

PEAK = 989e12       # dense bf16 products of an H100, FLOP/s


class Skip(Exception):
    pass


class Failed(Exception):
    pass


def facts(s):
    found = {"machine": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count(),
             "glibc": platform.libc_ver()[1], "modules": {}, "tools": {}, "libraries": {}}
    for module in ("torch", "transformers", "megatron.core"):
        told = s.run([sys.executable, "-c", f"import {module} as m; print(m.__version__)"], may_fail=True)
        found["modules"][module] = told.out.strip().splitlines()[-1] if told.status == 0 else None
    for tool in ("nvidia-smi", "compute-sanitizer", "ncu"):
        found["tools"][tool] = shutil.which(tool)
    if found["tools"]["nvidia-smi"]:
        told = s.run(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm", "--format=csv,noheader"],
                     may_fail=True)
        found["devices"] = told.out.strip().splitlines()
    for program in s.programs():
        missing = [line.split()[0] for line in s.run(["ldd", str(program)], may_fail=True).out.splitlines()
                   if "not found" in line]
        found["libraries"][program.name] = missing
    if any(found["libraries"].values()):
        raise Failed(f"libraries are missing: {found['libraries']}")
    return found


def probe(s):
    return json.loads(s.run([s.program("gpu_probe")]).out)


def doctor(s):
    out = s.run([s.program("heddle"), "doctor"]).out
    libraries = {name: told.group(1).strip() if (told := re.search(rf"{name} on cuda\s+(.+)", out)) else None
                 for name in ("products", "attention")}
    return {"library": libraries["products"], "libraries": libraries, "text": out}


def trials(s, **environment):
    """What a device has to do, each thing tried once and held to the reference."""
    told = s.run([s.program("heddle"), "doctor", "--device", "cuda", "--json"], may_fail=True, **environment)
    found = json.loads(told.out)
    if s.dry and not found["good"]:
        raise Skip("no device: " + found["trials"][0]["found"])
    if told.status != 0 or not found["good"]:
        bad = [f"{trial['what']}: {trial['found']}" for trial in found["trials"] if not trial["good"]]
        raise Failed("; ".join(bad), found)
    return {trial["what"]: trial["found"] for trial in found["trials"]}


def tests(s, name="gpu_test", select="*", **environment):
    if s.dry:
        select = "StepOps*:Large*"      # all of them say that there is no device
    told = s.run([s.program(name), f"--gtest_filter={select}"], may_fail=True, **environment)
    count = {}
    for word in ("PASSED", "SKIPPED", "FAILED"):
        found = re.search(rf"\[  {word} +\] (\d+) test", told.out)
        count[word.lower()] = int(found.group(1)) if found else 0
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", told.out, re.M)
    result = {**count, "names_failed": sorted(set(failed))}
    s.keep(f"{name}.log", told.out)
    if told.status != 0 or failed:
        raise Failed(f"{len(set(failed))} tests failed: {', '.join(sorted(set(failed))[:8])}", result)
    if count["passed"] == 0:
        raise Skip("no device: every test was skipped")
    return result


def train(s, name, steps, *settings, ranks=0, **environment):
    """Losses and digests of so many steps of the demo."""
    folder = s.out / "runs" / name
    shutil.rmtree(folder, ignore_errors=True)
    command = [s.program("heddle"), "train", str(s.root / "examples/demo.toml"), "--steps", str(2 if s.dry else steps),
               "--set", f"output={folder}", "--set", f"data.source={s.root / 'data/text.txt'}",
               "--set", f"data.folder={s.out / 'prepared'}", "--set", "train.eval_every=1000000000",
               "--set", "train.checkpoint_every=0", "--set", "train.sample_tokens=0"]
    if s.dry:
        settings = [word.replace("device.backend=cuda", "device.backend=host") for word in settings]
        settings += ["model.vocab_size=512", "train.global_batch=2", "train.microbatch=1"]
    for setting in settings:
        command += ["--set", setting]
    if ranks:
        command = s.mpirun(ranks) + command
    s.run(command, **environment)
    return steps_of(folder)


def steps_of(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{"loss": line["lm_loss"], "digest": line.get("weights_digest"), "seconds": line["step_s"]} for line in lines]


def needs_device(s):
    if not s.dry and s.run([s.program("gpu_probe")], may_fail=True).status == 77:
        raise Skip("no device")


def apart(a, b):
    """The greatest distance of two curves of losses, as a share."""
    return max(abs(x["loss"] - y["loss"]) / abs(y["loss"]) for x, y in zip(a, b, strict=True))


def demo(s):
    needs_device(s)
    cuda = "device.backend=cuda"
    bf16 = train(s, "bf16", 30, cuda)
    graphs = train(s, "graphs", 30, cuda, "device.graphs=true") if not s.dry else bf16
    f32, host = train(s, "f32", 10, cuda, "device.dtype=f32"), train(s, "host", 10, "device.dtype=f32")
    offload = train(s, "offload", 10, cuda, "device.dtype=f32", "memory.offload=attention")
    result = {"bf16_last_loss": bf16[-1]["loss"], "bf16_step_s": statistics.median(x["seconds"] for x in bf16),
              "graphs_same_bits": [x["loss"] for x in bf16] == [x["loss"] for x in graphs],
              "f32_from_host": apart(f32, host), "offload_from_f32": apart(offload, f32)}
    if not result["graphs_same_bits"] or result["f32_from_host"] > 1e-4 or result["offload_from_f32"] > 1e-6:
        raise Failed("a run of the demo is not what it should be", result)
    return result


def demo_with(s, name, **environment):
    """The demo in bf16 with what must be asked for, or without a library, beside the host: more launches than the host
    may be ahead."""
    needs_device(s)
    there = train(s, name, 30, "device.backend=cuda", **environment)
    host = s.out / "runs" / "demo_host"  # for all that are held to it
    host = steps_of(host) if (host / "report.html").exists() else train(s, "demo_host", 30)
    result = {"last_loss": there[-1]["loss"], "step_s": statistics.median(x["seconds"] for x in there),
              "from_host": apart(there, host)}
    if result["from_host"] > 2e-2:
        raise Failed("the losses are not the host's", result)
    return result


def algorithms(s):
    """The library's first algorithms beside those that were quickest, in steps of the demo."""
    needs_device(s)
    cuda, table = "device.backend=cuda", s.out / "algorithms.txt"
    timed = train(s, "algorithms_timed", 2, cuda, HEDDLE_CUBLASLT_MEASURE=str(table))
    first = train(s, "algorithms_first", 20, cuda)
    if s.dry:
        return {"loss": timed[-1]["loss"]}
    chosen, again = (train(s, name, 20, cuda, HEDDLE_CUBLASLT_ALGORITHMS=str(table))
                     for name in ("algorithms_chosen", "algorithms_again"))
    shapes = [int(line.split()[-1]) for line in table.read_text().splitlines()[4:]]
    step = lambda steps: statistics.median(x["seconds"] for x in steps[2:])
    result = {"shapes": len(shapes), "others_than_the_first": sum(1 for x in shapes if x > 0),
              "step_gain": step(first) / step(chosen), "apart": apart(first, chosen),
              "same_bits_again": [x["loss"] for x in chosen] == [x["loss"] for x in again],
              "timing_changes_no_bit": [x["loss"] for x in timed] == [x["loss"] for x in first[:len(timed)]]}
    if not result["same_bits_again"] or not result["timing_changes_no_bit"] or result["apart"] > 1e-2:
        raise Failed("a run with chosen algorithms is not what it should be", result)
    return result


def ranks(s, **environment):
    needs_device(s)
    if s.dry:
        return {"losses": [x["loss"] for x in train(s, "ranks", 2, ranks=2, **environment)]}
    told = s.run(s.mpirun(2) + [s.program("gpu_ranks")], may_fail=True, **environment)
    if told.status == 77:
        raise Skip(told.lines()[-1] if told.lines() else "gpu_ranks skipped itself")
    if told.status != 0:
        raise Failed(told.end())
    return {"passed": True}


def sanitizer(s):
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        raise Skip("compute-sanitizer is not there")
    needs_device(s)
    found = {}
    for kind, select in (("memcheck", "All/Ops*:StepOps*"), ("racecheck", "*attention*:*linear*:*router*")):
        told = s.run([tool, "--tool", kind, "--error-exitcode", "9", s.program("gpu_test"), f"--gtest_filter={select}"],
                     may_fail=True)
        s.keep(f"{kind}.log", told.out + told.errors)
        errors = re.search(r"ERROR SUMMARY: (\d+) error", told.out + told.errors)
        found[kind] = int(errors.group(1)) if errors else told.end()
        if told.status != 0:
            raise Failed(f"{kind}: {found[kind]}", found)
    return found


def ceilings(s):
    told = s.run([sys.executable, str(s.root / "session/ceilings.py"), *(["--device", "cpu", "--small"] if s.dry else [])],
                 may_fail=True)
    if told.status != 0:
        raise Skip(told.end())
    found = json.loads(told.lines()[-1])
    return {**found.pop("rates"), "about": found}


def bench(s, *words, **environment):
    if s.dry:
        words += ("--backend", "host", "--tokens", "64", "--repeats", "1", "--steps", "1", "--preset", "demo",
                  "--layers", "2")
    told = s.run([s.program("bench_gpu"), "--json", *words], may_fail=True, **environment)
    if told.status == 77:
        raise Skip(told.end())
    if told.status != 0:
        raise Failed(told.end())
    return json.loads(told.lines()[-1])


def ops(s, select="all", **environment):
    if s.dry:
        select = "rms_norm,permute,attention"
    found = {}
    for op in bench(s, "--ops", select, "--step", "0", **environment)["ops"]:
        if op["refused"]:
            found[op["name"]] = None
            continue
        found[op["name"]] = op["flops"] / op["seconds"] if op["multiplies"] else op["share_of_copy"]
        found.setdefault("all", []).append(op)
    return found


def step(s, *words, **environment):
    found = bench(s, "--ops", "none", "--layers", "3", *words, **environment)["step"]
    found["mfu"] = found["flops_per_s"] / PEAK
    return found


def profile(s):
    """The device measured as `heddle profile` does, and a step of the demo foretold by it beside one that ran."""
    needs_device(s)
    device, path = "host" if s.dry else "cuda", s.out / "profile.json"
    setting = ["--set", f"device.backend={device}"]
    found = json.loads(s.run([s.program("heddle"), "profile", "--device", device, "--seconds", "1" if s.dry else "20",
                              "--out", str(path), "--json"]).out)
    told = json.loads(s.run([s.program("heddle"), "simulate", str(s.root / "examples/demo.toml"), "--profile", str(path),
                             "--json", *setting]).out)
    measured = statistics.median(x["seconds"] for x in train(s, "profiled", 10, f"device.backend={device}"))
    return {**found, "foretold_s": told["step_seconds"], "measured_s": measured,
            "foretold_over_measured": told["step_seconds"] / measured}


def peer(s, name):
    if s.run([sys.executable, "-c", "import torch"], may_fail=True).status != 0:
        raise Skip("no PyTorch")
    told = s.run([sys.executable, str(s.root / "bench/torch_bench.py"), "--json", "--program", s.program("bench_torch_step"),
                  *(["--quick", "--peers", "plain", "--rounds", "1"] if s.dry else
                    ["--device", "cuda", "--shapes", "v2_lite", "--dtypes", "bf16", "--rounds", "7", "--peers", name])],
                 may_fail=True)
    if not told.out.strip():
        raise Skip(told.end())
    return json.loads(told.out)


COUNTERS = ("sm__throughput.avg.pct_of_peak_sustained_elapsed", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
            "sm__warps_active.avg.pct_of_peak_sustained_active", "launch__registers_per_thread")


def counters(s):
    tool = shutil.which("ncu")
    if tool is None:
        raise Skip("ncu is not there")
    needs_device(s)
    found = {}
    for op in ("attention", "attention_dgrad", "grouped_linear", "grouped_linear_wgrad", "head and loss", "linear",
               "unpermute", "permute", "mla_rope", "rms_norm_dgrad"):
        told = s.run([tool, "--csv", "--metrics", ",".join(COUNTERS), "--launch-skip", "4", "--launch-count", "3",
                      s.program("bench_gpu"), "--ops", op, "--step", "0", "--repeats", "1"], may_fail=True)
        found[op] = [line for line in told.out.splitlines() if line.startswith('"')] or told.end()
    return found


def curve(s):
    needs_device(s)
    return {"losses": [x["loss"] for x in train(s, "curve", 300, "device.backend=cuda")]}


def curve_beside_host(s):
    """The host's curve takes minutes, so it is a stage of its own."""
    found = s.out / "runs/curve"
    if not found.exists():
        raise Skip("the stage 'curve' has not run")
    there, host = steps_of(found), train(s, "curve_host", 300)
    return {"apart": apart(there, host), "last": there[-1]["loss"], "last_host": host[-1]["loss"],
            "losses_host": [x["loss"] for x in host]}


LIBRARIES_OFF = {"HEDDLE_CUBLASLT": "0", "HEDDLE_CUDNN": "0"}
HOPPER_OFF = {"HEDDLE_WGMMA": "0", "HEDDLE_CUTLASS": "0", "HEDDLE_WGMMA_FP8": "0"}
OWN = {**LIBRARIES_OFF, **HOPPER_OFF}

# name, which visit it belongs to, seconds that it may take, what it does
STAGES = [
    ("facts", 1, 60, facts),
    ("probe", 1, 60, probe),
    ("doctor", 1, 60, doctor),
    # Kernels for every device come first, then one library after the other, then Hopper's own: the first stage that
    # fails names who is to blame.
    ("trials_own", 1, 60, lambda s: trials(s, **OWN)),
    ("trials_without_cudnn", 1, 60, lambda s: trials(s, HEDDLE_CUDNN="0", **HOPPER_OFF)),
    ("trials_libraries", 1, 60, lambda s: trials(s, **HOPPER_OFF)),
    ("trials", 1, 60, trials),
    ("demo_own", 1, 120, lambda s: demo_with(s, "own", **OWN)),
    ("demo", 1, 240, demo),
    ("tests_eight_bits", 1, 60, lambda s: tests(s, select="*Fp8*")),
    ("tests", 1, 300, tests),
    ("tests_own", 1, 300, lambda s: tests(s, **OWN)),
    ("ranks", 1, 120, ranks),
    ("sanitizer", 1, 400, sanitizer),
    ("ceilings", 2, 120, ceilings),
    ("ops", 2, 180, ops),
    ("ops_own", 2, 120, lambda s: ops(s, "linear,linear_dgrad,linear_wgrad,grouped_linear,grouped_linear_dgrad,"
                                      "grouped_linear_wgrad,head and loss,attention,attention_dgrad", **OWN)),
    ("step", 2, 120, step),
    ("step_without_hopper", 2, 120, lambda s: step(s, **HOPPER_OFF)),
    ("step_fp8", 2, 120, lambda s: step(s, "--fp8")),
    ("step_graphs", 2, 120, lambda s: step(s, "--graphs")),
    ("algorithms", 2, 120, algorithms),
    ("profile", 2, 240, profile),
    ("peer_megatron", 2, 180, lambda s: peer(s, "megatron")),
    ("peer_transformers", 2, 180, lambda s: peer(s, "transformers")),
    ("counters", 3, 240, counters),
    ("curve", 3, 60, curve),
    ("curve_beside_host", 3, 400, curve_beside_host),
]
