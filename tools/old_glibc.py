#!/usr/bin/env python3
"""What links a shared library for systems with an older glibc than this machine's, with this machine's compiler.

  old_glibc.py 2.28 FOLDER [--compiler g++]

A library binds each symbol to the newest version that the glibc at its link has. FOLDER gets stand-ins for the parts of
glibc. They name, of each symbol, the newest version that is not above the one asked for. glibc keeps old versions, so
this machine's own libraries list them. The linker reads two files, as `g++ -shared … @FOLDER/flags`:

  flags      the stand-ins; what glibc got later and the compiler's own libraries call (tools/old_glibc.cpp); the C++
             library, linked in. libgcc_s is not, so that a process has one unwinder.
  libraries  fmt, zstd and libgomp, linked in: their shared libraries name newer versions.

Debian's libgomp.a cannot become part of a shared library, so the source of the same compiler is built (gcc-N-source).
A symbol that only a newer glibc has is an error of the linker, by name. The compiler may be a cross compiler.
"""
import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
# What was a library of its own before glibc 2.34. Its symbols are sought in all that is loaded, so being named is enough.
FORMERLY = ["libpthread.so.0", "libdl.so.2", "librt.so.1"]

# fmt's functions that are no templates, and those templates that its headers leave to its library.
FMT = """#include <fmt/format-inl.h>
template fmt::detail::thousands_sep_result<char> fmt::detail::thousands_sep_impl<char>(fmt::detail::locale_ref);
template char fmt::detail::decimal_point_impl<char>(fmt::detail::locale_ref);
"""


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def numbers(version):
    """(2, 28) of "GLIBC_2.28"; None of GLIBC_PRIVATE, which is not for others."""
    found = re.fullmatch(r"GLIBC_([0-9.]+)", version)
    return tuple(int(part) for part in found[1].split(".")) if found else None


def symbols_of(library, newest):
    """{name: (version, type, bytes)} of what a library of glibc defines, each in its last version up to `newest`."""
    kept = {}
    for line in output("readelf", "-W", "--dyn-syms", library).splitlines():
        found = re.match(r"\s*\d+: [0-9a-f]+\s+(\d+|0x[0-9a-f]+) (FUNC|IFUNC|OBJECT|TLS) +(?:GLOBAL|WEAK) +\w+.* (?!UND)\S+ "
                         r"([^\s@]+)@@?(\S+)$", line)
        version = found and numbers(found[4])
        if not version or version > newest or found[2] == "TLS":
            continue
        if found[3] not in kept or version > numbers(kept[found[3]][0]):
            kept[found[3]] = (found[4], "object" if found[2] == "OBJECT" else "function", int(found[1], 0))
    return kept


def write_stand_in(compiler, folder, name, symbols):
    """The shared library `name` that defines `symbols` and holds nothing."""
    versions = sorted({version for version, _, _ in symbols.values()}, key=numbers)
    source = [".data"]
    for symbol, (version, kind, size) in sorted(symbols.items()):
        source += [f".globl stand_in_{symbol}", f".type stand_in_{symbol}, %{kind}", f".size stand_in_{symbol}, {max(size, 1)}",
                   f"stand_in_{symbol}:", f".symver stand_in_{symbol}, {symbol}@@{version}, remove"]
    (folder / "stand_in.s").write_text("\n".join(source) + "\n")
    (folder / "stand_in.map").write_text("".join(f"{version} {{ }};\n" for version in versions))
    script = [f"-Wl,--version-script={folder / 'stand_in.map'}"] if versions else []
    subprocess.run([compiler, "-shared", "-nostdlib", f"-Wl,-soname,{name}", *script, "-o", folder / name,
                    folder / "stand_in.s"], check=True)


def build_libgomp(compiler, folder):
    """Position-independent libgomp.a from the source of the compiler, as a package of its distribution."""
    major = output(compiler, "-dumpversion").split(".")[0]
    target = output(compiler, "-dumpmachine")
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        subprocess.run(["apt-get", "download", f"gcc-{major}-source"], cwd=work, check=True, stdout=subprocess.DEVNULL)
        package, = work.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, work], check=True)
        archive, = (work / f"usr/src/gcc-{major}").glob("gcc-*.tar.*")
        # What the directory takes from its neighbours; all else is left out.
        neighbours = ["config", "include", "gcc/BASE-VER", "gcc/DATESTAMP", "compile", "config-ml.in", "config.guess",
                      "config.sub", "depcomp", "install-sh", "ltmain.sh", "missing", "multilib.am"]
        subprocess.run(["tar", "xf", archive, "-C", work, "--strip-components=1", "--wildcards",
                        "--no-wildcards-match-slash", *(f"gcc-*/{name}" for name in ["libgomp", *neighbours])], check=True)
        objects = work / "objects"
        objects.mkdir()
        subprocess.run([work / "libgomp/configure", f"--host={target}", f"--build={output('gcc', '-dumpmachine')}",
                        "--disable-multilib", "--disable-shared", "--with-pic", "FC=no", "CFLAGS=-O2"],
                       cwd=objects, check=True, stdout=subprocess.DEVNULL)
        # Without what it asks for by itself, variables of threads at fixed places: a library that has them, and more of
        # its own, can't be opened by a program that runs, as Python opens modules.
        subprocess.run(["make", "-s", "libgomp.la", "XCFLAGS=-Wall -pthread"], cwd=objects, check=True,
                       stdout=subprocess.DEVNULL)
        (folder / "libgomp.a").write_bytes((objects / ".libs/libgomp.a").read_bytes())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", help="of glibc, such as 2.28")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compiler", default="g++")
    chosen = parser.parse_args()
    folder, compiler = chosen.folder.resolve(), chosen.compiler
    folder.mkdir(parents=True, exist_ok=True)
    newest = tuple(int(part) for part in chosen.version.split("."))

    def found(name):
        path = output(compiler, f"-print-file-name={name}")
        if "/" not in path:
            sys.exit(f"old_glibc: {compiler} has no {name}")
        return path

    loader = re.search(r"ld-linux[-\w]*\.so\.\d", Path(found("libc.so")).read_text())[0]
    for name in ("libc.so.6", "libm.so.6", loader):
        write_stand_in(compiler, folder, name, symbols_of(found(name), newest))
    for name in FORMERLY:
        write_stand_in(compiler, folder, name, {})
    (folder / "libm.so").write_text(f"INPUT({folder / 'libm.so.6'})\n")
    (folder / "libc.so").write_text(f"GROUP({folder / 'libc.so.6'} {found('libc_nonshared.a')} AS_NEEDED({folder / loader}))\n")
    (folder / "fmt.cpp").write_text(FMT)
    for source, made in ((HERE / "old_glibc.cpp", "later.o"), (folder / "fmt.cpp", "fmt.o")):
        subprocess.run([compiler, "-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-c", source, "-o", folder / made],
                       check=True)
    if not (folder / "libgomp.a").exists():
        build_libgomp(compiler, folder)
    # What makes dictionaries takes the address of stderr as a program does, and nothing here calls it.
    shutil.copy(found("libzstd.a"), folder)
    subprocess.run(["ar", "d", folder / "libzstd.a", "zdict.o", "cover.o", "fastcover.o", "divsufsort.o"], check=True)
    (folder / "libraries").write_text("\n".join(map(str, [
        folder / "fmt.o", "-Wl,--whole-archive", folder / "libgomp.a", folder / "libzstd.a", "-Wl,--no-whole-archive"])) + "\n")
    (folder / "flags").write_text("\n".join(map(str, [
        f"-L{folder}", "-Wl,--allow-shlib-undefined", "-static-libstdc++", folder / "later.o", "-Wl,--push-state,--no-as-needed",
        *(folder / name for name in FORMERLY), "-Wl,--pop-state"])) + "\n")


if __name__ == "__main__":
    main()
