#!/usr/bin/env python3
"""`heddle dump` of the fixtures' models against their numbers, and what it refuses. PATH_OF_HEDDLE is the argument."""
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve()
FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
KINDS = {"F32": "f", "F64": "d", "I64": "q"}


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    return {name: (t["shape"], struct.unpack_from(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // struct.calcsize(KINDS[t['dtype']])}{KINDS[t['dtype']]}",
                                                  data, 8 + length + t["data_offsets"][0])) for name, t in header.items()}


def distance(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b, strict=True)) / max(sum(y * y for y in b), 1e-30)) ** 0.5


class InFolder(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def heddle(self, *words):
        done = subprocess.run([HEDDLE, *map(str, words)], cwd=self.folder, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)


class Dump(InFolder):
    def dump(self, case, tokens, *more):
        (self.folder / "tokens.json").write_text(tokens if isinstance(tokens, str) else json.dumps(tokens))
        return subprocess.run([HEDDLE, "dump", FIXTURES / case, "--tokens", "tokens.json", "--out", "out.safetensors", *more],
                              cwd=self.folder, capture_output=True, text=True, timeout=300)

    def test_numbers_of_another_implementation(self):
        for case in ("llama", "mixtral", "glm4_moe", "yarn"):
            expected = read(FIXTURES / case / "expected.safetensors")
            (rows, columns), ids = expected["input_ids"]
            done = self.dump(case, [ids[r * columns:(r + 1) * columns] for r in range(rows)])
            self.assertEqual(done.returncode, 0, done.stderr)
            found = read(self.folder / "out.safetensors")
            self.assertEqual({n for n in found if n.startswith("grad.")}, {n for n in expected if n.startswith("grad.")})
            for name in found.keys() & expected.keys():
                self.assertEqual(found[name][0], expected[name][0], name)
                self.assertLess(distance(found[name][1], expected[name][1]), 1e-5, f"{case} {name}")

    def test_refusals(self):
        for tokens, part in (("[]", "no list of sequences"), ("[[1]]", "two ids or more"), ("[[1, 2], [3, 4, 5]]", "has 3 ids, the first 2"),
                             ("[[1, -2]]", "no token id"), ("[[1, 999]]", "outside of the model's 59")):
            done = self.dump("llama", tokens)
            self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1), done.stderr)
            self.assertIn(part, done.stderr)
        done = self.dump("llama", [[1, 2]], "--set", "mesh.tp=2")
        self.assertIn("a dump is of one", done.stderr)


if __name__ == "__main__":
    unittest.main()
