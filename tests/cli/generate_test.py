#!/usr/bin/env python3
"""Text out of a trained run: with and without the cache, prompts in files and pipes, conversations, and how they end.
"""
import json
import signal
import subprocess
import time
import unicodedata

from program import HEDDLE, MACHINE_SECONDS, TINY, Program, unittest

LENGTH = 32     # of the run's sequences


def shown_text(text):
    """As a terminal may have it: control characters are left out."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


class Generate(Program):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        (cls.folder / "tiny.toml").write_text(TINY.replace("[device]", "[device]\ndtype = \"f32\""))
        subprocess.run([HEDDLE, "train", "tiny.toml", "--steps", "200", "--set", "output=run", "--set",
                        "train.eval_every=0"], cwd=cls.folder, check=True, capture_output=True, timeout=MACHINE_SECONDS)

    def said(self, *arguments, given=None, status=0):
        done = subprocess.run([HEDDLE, "generate", "run", *arguments], cwd=self.folder, capture_output=True, text=True,
                              input=given, timeout=MACHINE_SECONDS)
        self.assertEqual(done.returncode, status, f"{arguments}\n{done.stdout}\n{done.stderr}")
        self.assertEqual(done.stderr, "")
        return done.stdout

    def json(self, *arguments, given=None):
        return json.loads(self.said(*arguments, "--json", given=given))

    def test_the_same_with_and_without_the_cache(self):
        for prompt in ("the", "the shuttle passes between warp and weft " * 4):
            ask = ["--prompt", prompt, "--tokens", str(8 * LENGTH), "--temperature", "0"]
            cached, anew = self.json(*ask), self.json(*ask, "--no-cache")
            self.assertEqual((cached["cache"], anew["cache"]), (True, False))
            self.assertEqual(cached["continuation"], anew["continuation"])
            self.assertEqual(cached["tokens"], 8 * LENGTH)
            self.assertEqual(cached["end"], "length")
        self.assertEqual(self.said(*ask), shown_text(f"{prompt}{cached['continuation']}\n"))

    def test_draws(self):
        ask = ["--prompt", "a heddle", "--tokens", "40"]
        likeliest = self.json(*ask, "--temperature", "0")["continuation"]
        self.assertEqual(self.json(*ask, "--temperature", "2", "--top-k", "1")["continuation"], likeliest)
        self.assertEqual(self.json(*ask, "--temperature", "2", "--top-p", "1e-9")["continuation"], likeliest)
        drawn = {seed: self.json(*ask, "--temperature", "2", "--seed", seed)["continuation"] for seed in "123"}
        self.assertEqual(len({likeliest, *drawn.values()}), 4)
        self.assertEqual(self.json(*ask, "--temperature", "2", "--seed", "2")["continuation"], drawn["2"])

    def test_stop_words(self):
        ask = ["--prompt", "the shuttle", "--tokens", "100", "--temperature", "0"]
        whole = self.json(*ask)["continuation"]
        for at in (3, 7, 12, 20):
            word = whole[at:at + 5]
            made = self.json(*ask, "--stop", "never said", "--stop", word)
            self.assertEqual(made["continuation"], whole[:whole.index(word)])
            self.assertEqual(made["end"], "stop_word")
        self.assertEqual(self.json(*ask, "--stop", "never said")["continuation"], whole)

    def test_prompts_side_by_side(self):
        prompts = ["the shuttle", "warp and weft " * 12, "a", "every second thread", "heddle"]
        (self.folder / "prompts.txt").write_text("\n".join(prompts[:2]) + "\n\n" + "\r\n".join(prompts[2:]) + "\n")
        ask = ["--tokens", "50", "--temperature", "0.8", "--seed", "4"]
        together = self.json("--prompts", "prompts.txt", "--batch", "3", *ask)["continuations"]
        self.assertEqual([each["prompt"] for each in together], prompts)
        for prompt, each in zip(prompts, together):
            alone = self.json("--prompt", prompt, *ask)
            self.assertEqual({key: alone[key] for key in each}, each)
        self.assertEqual(self.said("--prompts", "-", *ask, given="\n".join(prompts)),
                         "".join(shown_text(f"{each['prompt']}{each['continuation']}\n\n") for each in together))

    def test_a_prompt_through_a_pipe(self):
        ask = ["--tokens", "30", "--temperature", "0.8"]
        for prompt, given in (("the shuttle", "the shuttle\n"), ("the shuttle", "the shuttle"), ("warp\n\nand", "warp\n\nand\r\n"),
                              ("between\n", "between\n\n")):  # one line end goes, the others are the text's
            alone = self.json("--prompt", prompt, *ask)
            self.assertEqual(alone["prompt"], prompt)
            piped = self.json("--prompt", "-", *ask, given=given)
            self.assertEqual({**piped, "seconds": 0, "tokens_per_second": 0}, {**alone, "seconds": 0, "tokens_per_second": 0})
            self.assertEqual(self.said("--prompt", "-", *ask, given=given), self.said("--prompt", prompt, *ask))
        for given, said in ((b"", "--prompt -: the standard input is empty"), (b"\n", "--prompt -: the standard input is empty"),
                            (b"the \xff", "--prompt -: the standard input is no UTF-8")):
            done = subprocess.run([HEDDLE, "generate", "run", "--prompt", "-"], cwd=self.folder, capture_output=True,
                                  input=given, timeout=MACHINE_SECONDS)
            self.assertEqual((done.returncode, done.stdout, done.stderr.decode()), (2, b"", f"heddle: {said}\n"))
        self.refused("--prompt -: with --chat the standard input holds the lines; accepted: a text", "generate", "run",
                     "--chat", "--prompt", "-")

    def test_a_conversation_through_a_pipe(self):
        ask = ["--chat", "--turn", r"\nQ: {}\nA:", "--tokens", "20", "--temperature", "0.5"]
        lines = ["the shuttle", "between", "warp"]
        answers = [json.loads(line) for line in self.said(*ask, "--json", given="\n".join(lines) + "\n").splitlines()]
        self.assertEqual([answer["prompt"] for answer in answers], lines)
        shown = self.said(*ask, given="\n".join(lines) + "\n")
        self.assertEqual(shown, "".join(text if text.endswith("\n") else text + "\n" for text in
                                        (shown_text(answer["continuation"]) for answer in answers)))
        self.assertEqual(self.said(*ask, given=""), "")

    def test_an_answer_knows_what_was_said(self):
        ask = ["--chat", "--tokens", "40", "--temperature", "1", "--json"]
        after = [json.loads(self.said(*ask, given=f"{first}\nshuttle\n").splitlines()[1])["continuation"]
                 for first in ("the", "weft warp", "the")]
        self.assertEqual(after[0], after[2])
        self.assertNotEqual(after[0], after[1])

    def interrupted(self, arguments, ready, given=None):
        run = subprocess.Popen([HEDDLE, "generate", "run", *arguments], cwd=self.folder, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if given:
            run.stdin.write(given)
            run.stdin.flush()
        seen = b""
        end = time.monotonic() + MACHINE_SECONDS
        while len(seen) < ready:
            self.assertLess(time.monotonic(), end)
            seen += run.stdout.read1(64)
        run.send_signal(signal.SIGINT)
        out, errors = run.communicate(timeout=MACHINE_SECONDS)
        self.assertEqual((run.returncode, errors), (130, b""))
        self.assertTrue((seen + out).endswith(b"\n"))
        (seen + out).decode()  # whole letters

    def test_an_interrupt_ends_it(self):
        self.interrupted(["--tokens", "1000000", "--temperature", "2", "--prompt", "the"], 40)
        self.interrupted(["--chat", "--tokens", "1000000", "--temperature", "2"], 40, b"the\n")
        self.interrupted(["--chat", "--tokens", "3"], 1, b"the\n")  # while it waits for a line

    def test_it_ends_when_nobody_reads(self):
        run = subprocess.Popen([HEDDLE, "generate", "run", "--tokens", "1000000", "--temperature", "2"],
                               cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(run.stdout.read1(8))
        run.stdout.close()
        self.assertEqual(run.wait(timeout=MACHINE_SECONDS), 1)
        self.assertEqual(run.stderr.read(), b"heddle: the output could not be written: Broken pipe\n")
        run.stderr.close()

    def test_refusals(self):
        self.refused("--prompts: nowhere.txt: cannot be read", "generate", "run", "--prompts", "nowhere.txt")
        (self.folder / "empty.txt").write_text("\n\n")
        self.refused("--prompts: empty.txt: no line holds a prompt", "generate", "run", "--prompts", "empty.txt")
        (self.folder / "broken.txt").write_bytes(b"fine\n\xff\n")
        self.refused("--prompts: broken.txt: line 2 is no UTF-8", "generate", "run", "--prompts", "broken.txt")
        self.refused("--turn: 'none' has no '{}', the place of the line", "generate", "run", "--chat", "--turn",
                     "none")
        self.refused("--stop: an empty word would end every text", "generate", "run", "--stop", "")
        for wrong in (["--top-p", "0"], ["--top-p", "1.1"], ["--top-k", "-1"], ["--batch", "0"],
                      ["--chat", "--prompts", "prompts.txt"], ["--prompt", "a", "--prompts", "b"], ["--turn", "{}"]):
            done = self.heddle("generate", "run", *wrong, status=2)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def test_the_program_can_be_read(self):
        text = self.heddle("inspect", "tiny.toml", "--program", "--cache", "2").stdout
        for words in ("prefill, ranks of class 0:", "decode, ranks of class 0:", "cached_attention", "mla_absorb",
                      "cache_rows"):
            self.assertIn(words, text)
        self.assertNotIn("decode", self.heddle("inspect", "tiny.toml", "--program").stdout)


if __name__ == "__main__":
    unittest.main()
