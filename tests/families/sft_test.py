#!/usr/bin/env python3
"""Fine-tuning held to TRL's: ids and targets of samples, the masked loss, the gradients. PATH_OF_HEDDLE is the argument.

`tests/fixtures/sft/trl.json` holds what TRL's SFTTrainer made (`tools/make_sft_fixture.py`); nothing of it is needed here.
"""
import json
import struct
import unittest

from dump_test import FIXTURES, InFolder, read

SFT = FIXTURES / "sft"
TRL = json.loads((SFT / "trl.json").read_text())
NO_LABEL, END = -100, 29
NEAR = 1e-5    # of f32; TRL's loss was taken in it


class Sft(InFolder):
    def prepared(self, name):
        """Ids and labels of each sample, as `heddle data` writes them."""
        self.heddle("data", SFT / f"{name}.jsonl", "--chat", "--tokenizer", SFT, "--out", name)
        ids = [id for (id,) in struct.iter_unpack("<H", (self.folder / name / "text.bin").read_bytes())]
        weights = (self.folder / name / "text.weights").read_bytes()
        self.assertEqual(len(ids), len(weights))
        samples, at = [], 0
        for length in map(len, TRL[name]["input_ids"]):
            of, own = ids[at:at + length], weights[at:at + length]
            samples.append((of, [id if weight else NO_LABEL for id, weight in zip(of, own)]))
            at += length
        self.assertEqual(at, len(ids))
        return samples

    def test_ids_and_targets(self):
        for name in ("conversations", "pairs"):
            samples = self.prepared(name)
            self.assertEqual([ids for ids, _ in samples], TRL[name]["input_ids"])
            self.assertEqual([labels for _, labels in samples], TRL[name]["labels"])

    def test_loss_and_gradients(self):
        for name in ("conversations", "pairs"):
            samples = self.prepared(name)
            longest = max(len(ids) for ids, _ in samples)
            for i, file in enumerate(("tokens.json", "labels.json")):
                rows = [sample[i] + [(END, NO_LABEL)[i]] * (longest - len(sample[i])) for sample in samples]
                (self.folder / file).write_text(json.dumps(rows))
            self.heddle("dump", FIXTURES / "qwen3", "--tokens", "tokens.json", "--labels", "labels.json", "--out", "out")
            found = read(self.folder / "out")
            self.assertLess(abs(found["loss"][1][0] / TRL[name]["loss"] - 1), NEAR)
            expected = TRL[name]["gradient_norms"]
            self.assertEqual({n for n in found if n.startswith("grad.")}, {f"grad.{n}" for n in expected})
            for tensor, norm in expected.items():
                own = sum(x * x for x in found[f"grad.{tensor}"][1]) ** 0.5
                self.assertLess(abs(own / norm - 1), NEAR, f"{name} {tensor}")


if __name__ == "__main__":
    unittest.main()
