"""Perplexity and tasks: the same figures in every layout, and held to sums worked out here."""
import json
import math
import subprocess
import unittest

from program import HEDDLE, Program


class Eval(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        subprocess.run([HEDDLE, "train", "tiny.toml", "--set", "output=run", "--set", "device.dtype=f32"],
                       cwd=cls.folder, check=True, capture_output=True)

    def eval(self, *arguments):
        return json.loads(self.heddle("eval", "run", *arguments, "--json").stdout)

    def test_the_held_out_loss_is_the_runs_own(self):
        lines = (self.folder / "run" / "metrics.jsonl").read_text().splitlines()
        trained = [json.loads(line) for line in lines if "held_out_loss" in json.loads(line)][-1]
        told = self.eval("--limit", "4")
        self.assertEqual(told["step"], trained["step"])
        text = told["texts"][0]
        self.assertEqual(text["windows"], 4)
        self.assertAlmostEqual(text["loss"]["mean"], trained["held_out_loss"], places=5)
        self.assertAlmostEqual(text["perplexity"], math.exp(text["loss"]["mean"]), places=6)
        self.assertLess(text["loss"]["low"], text["loss"]["mean"])

    def test_every_layout_tells_the_same(self):
        (self.folder / "other.txt").write_text("the shuttle passes between warp and weft " * 40)
        arguments = ("--text", "other.txt", "--tasks", "heldout", "--limit", "6")
        one = self.eval(*arguments)
        self.assertEqual(one["tasks"][0]["items"], 6)
        self.assertEqual(one["tasks"][0]["chance"], 0.25)
        for layout in (("mesh.dp=2",), ("mesh.tp=2",), ("mesh.pp=2",), ("mesh.dp=2", "mesh.ep=2")):
            with self.subTest(layout):
                other = self.eval(*arguments, "--ranks", "2", *(a for key in layout for a in ("--set", key)))
                self.assertEqual(other["tasks"][0]["chosen"], one["tasks"][0]["chosen"])
                for mine, its in zip(one["texts"], other["texts"]):
                    self.assertEqual((mine["tokens"], mine["windows"]), (its["tokens"], its["windows"]))
                    self.assertAlmostEqual(mine["loss"]["mean"], its["loss"]["mean"], places=5)
        self.assertIn("bits_per_byte", self.eval("--text", "other.txt", "--no-heldout")["texts"][0])

    def test_forms_of_a_task_are_one(self):
        forms = [
            {"query": "the shuttle", "choices": ["passes between", "zq zq"], "gold": 0},
            {"question": "the shuttle", "choices": {"text": ["passes between", "zq zq"], "label": ["A", "B"]},
             "answerKey": "A"},
            {"ctx": "the shuttle", "endings": ["passes between", "zq zq"], "label": "0"},
            {"doc": {}, "arguments": [["the shuttle", " passes between"], ["the shuttle", " zq zq"]], "target": 0},
            {"arguments": {"gen_args_0": {"arg_0": "the shuttle", "arg_1": " passes between"},
                           "gen_args_1": {"arg_0": "the shuttle", "arg_1": " zq zq"}}, "target": "0"},
        ]
        (self.folder / "forms.jsonl").write_text("\n".join(map(json.dumps, forms)) + "\n\n")
        task = self.eval("--no-heldout", "--tasks", "forms.jsonl")["tasks"][0]
        self.assertEqual((task["name"], task["items"]), ("forms", len(forms)))
        self.assertEqual(len(set(task["chosen"])), 1)
        self.assertIn(task["acc"]["mean"], (0.0, 1.0))
        swapped = [dict(forms[0], gold=1), forms[0]]
        (self.folder / "half.jsonl").write_text("\n".join(map(json.dumps, swapped)))
        half = self.eval("--no-heldout", "--tasks", "half.jsonl")["tasks"][0]
        self.assertEqual(half["acc"]["mean"], 0.5)
        self.assertAlmostEqual(half["acc"]["stderr"], 0.5)

    def test_what_a_model_has_learnt_is_likelier(self):
        """Words that the text never holds against those that it is made of."""
        words = "the shuttle passes between warp and weft while a heddle lifts every second thread".split()
        items = [{"query": " ".join(words[i:i + 4]), "choices": [words[i + 4] + " " + words[i], "XQJ%%ZK#"], "gold": 0}
                 for i in range(8)]
        (self.folder / "learnt.jsonl").write_text("\n".join(map(json.dumps, items)))
        task = self.eval("--no-heldout", "--tasks", "learnt.jsonl")["tasks"][0]
        self.assertGreaterEqual(task["acc_norm"]["mean"], 0.75)

    def test_a_run_made_of_a_released_model_has_no_text_of_its_own(self):
        (self.folder / "unseen.txt").write_text("the shuttle passes between warp and weft " * 40)
        self.heddle("convert", "run", "--to", "released", "--dtype", "f32")
        self.heddle("convert", "released", "--to", "taken-in")
        told = json.loads(self.heddle("eval", "taken-in", "--text", "unseen.txt", "--json", "--set",
                                      "train.sequence_length=32").stdout)
        self.assertEqual([text["name"] for text in told["texts"]], ["unseen.txt"])
        self.assertFalse((self.folder / "data").exists())    # nothing was prepared
        for arguments in ((), ("--tasks", "heldout")):
            self.assertIn("the run has no text of its own",
                          self.heddle("eval", "taken-in", *arguments, status=2).stderr)
        self.assertIn("data.source is empty", self.heddle("train", "taken-in/config.toml", "--set", "output=x",
                                                          status=2).stderr)

    def test_what_is_no_task_is_refused_by_its_line(self):
        for line, says in (("{", "not JSON"), ("[1]", "an object is expected"), ("{}", "no context"),
                           ('{"query": "a"}', "no choices"), ('{"query": "a", "choices": ["b"], "gold": 0}', "1 choices"),
                           ('{"query": "a", "choices": ["b", "c"]}', "no right choice"),
                           ('{"query": "a", "choices": ["b", "c"], "gold": 2}', "is 2, of 2 choices"),
                           ('{"query": "a", "choices": ["b", "c"], "gold": -1}', "is -1"),
                           ('{"query": "a", "choices": ["b", 5], "gold": 0}', "a string is expected")):
            with self.subTest(line):
                (self.folder / "bad.jsonl").write_text(
                    '{"query": "a", "choices": ["b", "c"], "gold": 0}\n' + line + "\n")
                said = self.heddle("eval", "run", "--no-heldout", "--tasks", "bad.jsonl", status=2).stderr
                self.assertIn("bad.jsonl:2", said)
                self.assertIn(says, said)
        self.heddle("eval", "run", "--no-heldout", status=2)
        self.heddle("eval", "nothing", status=2)


if __name__ == "__main__":
    unittest.main()
