"""The program as the tests of the command line run it.

The path of `heddle` is the first argument of each of them.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from tiny_toml import TINY_MODEL, tiny_toml

HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/heddle").resolve()
MACHINE_SECONDS = 300    # after which a program hangs, however many others run


TINY = tiny_toml({**TINY_MODEL, "num_nextn_predict_layers": 1, "sequence_aux_loss_alpha": 1e-4}, steps=6, global_batch=4,
                 microbatch=2, sequence_length=32, warmup_steps=2, decay_steps=2, eval_every=3, eval_sequences=4,
                 checkpoint_every=3, keep_checkpoints=9, sample_tokens=4)


def run(*arguments, **how):
    """The program from its start to its end."""
    return subprocess.run([HEDDLE, *arguments], **{"capture_output": True, "text": True, "timeout": MACHINE_SECONDS, **how})


class Program(unittest.TestCase):
    """A folder with a tiny configuration and its text, and ways to run the program there."""

    MPIRUN = ()  # options of mpirun

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-cli-"))
        os.environ["XDG_CACHE_HOME"] = str(cls.folder / "cache")  # whatever profile the user's own holds
        (cls.folder / "tiny.toml").write_text(TINY)
        draw = random.Random(1)
        words = "the shuttle passes between warp and weft while a heddle lifts every second thread".split()
        paragraphs = [" ".join(draw.choices(words, k=60)) + "." for _ in range(1200)]
        (cls.folder / "text.txt").write_text("\n\n".join(paragraphs))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def heddle(self, *arguments, status=0, environment=None):
        done = run(*arguments, cwd=self.folder, env=environment)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        return done

    def refused(self, message, *arguments):
        done = self.heddle(*arguments, status=2)
        said = [line for line in done.stderr.splitlines() if not line.startswith("heddle: warning: ")]
        self.assertEqual("\n".join(said), f"heddle: {message}")

    def losses(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return {line["step"]: line["lm_loss"] for line in map(json.loads, lines)}

    def job(self, *arguments, ranks=2, own=()):
        """The command and the environment of ranks under mpirun; `own`: arguments of each rank after the first."""
        command = ["mpirun", "--oversubscribe", "--bind-to", "none", *map(str, self.MPIRUN)]
        for rank, more in enumerate(own or [()]):
            command += [":"] * (rank > 0) + ["-np", "1" if own else f"{ranks}", HEDDLE, *arguments, *more]
        return command, {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                         "OMP_WAIT_POLICY": "passive"}

    def mpirun(self, *arguments, ranks=2, fails=False, own=()):
        """`fails`: False, True (any status but 0) or the status."""
        command, environment = self.job(*arguments, ranks=ranks, own=own)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=MACHINE_SECONDS,
                              env=environment)
        right = done.returncode == fails if type(fails) is int else (done.returncode != 0) == fails
        self.assertTrue(right, f"{arguments} {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def needs_mpi(self):
        backends = {f["what"]: f["found"] for f in json.loads(self.heddle("doctor", "--json").stdout)["backends"]}
        if backends["messages by MPI"].startswith("not available") or not shutil.which("mpirun"):
            self.skipTest("no MPI")
