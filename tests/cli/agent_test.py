#!/usr/bin/env python3
"""The command line of `heddle agent`.

    agent_test.py PATH_OF_HEDDLE
"""
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEDDLE = pathlib.Path(sys.argv.pop(1)).resolve()
SECONDS = 60


class Agent:
    def __init__(self, *words, folder):
        self.process = subprocess.Popen([HEDDLE, "agent", *words], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, bufsize=1)

    def line(self):
        ready, _, _ = select.select([self.process.stdout], [], [], SECONDS)
        return self.process.stdout.readline().rstrip("\n") if ready else ""

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()

    def end(self):
        """Exit status and what it said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        _, error = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, error


READY = re.compile(r"ready port (\d+) at (\S+) folder (/dev/shm/heddle-[0-9a-f]{32})$")


class AgentLine(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="heddle-agent-test-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def agent(self, *words):
        agent = Agent(*words, folder=self.folder)
        self.addCleanup(agent.close)
        return agent

    def refused(self, *words, **variables):
        done = subprocess.run([HEDDLE, *words], cwd=self.folder, env={**os.environ, **variables}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=SECONDS)
        self.assertEqual(done.returncode, 2, done.stderr)
        said = [line for line in done.stderr.splitlines() if "warning: " not in line]
        self.assertEqual(len(said), 1, done.stderr)
        return said[0]

    def test_bad_arguments(self):
        self.assertIn("RUN", self.refused("agent"))
        self.assertIn("--partner", self.refused("agent", "run", "--partnr", "x"))
        self.assertIn("token", self.refused("agent", "run", "--listen", "lo"))
        self.assertIn("token", self.refused("agent", "run", "--supervised", "--listen", "lo"))
        (self.folder / "token").write_text("0123456789abcdef\n")
        said = self.refused("agent", "run", "--listen", "nowhere0", "--token-file", "token")
        self.assertRegex(said, r"no interface 'nowhere0' with an address, accepted: .*\blo\b")
        self.assertEqual([p.name for p in self.folder.glob("run/.agents/*")], [])

    def test_a_bad_folder(self):
        (self.folder / "file").write_text("")
        self.assertIn("file: no folder", self.refused("agent", "file"))
        for variable in ("/nowhere", str(self.folder / "file")):
            (self.folder / "text.txt").write_text("warp and weft\n\n" * 400)
            said = self.refused("train", str(ROOT / "examples/demo.toml"), "--steps", "1", "--set", "data.source=text.txt", "--set",
                                "train.snapshot_every=1", "--set", "data.folder=prepared", HEDDLE_AGENT=variable)
            self.assertIn(f"HEDDLE_AGENT is '{variable}'", said)

    def test_two_agents_of_one_host(self):
        first, second = self.agent("run"), self.agent("run")
        folders = [READY.match(agent.line())[3] for agent in (first, second)]
        self.assertNotEqual(*folders)
        self.assertEqual(len(list(self.folder.glob("run/.agents/*"))), 2)
        for agent, folder in zip((first, second), folders):
            self.assertEqual(agent.end(), (0, ""))
            self.assertFalse(pathlib.Path(folder).exists())
        self.assertFalse((self.folder / "run/.agents").exists())

    # What one that was killed has left is the next one's, until it ends.
    def test_the_next_agent_takes_the_folder_over(self):
        first = self.agent("run")
        folder = READY.match(first.line())[3]
        first.process.kill()
        first.process.wait()
        self.assertTrue(pathlib.Path(folder).exists())
        second = self.agent("run")
        self.assertEqual(READY.match(second.line())[3], folder)
        self.assertEqual(second.end(), (0, ""))
        self.assertFalse(pathlib.Path(folder).exists())

    def test_a_supervised_one_obeys_and_ends_with_its_input(self):
        agent = self.agent("run", "--supervised", "--listen", "lo")
        agent.process.stdin.write("token 0123456789abcdef\n")
        port, at, folder = READY.match(agent.line()).groups()
        self.assertEqual(at, f"127.0.0.1:{port}")
        token = pathlib.Path(folder) / ".token"
        self.assertEqual((token.read_text(), token.stat().st_mode & 0o777), ("0123456789abcdef", 0o600))
        entry = next(self.folder.glob("run/.agents/*"))
        self.assertEqual(entry.read_text(), f"{folder}\n{at}\n")
        agent.process.stdin.write("partner\nsing\n")
        self.assertIn("'sing', accepted: token WORD, partner HOST:PORT, forget, answer WORD", agent.line())
        agent.process.stdin.close()
        self.assertEqual(agent.process.wait(timeout=SECONDS), 0)
        self.assertFalse(pathlib.Path(folder).exists())


if __name__ == "__main__":
    unittest.main()
