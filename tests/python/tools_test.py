#!/usr/bin/env python3
"""Around the Python module: its types, the notebook of the documentation, the pytest plugin, the check of changes."""

import ast
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from module import ROOT, Module, heddle

PACKAGE = pathlib.Path(heddle.__file__).parent


def have(name):
    return importlib.util.find_spec(name) is not None


def parameters_of(function):
    given = function.args
    return [each.arg for each in given.args], [each.arg for each in given.kwonlyargs]


def stub_functions(body, owner=""):
    """(name, parameters) of each function of a stub."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield from stub_functions(each.body, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef) and not each.decorator_list:
            yield owner + each.name, parameters_of(each)


def python(*arguments, **how):
    environment = {**os.environ, "PYTHONPATH": f"{PACKAGE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, env=environment, **how
    )


class ToolsTest(Module):
    def passes(self, done):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(have("mypy"), "no mypy")
    def test_types(self):
        sources = self.folder / "typed"  # a copy: mypy takes no folder of installed packages as sources
        of_torch = [] if have("torch") else ["tap.py", "megatron_tap.py", "same_function.py"]
        left_out = shutil.ignore_patterns("*.so", "bin", "__pycache__", *of_torch)
        shutil.copytree(PACKAGE, sources / "heddle", ignore=left_out)
        user = sources / "user.py"
        user.write_text(
            "import heddle\n"
            "plan: heddle.Plan | None = heddle.search('m', 'H100', 8, global_batch=8, sequence=128).best\n"
            "bytes_of: int = heddle.inspect('tiny.toml').reserved_bytes\n"
            "facts: heddle.ModelFacts = heddle.inspect(model='GPT-2')\n"
            "heddle.train('tiny.toml', on_step=lambda step: step['step'] < 3)\n"
        )
        self.passes(python("-m", "mypy", "--strict", "--cache-dir=mypy", "heddle", "user.py", cwd=sources))
        user.write_text("import heddle\nheddle.search('m', 'H100', '8', global_batch=8, sequence=128)\n")
        done = python("-m", "mypy", "--strict", "--cache-dir=mypy", "user.py", cwd=sources)
        self.assertIn('incompatible type "str"; expected "int"', done.stdout)
        # nanobind's functions are no functions of Python: stubtest compares names, what follows their parameters.
        allowed = self.folder / "allowed.txt"
        names = ["run", "tensors_in", "token_file_begins", "token_file_layout", "version", "Checkpoint", "Tokenizer"]
        allowed.write_text("".join(f"heddle\\._core\\.{name}(\\..*)?\n" for name in names))
        self.passes(python("-m", "mypy.stubtest", "heddle._core", "--allowlist", allowed, cwd=self.folder))
        stub = ast.parse((PACKAGE / "_core.pyi").read_text())
        for name, parameters in stub_functions(stub.body):
            owner, _, method = name.rpartition(".")
            found = getattr(getattr(heddle._core, owner) if owner else heddle._core, method)
            if hasattr(found, "__nb_signature__"):
                signature = found.__nb_signature__[0][0].split(" -> ")[0]
                written = ast.parse(re.sub(r"\\\d+", "0", signature) + ": ...").body[0]
                self.assertEqual(parameters, parameters_of(written), name)

    @unittest.skipUnless(have("nbclient") and have("nbformat") and have("ipykernel"), "no nbclient with ipykernel")
    def test_notebooks(self):
        import nbclient
        import nbformat

        os.environ["PYTHONPATH"] = f"{PACKAGE.parent}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        for path in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
            book = nbformat.read(path, as_version=4)
            nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(self.folder)}}).execute()
            outputs = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
            self.assertTrue(any("image/svg+xml" in output.get("data", {}) for output in outputs), path)

    def test_every_function_says_what_it_does(self):
        for name in heddle.__all__:
            self.assertTrue(getattr(heddle, name).__doc__, name)
        version = re.search(r"project\(heddle VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
        self.assertEqual(heddle.__version__, version[1])

    def scripts(self):
        """A repository whose last commit makes a job slower; returns its first commit."""

        def git(*arguments):
            return subprocess.run(
                ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
                cwd=self.folder,
                check=True,
                capture_output=True,
                text=True,
            ).stdout.strip()

        script = self.folder / "jobs/train.sh"
        script.parent.mkdir(exist_ok=True)
        script.write_text(JOB.format(tp=2))
        git("init", "--quiet")
        git("add", "jobs")
        git("commit", "--quiet", "-m", "first")
        base = git("rev-parse", "HEAD")
        script.write_text(JOB.format(tp=8))
        (script.parent / "large.sh").write_text(JOB.format(tp=1).replace("--num-layers 32", "--num-layers 320"))
        return base

    def test_check_of_a_change(self):
        base = self.scripts()
        check = ["-m", "heddle.ci", "--cluster", "H100", "--base", base]
        done = python(*check, "--slower", "99", "--summary", "summary.md", "jobs/train.sh", cwd=self.folder)
        self.passes(done)
        self.assertEqual((self.folder / "summary.md").read_text(), done.stdout)
        self.assertRegex(done.stdout, r"\| jobs/train.sh \| yes \| .* GiB \| [\d,]+ \| -\d+\.\d % \|")
        done = python(*check, "--slower", "1", "jobs/train.sh", cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, rf"^heddle: jobs/train.sh: \d+\.\d % slower than jobs/train.sh at {base}: ")
        done = python(*check, "jobs/large.sh", cwd=self.folder)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("heddle: jobs/large.sh: does not fit 8 H100: ", done.stderr)
        self.assertIn("| new |", done.stdout)
        done = python(*check[:-1], "nowhere", "jobs/train.sh", cwd=self.folder)
        self.assertEqual(
            (done.returncode, done.stderr),
            (2, "heddle: --base nowhere: no such commit; in a shallow clone fetch it first\n"),
        )

    @unittest.skipUnless(have("pytest"), "no pytest")
    def test_pytest_plugin(self):
        base = self.folder / "base.sh"
        self.scripts()
        base.write_text(JOB.format(tp=2))
        (self.folder / "test_jobs.py").write_text(
            "def test_fits(heddle_plan):\n"
            "    heddle_plan.fits('jobs/train.sh')\n"
            "def test_large(heddle_plan):\n"
            "    heddle_plan.fits('jobs/large.sh')\n"
            "def test_slower(heddle_plan):\n"
            "    heddle_plan.not_slower('jobs/train.sh', beside='base.sh', slower=1)\n"
        )
        installed = any(each.name == "heddle" for each in importlib.metadata.entry_points(group="pytest11"))
        done = python(
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *([] if installed else ["-p", "heddle.pytest_plugin"]),
            "--heddle-cluster=H100",
            "test_jobs.py",
            cwd=self.folder,
        )
        self.assertIn("2 failed, 1 passed", done.stdout, done.stderr)
        self.assertIn("jobs/large.sh: does not fit 8 H100", done.stdout)
        self.assertRegex(done.stdout, r"jobs/train.sh: \d+\.\d % slower than base.sh")

    def test_the_action_passes_inputs_by_the_environment(self):
        text = (ROOT / ".github/actions/plan/action.yml").read_text()
        steps = text[text.index("  steps:") :]
        for script in re.findall(r"\n      run: (.*(?:\n        .*)*)", steps):
            self.assertNotIn("${{", script)
        given = set(re.findall(r"inputs\.(\w+)", steps))
        self.assertEqual(given, set(re.findall(r"^  (\w+):\n    description", text, re.M)))

    def test_the_program_of_the_package(self):
        program = PACKAGE / "bin/heddle"
        if not program.exists():
            self.skipTest("the package is not that of a wheel")
        done = python(
            "-m",
            "heddle",
            "search",
            "--model",
            "GPT-2",
            "--cluster",
            "H100",
            "--devices",
            "8",
            "--global-batch",
            "64",
            "--sequence",
            "1024",
            "--json",
            cwd=self.folder,
        )
        self.passes(done)
        self.assertTrue(json.loads(done.stdout)["plans"])
        done = python("-m", "heddle", "launch", "tiny.toml", "--ranks", "2", cwd=self.folder)
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))
        self.assertIn("built without MPI", done.stderr)


JOB = """\
torchrun --nproc_per_node 8 pretrain_gpt.py \\
  --num-layers 32 --hidden-size 4096 --ffn-hidden-size 11008 --num-attention-heads 32 --swiglu \\
  --seq-length 4096 --max-position-embeddings 4096 --untie-embeddings-and-output-weights \\
  --make-vocab-size-divisible-by 1 --vocab-size 32000 --tokenizer-type NullTokenizer \\
  --tensor-model-parallel-size {tp} --sequence-parallel --use-distributed-optimizer --bf16 \\
  --micro-batch-size 1 --global-batch-size 64 --train-iters 100 --lr 1e-4
"""

if __name__ == "__main__":
    unittest.main()
