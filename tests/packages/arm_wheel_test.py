#!/usr/bin/env python3
"""Makes the wheel for aarch64 by a cross compiler, looks at what it needs and runs it in the emulator.

    arm_wheel_test.py [PYTHON]       PYTHON, by default python3, is whom `./dev wheel --aarch64` builds for
    arm_wheel_test.py --wheel FILE   a wheel that is there

Its libraries name nothing newer than glibc 2.28 and its C++ library, and nothing that is neither in the wheel nor in every system. In qemu the
program plans and trains as this machine's build/heddle does. CPython for aarch64 comes from Debian's packages and NumPy
from its wheel, both unpacked in a folder that goes again: the module is imported and called there. Exits 77, with the
reason, where the cross compiler or the emulator is missing.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from compatibility_test import TINY

ROOT = pathlib.Path(__file__).resolve().parents[2]
NATIVE = ROOT / "build/heddle"
SECONDS = 1800
SKIPPED = 77
NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24)}    # of manylinux_2_28
# Of every system with glibc, by the rules of manylinux.
OF_SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "libz.so.1",
             "libstdc++.so.6", "ld-linux-aarch64.so.1"}
# What CPython is linked with, for the modules that heddle and NumPy import.
LIBRARIES = ("libc6", "libgcc-s1", "libexpat1", "zlib1g", "libffi8", "libbz2-1.0", "liblzma5")
CALLS = """
import heddle, json, platform
plan = heddle.plan("Qwen3-30B-A3B", "H100", devices=64)
try:
    heddle.plan("Qwen3-30B-A4B", "H100", devices=64)
    refused = False
except heddle.InputError:
    refused = True
print(json.dumps({"machine": platform.machine(), "fits": plan.fits, "layout": plan.layout,
                  "parameters": heddle.inspect(model="GPT-2").parameters, "refused": refused}))
"""


def run(*words, statuses=(0,), **more):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=SECONDS, **more)
    if done.returncode not in statuses:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def check(holds, what):
    if not holds:
        sys.exit(f"{what}")


def made(python):
    begin = {wheel: wheel.stat().st_mtime for wheel in (ROOT / "build/wheels").glob("*_aarch64.whl")}
    run("./dev", "wheel", "--aarch64", python, cwd=ROOT)
    wheels = [w for w in (ROOT / "build/wheels").glob("*_aarch64.whl") if w.stat().st_mtime != begin.get(w)]
    check(len(wheels) == 1, f"one wheel for aarch64 was expected, found {[w.name for w in wheels]}")
    return wheels[0]


def check_binaries(site):
    """Every program and library of the wheel: its processor, its libraries, and the versions of glibc that it names."""
    files = [f for f in site.rglob("*") if f.is_file() and f.read_bytes()[:4] == b"\x7fELF"]
    names = {f.name for f in files}
    check(any(f.name.startswith("_core.") for f in files) and {"heddle", "libheddle_core.so"} <= names,
          f"the wheel holds {sorted(names)}")
    newest = (0,)
    for file in files:
        check("AArch64" in run("readelf", "-h", file), f"{file.name} is not for aarch64")
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", file)))
        check(needed <= OF_SYSTEM | names, f"{file.name} needs {sorted(needed - OF_SYSTEM - names)}")
        versions = run("readelf", "-VW", file)
        for library, most in NEWEST.items():
            for version in re.findall(rf"Name: {library}_([0-9.]+)", versions):
                number = tuple(map(int, version.split(".")))
                check(number <= most, f"{file.name} names {library}_{version}")
                if library == "GLIBC":
                    newest = max(newest, number)
    check(newest > (0,), "no file names a version of glibc")
    print(f"{len(files)} files for aarch64; the newest glibc that they name is {'.'.join(map(str, newest))}")


def check_program(emulated, program, folder):
    """Plans and trains on both processors and compares what is said."""
    asked = ("plan", "Qwen3-30B-A3B", "--cluster", "H100", "--devices", "32", "--global-batch", "256", "--sequence", "4096",
             "--json", "--threads", "1")
    plans = [json.loads(run(*command, *asked, cwd=folder)) for command in ([NATIVE], [*emulated, program])]
    for key in ("fits", "layout", "schedule", "peak_bytes"):
        check(plans[0][key] == plans[1][key], f"plan: {key} is {plans[0][key]} here and {plans[1][key]} on aarch64")
    near(*(plan["tokens_per_s"]["value"] for plan in plans), 1e-9, "plan: tokens per second")
    print(f"plan: {plans[1]['layout']}, {plans[1]['tokens_per_s']['value']:.0f} tokens/s, as here")
    losses = []
    for name, command in (("here", [NATIVE]), ("there", [*emulated, program])):
        place = folder / name
        place.mkdir()
        (place / "tiny.toml").write_text(TINY)
        (place / "text.txt").write_text("\n\n".join(f"the shuttle passes {i} warp threads and {i * i} wefts " * 4
                                                    for i in range(600)))
        run(*command, "data", "text.txt", "--out", "prepared", "--vocabulary", "300", cwd=place)
        losses.append(json.loads(run(*command, "train", "tiny.toml", "--quiet", "--json", cwd=place)))
    near(losses[0]["loss"], losses[1]["loss"], 1e-3, "train: loss")
    same = "the same weights" if losses[0]["weights_digest"] == losses[1]["weights_digest"] else "other last bits of weights"
    print(f"train: {losses[1]['steps']} steps, loss {losses[1]['loss']:.4f}, {losses[0]['loss']:.4f} here; {same}")


def near(here, there, ratio, what):
    check(abs(here - there) <= ratio * abs(here), f"{what}: {here} here and {there} on aarch64")


def check_module(wheel, site, folder):
    """CPython of this system's release for aarch64. Says why not where the wheel is for another one."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return print("module: not tried, there is no apt-get here")
    depends = subprocess.run(["apt-cache", "show", "python3-minimal:arm64"], capture_output=True, text=True).stdout
    found = re.search(r"python3\.(\d+)-minimal", depends)
    if not found:
        return print("module: not tried, apt knows no Python for arm64 (dpkg --add-architecture arm64)")
    minor = int(found[1])
    tag, abi = re.search(r"-cp3(\d+)-(\w+)-", wheel.name).groups()
    if not (minor == int(tag) or (abi == "abi3" and minor > int(tag))):
        return print(f"module: not tried, the wheel is for CPython 3.{tag} and this release has 3.{minor}")
    python = f"python3.{minor}"
    debs, root = folder / "debs", folder / "root"
    debs.mkdir()
    known = [name for name in LIBRARIES if subprocess.run(["apt-cache", "show", f"{name}:arm64"], capture_output=True).returncode == 0]
    run("apt-get", "download", *(f"{name}:arm64" for name in (f"{python}-minimal", f"lib{python}-minimal", f"lib{python}-stdlib",
                                                             *known)), cwd=debs)
    for deb in debs.glob("*.deb"):
        run("dpkg-deb", "-x", deb, root)
    if not (root / "lib").exists():  # from Debian 13 on packages hold usr/lib alone
        (root / "lib").symlink_to("usr/lib")
    run(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
        "--platform", "manylinux_2_28_aarch64", "--platform", "manylinux2014_aarch64", "--python-version", f"3.{minor}",
        "--dest", debs, "numpy")
    for numpy in debs.glob("numpy*.whl"):
        zipfile.ZipFile(numpy).extractall(site)
    told = json.loads(run("qemu-aarch64", "-L", root, "-E", f"PYTHONPATH={site}", root / "usr/bin" / python, "-c", CALLS,
                          cwd=folder).splitlines()[-1])
    plan = json.loads(run(NATIVE, "plan", "Qwen3-30B-A3B", "--cluster", "H100", "--devices", "64", "--json", cwd=folder))
    parameters = json.loads(run(NATIVE, "inspect", "--model", "GPT-2", "--json", cwd=folder))["parameters"]
    check(told == {"machine": "aarch64", "fits": plan["fits"], "layout": plan["layout"], "parameters": parameters,
                   "refused": True}, f"module: {told}, and here {plan['layout']}, {parameters} parameters")
    print(f"module: imported by {python} on aarch64, plans and refuses as here")


def main():
    missing = [name for name in ("aarch64-linux-gnu-g++", "qemu-aarch64") if not shutil.which(name)]
    if missing:
        print(f"skipped: there is no {' and no '.join(missing)} (tools/arm_packages.txt)")
        return SKIPPED
    wheel = pathlib.Path(sys.argv[2]).resolve() if "--wheel" in sys.argv else made((sys.argv[1:] or ["python3"])[0])
    with tempfile.TemporaryDirectory(prefix="heddle-arm-wheel-") as name:
        folder = pathlib.Path(name)
        site = folder / "site"
        zipfile.ZipFile(wheel).extractall(site)
        program = site / "heddle/bin/heddle"
        program.chmod(0o755)
        check_binaries(site)
        # Debian's libraries of arm64, or those beside the cross compiler.
        system = next(p for p in ("/", "/usr/aarch64-linux-gnu") if (pathlib.Path(p) / "lib/ld-linux-aarch64.so.1").exists())
        check_program(["qemu-aarch64", "-L", system], program, folder)
        check_module(wheel, site, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
