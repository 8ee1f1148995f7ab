#!/usr/bin/env python3
"""Fine-tuning through the command line: samples to tokens and weights, a run on them, a conversation with it."""
import json
import pathlib
import random
import subprocess
import unittest

from data_test import MegatronReader
from program import HEDDLE, Program

TEMPLATES = pathlib.Path(__file__).resolve().parents[1] / "fixtures/chat"


def conversation(*turns):
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


class Chat(Program):
    def prepare(self, name, lines, *more, status=0):
        (self.folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return self.heddle("data", f"{name}.jsonl", "--chat", "--out", name, "--vocabulary", "280", *more, status=status)

    def targets(self, name):
        """The ids of each sample, and those that are targets, as texts of one byte an id or more."""
        reader = MegatronReader(self.folder / name / "text")
        weights = (self.folder / name / "text.weights").read_bytes()
        vocabulary = {i: t for t, i in json.loads((self.folder / name / "tokenizer.json").read_text())["model"]["vocab"].items()}
        at, samples = 0, []
        for i, length in enumerate(reader.lengths):
            ids, own = reader[i], weights[at:at + length]
            at += length
            samples.append(("".join(vocabulary.get(t, "<end>") for t in ids), "".join(vocabulary.get(t, "<end>") for t, w in zip(ids, own) if w)))
        self.assertEqual(at, len(weights))
        return samples

    def test_pairs(self):
        lines = [{"prompt": f"Q{i}:", "completion": f" is{i}"} for i in range(5)] + [{"prompt": "nothing", "completion": ""}]
        told = json.loads(self.prepare("pairs", lines, "--json").stdout)
        self.assertEqual((told["documents"], told["samples_without_answer"]), (5, 1))
        samples = self.targets("pairs")
        self.assertEqual([target for _, target in samples], [f"Ġis{i}<end>" for i in range(5)])
        self.assertEqual(samples[2][0].replace("Ġ", " "), "Q2: is2<end>")
        self.assertTrue(json.loads(self.heddle("data", "pairs.jsonl", "--chat", "--out", "pairs", "--vocabulary", "280", "--json").stdout)["was_up_to_date"])
        other = [{"question": line["prompt"], "reply": line["completion"]} for line in lines]
        self.prepare("keys", other, "--prompt-key", "question", "--answer-key", "reply")
        self.assertEqual(self.targets("keys"), samples)

    def test_what_is_refused(self):
        for line, part in (({"txt": "a"}, 'refused.jsonl:1: no sample: accepted are "prompt" with "completion"'),
                           (conversation(("user", "a"), ("assistant", "b")), "refused.jsonl:1: a conversation, and no template"),
                           ({"prompt": "a", "completion": ""}, "no sample has an answer")):
            done = self.prepare("refused", [line], status=2)
            self.assertIn(part, done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        done = self.prepare("roles", [conversation(("user", "a"), ("model", "b"))], "--chat-template", TEMPLATES / "chatml.jinja", status=2)
        self.assertIn("no message has the role assistant, there are model, user", done.stderr)
        done = self.prepare("mixed", [conversation(("assistant", "first"), ("user", "then"))], "--chat-template", TEMPLATES / "mixtral.jinja", status=2)
        self.assertIn("mixed.jsonl:1: ", done.stderr)
        self.assertIn("the template refuses: After the optional system message", done.stderr)

    def test_a_turn_that_the_next_ones_mark_ends(self):
        (self.folder / "open.jinja").write_text("<start>{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
                                                "{% if add_generation_prompt %}<|assistant|>\n{% endif %}")
        talk = [("user", "Who?"), ("assistant", "Weaver."), ("user", "Sure?"), ("assistant", "Yes.")]
        self.prepare("open", [conversation(*talk)], "--chat-template", "open.jinja")
        # The tokenizer may join the mark's end to the line's end behind it.
        self.assertEqual(self.targets("open")[0][1].replace("Ċ", ""), "Weaver.<|user|>Yes.<|user|>")
        self.assertTrue(self.targets("open")[0][0].endswith("Yes.<|user|>"))
        # A run that has learnt the mark ends its answers there.
        lines = [conversation(("user", f"say {i % 7}"), ("assistant", f"{i % 7}")) for i in range(300)]
        (self.folder / "many.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        sets = ["data.source=many.jsonl", "data.folder=many", "data.chat=true", "data.chat_template=open.jinja", "data.vocabulary=300",
                "train.sequence_length=64", "train.steps=60", "train.decay_steps=1", "output=runs/open", "train.learning_rate=1e-2"]
        self.heddle("train", "tiny.toml", *(word for key in sets for word in ("--set", key)))
        done = subprocess.run([HEDDLE, "generate", "runs/open", "--chat", "--tokens", "40", "--temperature", "0", "--json"], cwd=self.folder,
                              input="say 3\n", capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["end"], "stop_word", done.stdout)
        self.assertNotIn("<|user", json.loads(done.stdout)["continuation"])

    def test_forms_of_samples_in_one_list(self):
        items = [{"conversations": [{"from": "human", "value": f"say {i}"}, {"from": "gpt", "value": f"{i}"}], "id": i} for i in range(40)]
        items += [{"instruction": f"say {i}", "input": "", "output": f"{i}"} for i in range(40)]
        (self.folder / "all.json").write_text(json.dumps(items + [{"none": 1}], indent=1))
        call = ("data", "all.json", "--chat", "--vocabulary", "290", "--chat-template", TEMPLATES / "chatml.jinja", "--json", "--out")
        self.assertIn("no sample: accepted are", self.heddle(*call, "all", status=2).stderr)
        told = json.loads(self.heddle(*call, "all", "--skip-bad-lines").stdout)
        self.assertEqual((told["documents"], told["repeated_documents"], told["keeps_repeated"]), (80, 40, True))
        self.assertEqual((told["lines_passed_over"], told["fields_passed_over"]), (1, ["id"]))
        self.assertEqual([target for _, target in self.targets("all")], [f"{i}<|im_end|>Ċ" for i in range(40)] * 2)
        dropped = json.loads(self.heddle(*call, "once", "--skip-bad-lines", "--repeated", "drop").stdout)
        self.assertEqual((dropped["documents"], dropped["repeated_documents"]), (40, 40))

    def test_the_template_is_told_a_day_and_arguments(self):
        (self.folder / "told.jinja").write_text("{{ strftime_now('%Y-%m-%d') }} {{ effort }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
                                                "{% if add_generation_prompt %}<assistant>{% endif %}")
        lines = [conversation(("user", "a"), ("assistant", "b"))]
        told = ("--chat-template", "told.jinja", "--chat-arguments", "effort=high")
        self.assertIn("got 2025-01-01 as today's date", self.prepare("fixed", lines, *told).stdout)
        self.assertTrue(self.targets("fixed")[0][0].startswith("2025-01-01Ġhigh<user>"))
        self.prepare("day", lines, *told, "--chat-date", "2025-06-28")
        self.assertTrue(self.targets("day")[0][0].startswith("2025-06-28Ġhigh<user>"))
        kept = json.loads((self.folder / "day/chat_template.json").read_text())
        self.assertEqual((kept["chat_date"], kept["chat_arguments"]), ("2025-06-28", {"effort": "high"}))
        self.assertIn("is no day", self.prepare("bad", lines, *told, "--chat-date", "today", status=2).stderr)

    def test_a_run_learns_answers_and_talks(self):
        draw = random.Random(3)
        lines = [conversation(("user", f"say {word}"), ("assistant", word), ("user", "more"), ("assistant", f"{word} {word}"))
                 for word in ("".join(draw.choices("abcde", k=3)) for _ in range(200))]
        (self.folder / "talk.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        sets = ["data.source=talk.jsonl", "data.folder=talk", "data.chat=true", f"data.chat_template={TEMPLATES / 'chatml.jinja'}",
                "data.vocabulary=280", "train.sequence_length=160", "data.heldout_fraction=0.1"]
        run = [word for key in sets for word in ("--set", key)]
        self.heddle("train", "tiny.toml", *run, "--set", "output=runs/talk")
        losses = self.losses("runs/talk")
        for text, target in self.targets("talk"):
            word = target.split("<")[0]
            self.assertEqual(target, f"{word}<|im_end|>Ċ{word}Ġ{word}<|im_end|>Ċ")
        self.heddle("train", "tiny.toml", *run, "--set", "output=runs/two", "--ranks", "2")
        for a, b in zip(losses.values(), self.losses("runs/two").values(), strict=True):
            self.assertAlmostEqual(a, b, delta=2e-4 * a)
        self.assertIn("im_start", json.loads((self.folder / "runs/talk/chat_template.json").read_text())["chat_template"])
        done = subprocess.run([HEDDLE, "generate", "runs/talk", "--chat", "--tokens", "3", "--temperature", "0", "--json"], cwd=self.folder,
                              input="say abc\nmore\n", capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([json.loads(line)["prompt"] for line in done.stdout.splitlines()], ["say abc", "more"])
        done = self.heddle("train", "tiny.toml", *run, "--set", "train.sequence_length=40", "--set", "output=runs/short", status=2)
        self.assertIn("longer than a sequence", done.stderr)
        self.heddle("train", "tiny.toml", *run, "--set", "train.sequence_length=90", "--set", "data.long_samples=cut", "--set", "output=runs/short")

    def test_the_template_that_was_trained_on_leaves_in_the_place_of_another(self):
        lines = [conversation(("user", f"say {i}"), ("assistant", f"{i}")) for i in range(60)]
        self.prepare("own", lines, "--chat-template", TEMPLATES / "chatml.jinja")
        words = self.folder / "words"
        words.mkdir()
        (words / "tokenizer.json").write_text((self.folder / "own/tokenizer.json").read_text())
        settings = {"bos_token": "<|endoftext|>", "model_max_length": 77}
        (words / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "{{ messages[0].content }}"}))
        sets = ["data.source=own.jsonl", "data.folder=own-words", "data.chat=true", "data.tokenizer=words", "train.steps=1",
                f"data.chat_template={TEMPLATES / 'chatml.jinja'}", "train.sequence_length=160", "output=runs/words"]
        self.heddle("train", "tiny.toml", *(word for key in sets for word in ("--set", key)))
        self.heddle("convert", "runs/words", "--to", "left")
        self.assertEqual((self.folder / "left/chat_template.jinja").read_text(), (TEMPLATES / "chatml.jinja").read_text())
        self.assertEqual(json.loads((self.folder / "left/tokenizer_config.json").read_text()), settings)
        self.assertFalse((self.folder / "left/chat_template.json").exists())


if __name__ == "__main__":
    unittest.main()
