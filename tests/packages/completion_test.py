#!/usr/bin/env python3
"""Completion of command lines in bash, zsh and fish, as these shells do it, and the manual pages as readers set them.

    completion_test.py PATH_OF_HEDDLE

ZSH, FISH and MANDOC name programs in place of those on the path. Without one its test is skipped by name.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else pathlib.Path("build/heddle").resolve()
SECONDS = 120


def said(*words, **more):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=SECONDS, check=True,
                          **more).stdout


def program(name):
    return os.environ.get(name.upper()) or shutil.which(name)


COMMANDS = re.findall(r"^  heddle (\w+)", said(HEDDLE, "help"), re.M)


class Completion(unittest.TestCase):
    """CASES: words of a line, the last of them begun, and words that have to be offered."""

    CASES = [
        (["heddle", "pl"], ["plan"]),
        (["heddle", "train", "--lo"], ["--log-every", "--lora"]),
        (["heddle", "plan", "--precision", "mx"], ["mxfp8"]),
        (["heddle", "completion", "z"], ["zsh"]),
        (["heddle", "help", "wat"], ["watch"]),
        (["heddle", "explain", "memory.reco"], ["memory.recompute"]),
        (["heddle", "train", "--set", "mesh.c"], ["mesh.cp="]),
    ]

    def check(self, complete):
        for words, wanted in self.CASES:
            found = complete(words)
            for word in wanted:
                self.assertIn(word, found, words)
            self.assertTrue(all(each.startswith(words[-1]) for each in found), (words, found))
        self.assertEqual(sorted(set(COMMANDS) - set(complete(["heddle", ""]))), [])

    def test_bash(self):
        script = said(HEDDLE, "completion", "bash")

        def complete(words):
            line = f"COMP_WORDS=({' '.join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}\n"
            return said("bash", "--norc", "-c", "compopt() { :; }\n" + script + line +
                        '_heddle; printf "%s\\n" "${COMPREPLY[@]}"').split()

        self.check(complete)

    @unittest.skipIf(program("fish") is None, "no fish")
    def test_fish(self):
        with tempfile.TemporaryDirectory() as home:
            folder = pathlib.Path(home) / "fish/completions"
            folder.mkdir(parents=True)
            (folder / "heddle.fish").write_text(said(HEDDLE, "completion", "fish"))
            environment = os.environ | {"XDG_CONFIG_HOME": home, "HOME": home, "PATH": f"{HEDDLE.parent}:{os.environ['PATH']}"}

            def complete(words):
                lines = said(program("fish"), "-c", f"source {folder}/heddle.fish; complete -C {json.dumps(' '.join(words))}",
                             env=environment).splitlines()
                return [line.split("\t")[0] for line in lines]

            self.check(complete)

    @unittest.skipIf(program("zsh") is None, "no zsh")
    def test_zsh(self):
        # The functions that compinit calls are replaced by such as print what they are given: what _arguments makes of
        # its specs is zsh's own.
        script = said(HEDDLE, "completion", "zsh")
        with tempfile.TemporaryDirectory() as home:
            path = pathlib.Path(home) / "_heddle"
            path.write_text(script)
            said(program("zsh"), "-f", "-n", path)
            stubs = ("compdef() { :; }\n_files() { :; }\n"
                     "_describe() { local n=$2; print -l -- ${(P)n%%:*}; }\n"
                     "_arguments() { print -l -- \"$@\"; }\n"
                     "compadd() { shift 3; print -l -- ${^@}=; }\n")
            run = lambda words: said(program("zsh"), "-f", "-c", stubs + f"source {path}\n"
                                     f"words=({' '.join(words)} ''); CURRENT={len(words) + 1}; _heddle").splitlines()
            self.assertEqual(sorted(set(COMMANDS) - set(run(["heddle"]))), [])
            specs = run(["heddle", "plan"])
            self.assertTrue(any(s.startswith("--precision=[") and "bf16 fp16 fp8" in s for s in specs), specs)
            self.assertIn("*--set=[A variable of the script, NAME=VALUE, or a key of the configuration; may be given "
                          "again]:NAME=VALUE:_heddle_keys", specs)
            self.assertIn("--json[Print one JSON object]", specs)

    def test_manual_pages(self):
        mandoc = program("mandoc")
        for command in ["", *COMMANDS]:
            page = said(HEDDLE, "man", *filter(None, [command]))
            self.assertTrue(page.startswith(".TH HEDDLE"), page[:80])
            self.assertEqual([l for l in page.splitlines() if l.startswith("'")], [])
            if mandoc:
                lint = subprocess.run([mandoc, "-T", "lint", "-W", "error"], input=page, capture_output=True, text=True)
                self.assertEqual(lint.returncode, 0, lint.stdout)
            if command:
                options = [o for o in re.findall(r"^  (--[\w-]+)", said(HEDDLE, command, "--help"), re.M)]
                for option in options:
                    self.assertIn("\\fB" + option.replace("-", "\\-") + "\\fR", page)
        if shutil.which("man"):
            text = subprocess.run(["man", "-l", "-"], input=said(HEDDLE, "man", "plan"), capture_output=True, text=True,
                                  env=os.environ | {"MANPAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
            if text.returncode == 0 and text.stdout.strip():    # some machines have man and none of its pages
                self.assertIn("EXIT STATUS", re.sub(".\b", "", text.stdout))


if __name__ == "__main__":
    unittest.main()
