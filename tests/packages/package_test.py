#!/usr/bin/env python3
"""Makes the archive and the Debian package of the program from a build, unpacks them elsewhere and runs what is in them.

    package_test.py BUILD

The package is left out, by name, where dpkg-deb, dpkg-shlibdeps or file is missing.
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
SECONDS = 300
KEPT = ("bin/heddle", "share/man/man1/heddle.1.gz", "share/man/man1/heddle-plan.1.gz",
        "share/bash-completion/completions/heddle", "share/zsh/site-functions/_heddle",
        "share/zsh/vendor-completions/_heddle", "share/fish/vendor_completions.d/heddle.fish",
        "share/heddle/examples/demo.toml")


def run(*words, **more):
    done = subprocess.run([str(w) for w in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=SECONDS, **more)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: status {done.returncode}\n{done.stdout[-4000:]}")
    return done.stdout


def look(top, version):
    missing = [path for path in KEPT if not (top / path).is_file()]
    if missing:
        sys.exit(f"{top} lacks {missing}")
    if f"heddle {version}" not in run(top / "bin/heddle", "version"):
        sys.exit("another version than the project's")


def check_debian_package(folder, version):
    absent = [name for name in ("dpkg-deb", "dpkg-shlibdeps", "file") if not shutil.which(name)]
    if absent:
        print(f"Debian package: skipped, without {', '.join(absent)}")
        return
    run("cpack", "-G", "DEB", "-B", folder / "made", "-D", "CPACK_STRIP_FILES=OFF", cwd=BUILD)
    package, = (folder / "made").glob("heddle_*.deb")
    run("dpkg-deb", "-x", package, folder / "installed")
    look(folder / "installed/usr", version)
    stray = {path.name for path in (folder / "installed").iterdir()} - {"usr"}
    if stray:
        sys.exit(f"the package installs {sorted(stray)} in the root of the system")
    needed = run("dpkg-deb", "-f", package, "Depends")
    if not {"libc6", "libfmt"} <= {re.match(r"[a-z]+6?", each.strip()).group() for each in needed.split(",")}:
        sys.exit(f"the package depends on {needed}")


def main():
    version = re.search(r"^CMAKE_PROJECT_VERSION:\w+=(.*)$", (BUILD / "CMakeCache.txt").read_text(), re.M).group(1)
    with tempfile.TemporaryDirectory(prefix="heddle-package-") as name:
        folder = pathlib.Path(name)
        run("cpack", "-G", "TGZ", "-B", folder / "made", "-D", "CPACK_STRIP_FILES=OFF", cwd=BUILD)
        archives = list((folder / "made").glob("heddle-*.tar.gz"))
        if len(archives) != 1 or version not in archives[0].name:
            sys.exit(f"one archive of {version} was expected, found {[a.name for a in archives]}")
        members = run("tar", "-tzf", archives[0]).splitlines()
        (folder / "root").mkdir()
        run("tar", "-xzf", archives[0], "-C", folder / "root")
        top = folder / "root" / members[0].split("/")[0]
        look(top, version)
        if any(path.endswith((".a", ".h")) for path in members):
            sys.exit("the archive of the program holds libraries or headers")
        answer = run(top / "bin/heddle", "plan", "Qwen3-30B-A3B", "--cluster", "H100", "--devices", "8",
                     "--global-batch", "64", "--threads", "1")
        if "tokens/s" not in answer:
            sys.exit(answer)
        if "heddle" not in run("bash", "--norc", "-c", f"source {top}/share/bash-completion/completions/heddle; "
                               "complete -p heddle"):
            sys.exit("no completion")
        check_debian_package(folder, version)


if __name__ == "__main__":
    main()
