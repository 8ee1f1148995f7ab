"""embed_test.py BUILD: installs the build into a new folder, builds examples/embed against it, and runs that."""
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
CONFIG = """
[model]
preset = "demo"
[train]
sequence_length = 32
microbatch = 1
global_batch = 2
[device]
threads = 1
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}")
    return done.stdout


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    run("cmake", "--install", sys.argv[1], "--prefix", folder / "installed")
    run("cmake", "-S", SOURCE / "examples/embed", "-B", folder / "build", "-G", "Ninja",
        f"-DCMAKE_PREFIX_PATH={folder / 'installed'}")
    run("cmake", "--build", folder / "build")
    (folder / "tiny.toml").write_text(CONFIG)
    lines = run(folder / "build/embed", folder / "tiny.toml").splitlines()
    losses = [float(line.split()[-1]) for line in lines[1:]]
    if len(losses) != 3 or not losses[2] < losses[0]:
        sys.exit("three steps with a falling loss were expected:\n" + "\n".join(lines))
