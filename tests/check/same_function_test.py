#!/usr/bin/env python3
"""Holds heddle.same_function to a plain trainer on ranks of Gloo, right, with one fault, and broken; and its CI action.

    same_function_test.py PATH_OF_HEDDLE

Needs the packages of bench/torch_peer/requirements.txt; exits with 77 where they are missing, once the action is checked.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-bench/bin/python"
ACTION = ROOT / ".github/actions/same_function/action.yml"


class ActionTest(unittest.TestCase):
    def test_inputs_pass_by_the_environment(self):
        text = ACTION.read_text()
        for script in re.findall(r"run: \|?(.*?)(?=\n    - |\Z)", text, re.S):
            self.assertNotIn("${{", script)
        inputs = re.findall(r"^  (\w+):\n    description:", text, re.M)
        self.assertIn("tests", inputs)
        for name in inputs:
            self.assertIn("${{ inputs.%s }}" % name, text)

    def test_its_commands_run(self):
        """The script itself, with programs in place of pip and pytest that say how they are called."""
        script = re.search(r"run: \|\n((?:        .*\n)+)", ACTION.read_text())[1]
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "python3")
            tool.write_text('#!/bin/sh\nprintf "%s|" "$@" >> calls\necho >> calls\n')
            tool.chmod(0o755)
            environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}", INSTALL="heddle torch", TESTS="tests/a.py 'b;c'")
            done = subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            calls = pathlib.Path(folder, "calls").read_text().splitlines()
        self.assertEqual(calls[0], "-m|pip|install|--quiet|heddle|torch|")
        self.assertEqual(calls[1], "-m|pytest|-q|tests/a.py|'b;c'|")


def torch_tests(heddle):
    """In the interpreter that has PyTorch."""
    sys.path.insert(0, str(ROOT / "python/heddle"))
    os.environ["HEDDLE_TAP"] = str(ROOT / "python/heddle")
    import plain_trainer as plain
    import torch
    import torch.nn.functional as F
    from same_function import Step, TapError, assert_same_function
    from tap import PLAIN_CUTS

    class Quiet:
        def tensor(self, *_):
            pass

    def build(layout, fault=None, where="", **more):
        def build_model(place):
            run = plain.Run(dict(layout, fault=fault, where=where, **more), place.groups)
            run.tap = Quiet()
            model = plain.Model(run)
            plain.fill(model, run, place.seed)

            def backward(ids):
                logits, labels = model(ids[:, :-1][:, run.own]), ids[:, 1:][:, run.own]
                loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
                loss = loss / (ids[:, 1:].numel() * run.microbatches * run.dp)
                loss.backward()
                return loss

            def reduce():
                for parameter in model.parameters():
                    parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                plain.reduce_gradients(model, run)

            return Step(model, backward, reduce, tap=dict(cuts=PLAIN_CUTS, rename=run.released))

        return build_model

    def config(**how):
        return plain.config_of(type("One", (), dict(moe=False, **how)))

    class SameFunctionTest(unittest.TestCase):
        def check(self, layout, *fault, **how):
            moe = layout.get("ep", 1) > 1
            of = plain.config_of(type("One", (), dict(moe=moe)))
            case = {axis: degree for axis, degree in layout.items() if axis != "etp"}
            assert_same_function(build(dict(case, moe=moe), *fault), layout, config=of, sequences=plain.B,
                                 sequence_length=plain.S, program=heddle, **how)

        def test_right_layouts_pass(self):
            self.check(dict(tp=2, dp=2))
            self.check(dict(cp=2, dp=2, ep=2))

        def test_a_fault_fails_by_name(self):
            with tempfile.TemporaryDirectory() as folder:
                with self.assertRaises(AssertionError) as failed:
                    self.check(dict(tp=2, dp=2), "not_summed.dp", "o_proj", report=f"{folder}/check.html", dump=f"{folder}/dump")
                self.assertIn("[not_summed.dp]", str(failed.exception))
                self.assertIn("o_proj", pathlib.Path(folder, "check.html").read_text())
                self.assertTrue(pathlib.Path(folder, "dump/layout.json").exists())

        def test_a_rank_that_fails_is_named(self):
            def broken(place):
                if place.rank == 1:
                    raise ValueError("out of thread")
                return build(dict(dp=2))(place)

            with self.assertRaisesRegex(RuntimeError, "(?s)rank 1 failed:.*out of thread"):
                assert_same_function(broken, dict(dp=2), config=config(), program=heddle)

        def test_ranks_that_hang_are_ended(self):
            def idle(place):
                import time
                time.sleep(600)

            with self.assertRaisesRegex(RuntimeError, "2 of 2 ranks have not ended within 3 s"):
                assert_same_function(idle, dict(dp=2), config=config(), program=heddle, timeout=3)

        def test_what_does_not_fit_is_refused(self):
            for layout, text in ((dict(xp=2), "xp = 2; whole degrees of tp, cp"), (dict(tp=0), "tp = 0"),
                                 (dict(tp=2, ep=4), "ep 4 × etp 1: a divisor of tp × cp × dp = 2")):
                with self.assertRaisesRegex(TapError, text):
                    assert_same_function(build(layout), layout, config=config(), program=heddle)

    return SameFunctionTest


def main():
    tests = unittest.TestSuite()
    loader, inside = unittest.defaultTestLoader, "--torch" in sys.argv
    case = torch_tests(str(pathlib.Path(sys.argv[1]).resolve())) if inside else ActionTest
    tests.addTests(loader.loadTestsFromTestCase(case))
    if not unittest.TextTestRunner(verbosity=2).run(tests).wasSuccessful():
        return 1
    if inside:
        return 0
    if not VENV.exists() or subprocess.run([VENV, "-c", "import torch, safetensors"], capture_output=True).returncode:
        print("skipped: .venv-bench has no PyTorch; bench/torch_peer/requirements.txt lists what is needed")
        return 77
    return subprocess.run([VENV, __file__, sys.argv[1], "--torch"]).returncode


if __name__ == "__main__":
    sys.exit(main())
