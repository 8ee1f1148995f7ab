#!/usr/bin/env python3
"""Makes the bundle that a session on a device travels with: stripped programs, the libraries that they need, the
tests' files, a text to train on, Open MPI's tree, and wheels of peers where a folder of them is given.

    ./dev gpu_session [--out FILE.tar.xz] [--wheels FOLDER] [--dry-run]

Unpacked on a machine with a driver and PyTorch, `python3 session/session.py` does the rest: no network, no root. The
limit of its size is 60 MiB. --dry-run: unpacks it into an empty folder and runs every stage there, on the processor.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAMS = ("heddle", "gpu_test", "gpu_ranks", "gpu_probe", "bench_gpu", "bench_torch_step")
# Of the C library there is one on every machine, which must be no older than the programs'.
OF_THE_SYSTEM = ("linux-vdso", "ld-linux", "libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so")
MOST_BYTES = 60 << 20


def libraries_of(path):
    told = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    for line in told.splitlines():
        name, _, place = line.partition("=>")
        if place and not name.strip().startswith(OF_THE_SYSTEM):
            yield name.strip(), pathlib.Path(place.split()[0])


def strip_into(path, folder, name=None):
    target = folder / (name or path.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(path.resolve(), target)
    subprocess.run(["strip", "--strip-unneeded", str(target)], check=False, capture_output=True)
    return target


def open_mpi(folder):
    """Its launcher, daemon and components. Nothing where there is none."""
    info = shutil.which("ompi_info")
    if info is None:
        return []
    places = {}
    for line in subprocess.run([info, "--path", "all", "--parsable"], capture_output=True, text=True).stdout.splitlines():
        _, name, place = line.split(":", 2)
        places[name] = pathlib.Path(place)
    taken = [strip_into(places["bindir"] / program, folder / "bin") for program in ("mpirun", "orted")]
    taken += [strip_into(file, folder / "lib/openmpi3") for file in sorted(places["pkglibdir"].glob("*.so"))]
    (folder / "share/openmpi").mkdir(parents=True)
    for file in sorted(places["pkgdatadir"].glob("help-*.txt")):
        shutil.copy2(file, folder / "share/openmpi")
    return taken


def fill(root, build, wheels):
    binaries = [strip_into(build / name, root / "bin") for name in PROGRAMS if (build / name).exists()]
    missing = [name for name in PROGRAMS if not (build / name).exists() and name != "gpu_ranks"]
    if missing:
        sys.exit(f"gpu_session: {build} has no {', '.join(missing)}")
    binaries += open_mpi(root / "mpi")
    for binary in binaries:
        for name, place in libraries_of(binary):
            if not (root / "lib" / name).exists():
                strip_into(place, root / "lib", name)
    for folder in ("examples", "tests/fixtures", "bench/torch_peer"):
        shutil.copytree(SOURCE / folder, root / folder)
    for file in ("torch_bench.py", "support/stops.py"):
        (root / "bench" / file).parent.mkdir(exist_ok=True)
        shutil.copy2(SOURCE / "bench" / file, root / "bench" / file)
    for file in ("session.py", "stages.py", "ceilings.py", "predictions.json"):
        (root / "session").mkdir(exist_ok=True)
        shutil.copy2(SOURCE / "tools/gpu_session" / file, root / "session" / file)
    # Any text will do to compare curves on: that which is always there.
    (root / "data").mkdir()
    pages = sorted((SOURCE / "docs").rglob("*.md"))
    (root / "data/text.txt").write_text("\n\n".join(page.read_text() for page in pages))
    for wheel in sorted(wheels.glob("*.whl")) if wheels else []:
        shutil.unpack_archive(wheel, root / "python", "zip")


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--build", type=pathlib.Path, default=SOURCE / "build")
    parse.add_argument("--out", type=pathlib.Path, default=pathlib.Path("gpu_session.tar.xz"))
    parse.add_argument("--wheels", type=pathlib.Path, help="folder of wheels that the machine lacks")
    parse.add_argument("--results", type=pathlib.Path, help="of the dry run; left there")
    parse.add_argument("--dry-run", action="store_true")
    arguments = parse.parse_args()
    with tempfile.TemporaryDirectory(prefix="gpu_session-") as work:
        root = pathlib.Path(work) / "gpu_session"
        root.mkdir()
        fill(root, arguments.build.resolve(), arguments.wheels)
        # A quick dry run is not about how small the bundle gets; its limit is checked either way.
        with tarfile.open(arguments.out, "w:xz", preset=1 if arguments.dry_run else 6) as bundle:
            bundle.add(root, arcname="gpu_session")
        size = arguments.out.stat().st_size
        print(f"{arguments.out}: {size / 2**20:.1f} MiB", flush=True)
        if size > MOST_BYTES:
            sys.exit(f"gpu_session: {arguments.out} has {size} bytes, at most {MOST_BYTES} travel")
        if not arguments.dry_run:
            return 0
        elsewhere = pathlib.Path(work) / "elsewhere"
        elsewhere.mkdir()
        with tarfile.open(arguments.out) as bundle:
            bundle.extractall(elsewhere)
        shutil.rmtree(root)
        results = (arguments.results or pathlib.Path(work) / "results").resolve()
        # As on a bare machine: nothing of this one's environment but the path.
        return subprocess.run([sys.executable, str(elsewhere / "gpu_session/session/session.py"), "--dry-run", "--out",
                               str(results)], cwd=elsewhere, env={"PATH": os.environ["PATH"], "HOME": work}).returncode


if __name__ == "__main__":
    sys.exit(main())
