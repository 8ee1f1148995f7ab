"""What is known of a state is compared wherever it is read, and the newest state that opens is gone on with."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

from program import HEDDLE, MACHINE_SECONDS, Program

TABLE = []
for byte in range(256):
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    TABLE.append(byte)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 255]
    return f"{crc ^ 0xFFFFFFFF:08x}"


# Fractions keep their digits: Python writes some shorter than the program does.
def read_state(path):
    return json.loads(path.read_text(), parse_float=lambda digits: f"fraction {digits}")["state"]


def write_state(path, state):
    def text(what, **how):
        return re.sub(r'"fraction (.*?)"', r"\1", json.dumps(what, sort_keys=True, ensure_ascii=False, **how))
    inner = text(state, separators=(",", ":"))
    path.write_text(text({"checksum": crc32c(inner.encode()), "state": state}, indent=1) + "\n")


def harm(checkpoint, tensor, forget=()):
    """Turns a bit of a tensor and makes its checksum right; the state no longer says what is in `forget`."""
    path = checkpoint / "model.safetensors"
    raw = bytearray(path.read_bytes())
    size = struct.unpack("<Q", raw[:8])[0]
    begin, end = (8 + size + at for at in json.loads(raw[8:8 + size])[tensor]["data_offsets"])
    raw[begin + 2] ^= 0x10
    path.write_bytes(raw)
    state = read_state(checkpoint / "state.json")
    state["tensors"][tensor] = crc32c(raw[begin:end])
    for key in forget:
        del state[key]
    write_state(checkpoint / "state.json", state)


WEIGHT = "model.layers.0.self_attn.o_proj.weight"
OLDER = ("weights_digest", "moments_digest")    # what older versions do not say


class KeptState(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls("run_all").heddle("train", "tiny.toml", "--set", "output=whole", "--set", "train.steps=9")

    def run_all(self):
        """So that the class can run the program."""

    def copy(self, name):
        shutil.copytree(self.folder / "whole", self.folder / name)
        return self.folder / name

    def digests(self, run):
        lines = (self.folder / run / "metrics.jsonl").read_text().splitlines()
        return {line["step"]: line["weights_digest"] for line in map(json.loads, lines)}

    def resume(self, run, *more, status=0):
        return self.heddle("train", "tiny.toml", "--set", f"output={run}", "--set", "train.steps=9", "--resume", *more,
                           status=status)

    def without_last(self, run):
        shutil.rmtree(run / "checkpoints/step-000009")

    def test_every_reader_refuses_what_is_not_what_was_saved(self):
        run = self.copy("changed")
        for step in (3, 6, 9):
            harm(run / f"checkpoints/step-00000{step}", WEIGHT)
        for arguments in (("convert", "changed", "--to", "x"), ("generate", "changed", "--tokens", "2"),
                          ("eval", "changed"), ("convert", "changed/checkpoints/step-000006", "--to", "x"),
                          ("train", "tiny.toml", "--set", "output=y", "--set", "train.start=changed"),
                          ("train", "tiny.toml", "--set", "output=changed", "--set", "train.steps=12", "--resume")):
            with self.subTest(arguments[0]):
                self.assertIn("its weights have the digest", self.heddle(*arguments, status=2).stderr)

    def test_moments_have_a_digest_too(self):
        for moment in "mv":
            run = self.copy(f"moment-{moment}")
            self.without_last(run)
            harm(run / "checkpoints/step-000006", f"{moment}.{WEIGHT}")
            self.assertIn("its moments have the digest",
                          self.heddle("convert", f"{run}/checkpoints/step-000006", "--to", "x", status=2).stderr)
            told = self.resume(run.name).stderr
            self.assertIn("passed over", told)
            self.assertIn("going on after step 3", told)
            self.assertEqual(self.digests(run.name), self.digests("whole"))

    def test_the_log_knows_what_a_state_does_not_say(self):
        run = self.copy("logged")
        self.without_last(run)
        harm(run / "checkpoints/step-000006", WEIGHT, OLDER)
        audited = json.loads(self.heddle("audit", "logged", "--steps", "7-8", "--json").stdout)
        self.assertEqual(audited["from_step"], 3)
        self.assertTrue(audited["agrees"])
        self.assertIn("the run's log says", audited["notes"][0])
        told = self.resume("logged").stderr
        self.assertIn("the run's log says", told)
        self.assertIn("going on after step 3", told)
        self.assertEqual(self.digests("logged"), self.digests("whole"))

    def test_an_older_checkpoint_loads_and_an_audit_says_what_it_trusts(self):
        run = self.copy("older")
        for step in (3, 6, 9):
            path = run / f"checkpoints/step-00000{step}/state.json"
            state = read_state(path)
            for key in OLDER:
                del state[key]
            write_state(path, state)
        audited = json.loads(self.heddle("audit", "older", "--steps", "8", "--json").stdout)
        self.assertTrue(audited["trusts"].endswith("step-000006"))
        self.assertIn("have the digest in the run's log", audited["trusted_by"])
        self.assertIn("its moments by their checksums alone", audited["trusted_by"])
        told = self.heddle("audit", "whole", "--steps", "8").stdout
        self.assertIn("the checkpoint of step 6, which is trusted: its weights have the digest in it and in the run's log, "
                      "its moments have the digest in it", " ".join(told.split()))
        self.without_last(run)
        self.resume("older")
        self.assertEqual(self.digests("older"), self.digests("whole"))

    def test_a_log_of_another_training_is_told(self):
        run = self.copy("another")
        self.without_last(run)
        log = run / "metrics.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        lines[5]["weights_digest"] = "0123456789abcdef"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        self.assertIn("it is of another training than the log", self.resume("another").stderr)

    def killed(self, output, until, *more):
        """A run that is killed in the middle of a step, once step `until` is in its log."""
        run = subprocess.Popen([HEDDLE, "train", "tiny.toml", "--set", f"output={output}", "--set", "train.steps=4000", "--set",
                                "train.eval_every=0", "--set", "train.sample_tokens=0", *more], cwd=self.folder,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        log, end = self.folder / output / "metrics.jsonl", time.monotonic() + MACHINE_SECONDS
        while not log.exists() or log.read_text().count("\n") < until:
            self.assertIsNone(run.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
        run.wait()

    def memory(self, run):
        """The folders in memory that a run has noted and that are there."""
        noted = self.folder / run / ".memory"
        return [path for path in map(pathlib.Path, noted.read_text().split() if noted.exists() else []) if path.exists()]

    def test_a_damaged_checkpoint_does_not_hide_copies_in_memory(self):
        self.killed("hidden", 81, "--set", "train.snapshot_every=70", "--set", "train.checkpoint_every=80")
        steps = sorted(path.name for path in (self.folder / "hidden/checkpoints").glob("step-*"))
        self.assertEqual(steps[-1], "step-000080", "the machine was too slow to be killed in time" if steps else "")
        path = self.folder / "hidden/checkpoints/step-000080/model.safetensors"
        raw = bytearray(path.read_bytes())
        raw[-5] ^= 1
        path.write_bytes(raw)
        told = self.heddle("train", "tiny.toml", "--set", "output=hidden", "--set", "train.steps=82", "--set",
                           "train.snapshot_every=70", "--resume").stderr
        self.assertIn("going on from memory of step 70", told)
        self.assertIn("passed over", told)
        self.assertEqual(self.memory("hidden"), [])

    def leftovers(self, size):
        """Segments in memory of models with this vocabulary, which no other test has."""
        found = []
        for path in pathlib.Path("/dev/shm").glob("heddle-*/*.index"):
            try:
                found += [path] if f"[{size},32]" in path.read_text().replace(" ", "").replace("\n", "") else []
            except OSError:
                pass    # of a run that has just ended
        return found

    def test_a_refused_start_gives_its_memory_back(self):
        size = 300 + os.getpid() % 1000
        copies = ("--set", "train.snapshot_every=1", "--set", f"model.vocab_size={size}", "--set", "data.vocabulary=300")
        start = ("train", "tiny.toml", "--set", "output=refused", *copies)
        self.heddle(*start)
        before = set(pathlib.Path("/dev/shm").glob("heddle-*"))
        for says, arguments in (("holds a run already", start), ("nothing is left to do", (*start, "--resume")),
                                ("another seed", (*start, "--resume", "--set", "train.steps=9", "--set", "seed=7")),
                                ("nothing is there",
                                 ("train", "tiny.toml", "--set", "output=z", *copies, "--set", "train.start=nowhere")),
                                ("", ("train", "tiny.toml", "--set", "output=text.txt/x", *copies))):
            done = subprocess.run([HEDDLE, *arguments], cwd=self.folder, capture_output=True, text=True,
                                  timeout=MACHINE_SECONDS)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
            self.assertEqual(self.leftovers(size), [], arguments)
            # An emptied folder must not stay either; another run on this machine may have come since.
            left = [path for path in set(pathlib.Path("/dev/shm").glob("heddle-*")) - before
                    if path.exists() and not any(path.iterdir())]
            time.sleep(0.2 * bool(left))
            self.assertEqual([path for path in left if path.exists() and not any(path.iterdir())], [], arguments)

    def test_so_does_one_of_several_processes(self):
        self.needs_mpi()
        size = 1400 + os.getpid() % 1000
        copies = ("--set", "train.snapshot_every=1", "--set", f"model.vocab_size={size}", "--set", "data.vocabulary=300",
                  "--set", "mesh.dp=2")
        self.mpirun("train", "tiny.toml", "--set", "output=refused-mpi", *copies)
        self.mpirun("train", "tiny.toml", "--set", "output=refused-mpi", *copies, fails=True)
        self.assertEqual(self.leftovers(size), [])
        self.mpirun("train", "tiny.toml", "--set", "output=refused-mpi", *copies, "--resume", fails=True)
        self.assertEqual(self.leftovers(size), [])


if __name__ == "__main__":
    unittest.main()
