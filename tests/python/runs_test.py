#!/usr/bin/env python3
"""Training from Python, and the files of runs: metrics, checkpoints, tokenizers, token files."""

import os
import shutil
import signal
import subprocess
import threading
import unittest

from module import Module, heddle

import numpy as np  # noqa: E402


class RunsTest(Module):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        os.chdir(cls.folder)
        cls.seen = []
        cls.summary = heddle.train("tiny.toml", set={"output": "runs/python"}, on_step=cls.seen.append)
        subprocess.run(
            [heddle_program(), "train", "tiny.toml", "--quiet", "--set", "output=runs/program"],
            check=True,
            capture_output=True,
        )

    @classmethod
    def tearDownClass(cls):
        os.chdir("/")
        super().tearDownClass()

    def test_the_run_is_the_programs(self):
        summary = self.summary
        self.assertEqual((summary.steps, summary.interrupted), (6, False))
        self.assertEqual([step["step"] for step in self.seen], [1, 2, 3, 4, 5, 6])
        mine, its = heddle.Run("runs/python"), heddle.Run("runs/program")
        np.testing.assert_array_equal(mine.metrics["lm_loss"], its.metrics["lm_loss"])
        self.assertEqual([step["lm_loss"] for step in self.seen], list(mine.metrics["lm_loss"]))
        self.assertEqual((mine.figures["folder"], mine.figures["step"]), ("runs/python", 6))
        self.assertEqual(summary.figures["loss"], mine.figures["loss"])
        self.assertEqual(
            set(summary.data),
            {
                "folder",
                "checkpoint",
                "report",
                "weights_digest",
                "first_step",
                "steps",
                "interrupted",
                *summary.figures,
            },
        )
        self.assertIn("[train]", mine.config)

    def test_checkpoints(self):
        run = heddle.Run("runs/python")
        self.assertEqual([os.path.basename(path) for path in run.checkpoints], ["step-000003", "step-000006"])
        newest, its = run.checkpoint(), heddle.Run("runs/program").checkpoint()
        self.assertEqual(newest.step, 6)
        self.assertEqual(set(newest), set(its))
        for name in newest:
            np.testing.assert_array_equal(newest[name], its[name])
            self.assertEqual(newest[name].shape, newest.shape(name))
        mapped = heddle.tensors(newest.path)
        for name, each in mapped.items():
            np.testing.assert_array_equal(each, newest[name])
        self.assertGreater(float(np.abs(newest["m.lm_head.weight"]).max()), 0)

    def test_damaged_checkpoints_are_refused(self):
        shutil.copytree("runs/python", "runs/damaged")
        path = heddle.Run("runs/damaged").checkpoints[0]
        file = os.path.join(path, "model.safetensors")
        with open(file, "r+b") as bytes_of:
            bytes_of.seek(-1, os.SEEK_END)
            last = bytes_of.read(1)
            bytes_of.seek(-1, os.SEEK_END)
            bytes_of.write(bytes([last[0] ^ 1]))
        with self.assertRaises(heddle.InputError):
            heddle.Checkpoint(path)
        os.truncate(file, 100)
        with self.assertRaises(heddle.InputError):
            heddle.tensors(path)

    def test_tokenizer_and_token_file(self):
        tokenizer = heddle.Run("runs/python").tokenizer
        text = "the shuttle passes between warp and weft"
        ids = tokenizer.encode(text)
        self.assertEqual(ids.dtype, np.int32)
        self.assertEqual(tokenizer.decode(ids), text)
        self.assertLess(int(ids.max()), tokenizer.vocabulary)
        document = tokenizer.encode_document(text)
        self.assertEqual(list(document), [*ids, tokenizer.end_of_text])
        with self.assertRaises(heddle.InputError):
            tokenizer.decode([tokenizer.vocabulary])
        prefix = next((self.folder / "prepared").rglob("*.idx")).with_suffix("")
        file = heddle.dataset(prefix)
        self.assertIsInstance(file.tokens, np.memmap)
        self.assertFalse(file.tokens.flags.writeable)
        self.assertTrue(np.shares_memory(file.document(0), file.tokens))
        self.assertEqual(int(file.begins[-1]), len(file.tokens))
        self.assertEqual(sum(len(file.document(each)) for each in range(len(file))), len(file.tokens))
        self.assertEqual(file.sequences(16).shape, (len(file.tokens) // 16, 16))
        self.assertIn(tokenizer.decode(file.document(0)[:-1]).split()[0], (self.folder / "text.txt").read_text())
        os.truncate(f"{prefix}.bin", 10)
        with self.assertRaises(heddle.InputError):
            heddle.dataset(prefix)

    def test_metrics(self):
        shutil.copytree("runs/program", "runs/read")
        run = heddle.Run("runs/read")
        with open("runs/read/metrics.jsonl", "a") as file:
            file.write(
                '{"step": 6, "lm_loss": "nan"}\n{"step": 7, "lo'
            )  # a step again, and one that is being written
        metrics = run.metrics
        self.assertEqual(len(metrics), 6)
        self.assertTrue(np.isnan(metrics["lm_loss"][5]))
        self.assertEqual(metrics["lm_loss"].shape, (6,))
        with self.assertRaises(KeyError):
            metrics["nothing"]
        with open("runs/read/metrics.jsonl", "a") as file:
            file.write("\n")
        with self.assertRaisesRegex(heddle.InputError, "metrics.jsonl:8: not a line of a step"):
            run.metrics
        with self.assertRaises(heddle.InputError):
            heddle.Run("nowhere")

    def test_a_callback_ends_the_run(self):
        summary = heddle.train("tiny.toml", set={"output": "runs/ended"}, on_step=lambda step: step["step"] < 2)
        self.assertTrue(summary.interrupted)
        self.assertEqual(summary.steps, 2)
        self.assertEqual(heddle.Run("runs/ended").checkpoint().step, 2)
        resumed = heddle.train("runs/ended/config.toml", set={"output": "runs/ended"}, resume=True)
        self.assertEqual(resumed.steps, 6)
        self.assertEqual(resumed.weights_digest, self.summary.weights_digest)

    def test_a_callback_that_fails(self):
        def fail(step):
            if step["step"] == 2:
                raise ZeroDivisionError("in the callback")

        with self.assertRaisesRegex(ZeroDivisionError, "in the callback"):
            heddle.train("tiny.toml", set={"output": "runs/failed"}, on_step=fail)
        self.assertEqual(heddle.Run("runs/failed").checkpoint().step, 2)

        def nested(step):
            heddle.inspect("tiny.toml")

        with self.assertRaisesRegex(heddle.InputError, "can't run another command"):
            heddle.train("tiny.toml", set={"output": "runs/nested"}, on_step=nested)

    def test_keyboard_interrupt(self):
        def interrupt(step):
            if step["step"] == 1:
                os.kill(os.getpid(), signal.SIGINT)

        summary = heddle.train(
            "tiny.toml", set={"output": "runs/interrupted", "train.steps": 100_000}, on_step=interrupt
        )
        self.assertTrue(summary.interrupted)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)
        threading.Timer(0.5, os.kill, [os.getpid(), signal.SIGINT]).start()
        with self.assertRaises(KeyboardInterrupt):
            heddle.schedule("synthesis", ranks=8, cap=[6], effort=100)
        self.assertEqual(heddle.schedule("1f1b").ranks, 4)  # the next call is not stopped

    def test_two_threads(self):
        answers = {}
        threads = [
            threading.Thread(target=lambda n=n: answers.update({n: heddle.schedule("1f1b", ranks=n).ranks}))
            for n in (2, 3, 4)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(answers, {2: 2, 3: 3, 4: 4})


def heddle_program():
    from program import HEDDLE

    return str(HEDDLE)


if __name__ == "__main__":
    unittest.main()
