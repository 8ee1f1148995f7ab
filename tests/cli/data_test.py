#!/usr/bin/env python3
"""Text to token files and back: what Megatron-LM reads of ours and we of its, other forms of text, blends.

    data_test.py PATH_OF_HEDDLE

`MegatronReader` and `megatron_writes` are Megatron-LM's megatron/core/datasets/indexed_dataset.py (version 1) in the
plain language: the same fields read and written in the same order, with the same checks.
"""
import array
import gzip
import json
import pathlib
import struct
import unittest

from program import Program

ROOT = pathlib.Path(__file__).resolve().parents[2]
DTYPES = {1: "B", 2: "b", 3: "h", 4: "i", 5: "q", 6: "d", 7: "f", 8: "H"}


class MegatronReader:
    def __init__(self, prefix):
        index = pathlib.Path(f"{prefix}.idx").read_bytes()
        assert index[:9] == b"MMIDIDX\x00\x00", "bad header"
        (version,) = struct.unpack("<Q", index[9:17])
        assert version == 1, "bad version"
        (code,) = struct.unpack("<B", index[17:18])
        self.form = DTYPES[code]
        self.size = array.array(self.form).itemsize
        sequences, documents = struct.unpack("<QQ", index[18:34])
        at = 34
        self.lengths = struct.unpack_from(f"<{sequences}i", index, at)
        at += 4 * sequences
        self.pointers = struct.unpack_from(f"<{sequences}q", index, at)
        at += 8 * sequences
        self.document_indices = struct.unpack_from(f"<{documents}q", index, at)
        assert len(self.lengths) == self.document_indices[-1]
        self.bin = pathlib.Path(f"{prefix}.bin").read_bytes()
        assert at + 8 * documents == len(index) and sum(self.lengths) * self.size == len(self.bin)

    def __getitem__(self, sequence):
        begin = self.pointers[sequence]
        ids = array.array(self.form)
        ids.frombytes(self.bin[begin:begin + self.size * self.lengths[sequence]])
        return list(ids)


def megatron_writes(prefix, documents, form):
    """`documents` are lists of sequences, as --split-sentences makes them."""
    data, lengths, marks = array.array(form), [], [0]
    for sequences in documents:
        for ids in sequences:
            data.extend(ids)
            lengths.append(len(ids))
        marks.append(len(lengths))
    pointers, at = [], 0
    for length in lengths:
        pointers.append(at)
        at += length * data.itemsize
    code = next(code for code, name in DTYPES.items() if name == form)
    pathlib.Path(f"{prefix}.bin").write_bytes(data.tobytes())
    pathlib.Path(f"{prefix}.idx").write_bytes(
        b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(lengths), len(marks))
        + struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(pointers)}q", *pointers)
        + struct.pack(f"<{len(marks)}q", *marks))


class Data(Program):
    def test_megatron_reads_ours(self):
        documents = ["the first one\nof two lines", "déjà vu 中文 🙂", "x" * 5000]
        (self.folder / "three.jsonl.gz").write_bytes(gzip.compress(
            "".join(json.dumps({"id": 1, "content": text}) + "\n" for text in documents).encode()))
        told = json.loads(self.heddle("data", "three.jsonl.gz", "--out", "three", "--vocabulary", "300", "--key",
                                      "content", "--threads", "2", "--json").stdout)
        self.assertEqual(told["documents"], 3)
        reader = MegatronReader(self.folder / "three/text")
        self.assertEqual(reader.form, "H")
        self.assertEqual(reader.document_indices, (0, 1, 2, 3))
        vocabulary = json.loads((self.folder / "three/tokenizer.json").read_text())
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        hidden = iter(range(256, 512))
        byte_of = {chr(b) if b in shown else chr(next(hidden)): b for b in range(256)}
        bytes_of = {id: bytes(byte_of[c] for c in token) for token, id in vocabulary["model"]["vocab"].items()}
        end = vocabulary["added_tokens"][0]["id"]
        for i, text in enumerate(documents):
            ids = reader[i]
            self.assertEqual(ids.pop(), end)
            self.assertEqual(b"".join(bytes_of[id] for id in ids).decode(), text)

    def test_a_published_form_of_tokenizer(self):
        llama = ROOT / "tests/fixtures/tokenizers/llama2_sp.model"
        self.heddle("data", "text.txt", "--out", "llama", "--tokenizer", llama)
        self.assertEqual((self.folder / "llama/tokenizer.model").read_bytes(), llama.read_bytes())
        self.assertEqual(MegatronReader(self.folder / "llama/text")[0][-1], 2)  # </s>
        kimi = ROOT / "tests/fixtures/tokenizers/kimi"
        self.heddle("data", "text.txt", "--out", "kimi", "--tokenizer", kimi)
        self.assertTrue((self.folder / "kimi/tokenizer.tiktoken").exists())
        again = self.heddle("data", "text.txt", "--out", "kimi", "--tokenizer", kimi).stdout
        self.assertIn("up to date", again)

    def test_ours_reads_megatrons(self):
        for form in ("H", "i"):
            documents = [[[i % 290, (7 * i) % 290, 3] * 9, [5] * (i % 4)] for i in range(120)]
            megatron_writes(self.folder / f"megatron_{form}", documents, form)
            self.heddle("train", "tiny.toml", "--steps", "4", "--set", f"data.source=megatron_{form}", "--set",
                        f"output=megatron_run_{form}")
        self.assertEqual(self.losses("megatron_run_H"), self.losses("megatron_run_i"))

    def test_blends_go_on_and_have_a_validation_set(self):
        for name, token in (("a", 11), ("b", 22), ("v", 33)):
            megatron_writes(self.folder / name, [[[token, (token * i) % 290, i % 290] * 20] for i in range(80)], "H")
        keys = ["--set", "data.source=0.75 a 0.25 b", "--set", "data.validation=v"]
        self.heddle("train", "tiny.toml", *keys, "--set", "output=whole")
        self.heddle("train", "tiny.toml", *keys, "--set", "output=parts", "--steps", "3")
        self.heddle("train", "tiny.toml", "--resume", *keys, "--set", "output=parts", "--steps", "6")
        whole, parts = self.losses("whole"), self.losses("parts")
        self.assertEqual([whole[step] for step in (1, 2)], [parts[step] for step in (1, 2)])
        self.assertEqual(sorted(parts), [1, 2, 3, 4, 5, 6])
        other = self.heddle("train", "tiny.toml", "--resume", *keys[2:], "--set", "data.source=0.5 a 0.5 b", "--set",
                            "output=parts", "--steps", "9", status=2).stderr
        self.assertIn("was trained on other data: weights of the blend is 5 : 5, was 75 : 25", other)
        self.refused("'0.5 a 0.5': a blend is WEIGHT PATH WEIGHT PATH …, and '0.5' has no path behind it", "train",
                     "tiny.toml", "--set", "data.source=0.5 a 0.5", "--set", "output=none")
        # Texts of a blend are prepared with one tokenizer, that of the first.
        (self.folder / "other.txt").write_text("another text of other words altogether\n\n" * 2000)
        self.heddle("train", "tiny.toml", "--steps", "2", "--set", "data.source=2 text.txt 1 other.txt", "--set",
                    "data.folder=blended", "--set", "output=blend_of_texts")
        self.assertEqual((self.folder / "blended/1/tokenizer.json").read_bytes(),
                         (self.folder / "blended/2/tokenizer.json").read_bytes())


if __name__ == "__main__":
    unittest.main()
