#!/usr/bin/env python3
"""Where the build looks for nvcc, and what ./dev configures: with folders and programs of the test's own in place of
an installed CUDA, a GPU and CMake's configuration of the whole project."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
# What a shell and CMake need, and nothing else: a PATH that has no nvcc.
PROGRAMS = ["bash", "sh", "env", "cat", "cmp", "cmake", "cp", "date", "dirname", "find", "grep", "mkdir", "mktemp",
            "mv", "ninja", "nproc", "rm", "sleep", "tail", "touch", "tr", "uname"]


class Folder(unittest.TestCase):
    def setUp(self):
        self.path = Path(tempfile.mkdtemp(prefix="heddle_configure_"))
        self.programs = self.path / "programs"
        self.programs.mkdir()
        for name in PROGRAMS:
            if found := shutil.which(name):
                (self.programs / name).symlink_to(found)

    def tearDown(self):
        shutil.rmtree(self.path)

    def environment(self, **more):
        plain = {"PATH": str(self.programs), "HOME": str(self.path), "LC_ALL": "C"}
        return {**plain, **{name: str(value) for name, value in more.items()}}

    def fake_nvcc(self, name):
        place = self.path / name / "bin"
        place.mkdir(parents=True)
        nvcc = place / "nvcc"
        nvcc.write_text("#!/bin/sh\nexit 1\n")
        nvcc.chmod(0o755)
        return nvcc


class FindNvcc(Folder):
    """tools/find_nvcc.cmake, as a project of its own that says what it leaves."""

    def setUp(self):
        super().setUp()
        text = (SOURCE / "tools/find_nvcc.cmake").read_text()
        # The folders of an installed CUDA are the test's.
        for folder in ("/usr/local/cuda", "/opt/cuda"):
            self.assertIn(folder, text)
            text = text.replace(folder, str(self.path) + folder)
        (self.path / "find_nvcc.cmake").write_text(text)
        (self.path / "CMakeLists.txt").write_text(
            "cmake_minimum_required(VERSION 3.25)\nproject(trial LANGUAGES NONE)\ninclude(find_nvcc.cmake)\n"
            'message(STATUS "asks for [$ENV{CUDACXX}] and [${CMAKE_CUDA_COMPILER}]")\n')

    def asks_for(self, *options, **environment):
        # Without the folders that CMake knows for itself: an nvcc in /usr/local/bin is not the test's.
        command = ["cmake", "-G", "Ninja", "-S", self.path, "-B", self.path / "build",
                   "-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF", *options]
        text = subprocess.run(command, check=True, text=True, capture_output=True,
                              env=self.environment(**environment)).stdout
        line = next(line for line in text.splitlines() if "asks for" in line)
        return line.removeprefix("-- asks for ")

    def test_nothing_is_there(self):
        self.assertEqual(self.asks_for(), "[] and []")

    def test_where_cuda_is_installed(self):
        for folder in ("usr/local/cuda", "opt/cuda"):
            nvcc = self.fake_nvcc(folder)
            self.assertEqual(self.asks_for(), f"[{nvcc}] and []")
            nvcc.unlink()

    def test_what_the_user_names_comes_first(self):
        self.fake_nvcc("usr/local/cuda")
        home, path = self.fake_nvcc("home"), self.fake_nvcc("path")
        self.assertEqual(self.asks_for(CUDA_HOME=home.parents[1]), f"[{home}] and []")
        self.assertEqual(self.asks_for(CUDA_PATH=path.parents[1]), f"[{path}] and []")
        self.assertEqual(self.asks_for(CUDACXX="/named/nvcc", CUDA_HOME=home.parents[1]), "[/named/nvcc] and []")

    def test_what_is_in_path(self):
        nvcc = self.fake_nvcc("elsewhere")
        (self.programs / "nvcc").symlink_to(nvcc)
        self.assertEqual(self.asks_for(), f"[{self.programs / 'nvcc'}] and []")

    def test_what_was_not_found_is_looked_for_again(self):
        self.assertEqual(self.asks_for("-DCMAKE_CUDA_COMPILER=NOTFOUND"), "[] and []")
        nvcc = self.fake_nvcc("usr/local/cuda")
        self.assertEqual(self.asks_for(), f"[{nvcc}] and []")

    def test_what_is_chosen_stands(self):
        self.fake_nvcc("usr/local/cuda")
        self.assertEqual(self.asks_for("-DCMAKE_CUDA_COMPILER=/chosen/nvcc"), "[] and [/chosen/nvcc]")


class DevFolder(Folder):
    """A copy of ./dev, with a CMake that only notes what it is asked for."""

    def setUp(self):
        super().setUp()
        self.root = self.path / "copy"
        (self.root / "tools").mkdir(parents=True)
        text = (SOURCE / "dev").read_text()
        self.assertIn("/usr/local/cuda /opt/cuda", text)  # where CUDA is installed is the test's here, too
        (self.root / "dev").write_text(text.replace("/usr/local/cuda /opt/cuda", ""))
        (self.programs / "cmake").unlink()
        # It finds CUDA unless it is told OFF, where there is an nvcc or HEDDLE_CUDA is ON.
        (self.programs / "cmake").write_text(
            '#!/bin/bash\necho "$*" >>asked\nmkdir -p build\ntouch build/build.ninja\nhas=""\n'
            f'case "$*" in *CUDA=OFF*) ;; *) [ ! -x {self.path}/cuda/bin/nvcc ] || has=ON ;; esac\n'
            'echo "HEDDLE_BUILT_WITH_CUDA:INTERNAL=$has" >build/CMakeCache.txt\n')
        (self.programs / "cmake").chmod(0o755)


class Dev(DevFolder):
    """./dev's `configure`."""

    def configure(self, what, gpu):
        text = (self.root / "dev").read_text()
        self.assertIn("has_gpu()", text)
        script = ("source ./dev help >/dev/null\nsetup_vendor() { :; }\n"
                  f"has_gpu() {{ {'true' if gpu else 'false'}; }}\n"
                  f"configure release build {what}\n")
        asked = self.root / "asked"
        before = len(asked.read_text().splitlines()) if asked.exists() else 0
        done = subprocess.run(["bash", "-c", script], cwd=self.root, text=True, capture_output=True,
                              env=self.environment(CUDA_HOME=self.path / "cuda"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        lines = asked.read_text().splitlines() if asked.exists() else []
        return lines[before:]

    def without_cuda(self):
        return (self.root / "build/without_cuda").exists()

    def test_a_gpu_insists_on_cuda(self):
        self.fake_nvcc("cuda")
        self.assertEqual(self.configure("program", gpu=True), ["--preset release -DHEDDLE_CUDA=ON"])
        self.assertFalse(self.without_cuda())
        self.assertEqual(self.configure("more", gpu=True), [])

    def test_no_gpu_needs_none_until_more_is_built(self):
        self.fake_nvcc("cuda")
        self.assertEqual(self.configure("program", gpu=False), ["--preset release -DHEDDLE_CUDA=OFF"])
        self.assertTrue(self.without_cuda())
        self.assertEqual(self.configure("program", gpu=False), [])
        self.assertEqual(self.configure("more", gpu=False), ["--preset release -DHEDDLE_CUDA=AUTO"])
        self.assertFalse(self.without_cuda())

    # The toolkit comes later than the first build: the next one takes it in.
    def test_a_toolkit_that_comes_later_is_taken(self):
        self.assertEqual(self.configure("program", gpu=True), ["--preset release"])
        self.assertTrue(self.without_cuda())
        self.assertIn("install CUDA", self.said)
        self.assertEqual(self.configure("program", gpu=True), [])
        self.fake_nvcc("cuda")
        self.assertEqual(self.configure("program", gpu=True), ["--preset release -DHEDDLE_CUDA=ON"])
        self.assertFalse(self.without_cuda())

    # What marks a build is what CMake found, not what it was asked.
    def test_a_build_that_found_no_cuda_is_marked(self):
        (self.path / "cuda").mkdir()
        self.configure("more", gpu=False)
        self.assertTrue(self.without_cuda())


class Train(DevFolder):
    """./dev train, with a program that only notes how it is called."""

    def train(self, *arguments, gpu, works):
        (self.root / "build").mkdir(exist_ok=True)
        program = self.root / "build/heddle"
        program.write_text('#!/bin/sh\necho "$*" >>called\n[ "$1" != doctor ] || '
                           f'{{ echo "!! a product  status 14"; exit {0 if works else 1}; }}\n')
        program.chmod(0o755)
        (self.root / "called").unlink(missing_ok=True)
        script = ("source ./dev help >/dev/null\nsetup() { :; }\nsetup_corpus() { :; }\nbuild() { :; }\n"
                  f"has_gpu() {{ {'true' if gpu else 'false'}; }}\n"
                  'command_train "$@"\n')
        done = subprocess.run(["bash", "-c", script, "dev", *arguments], cwd=self.root, text=True, capture_output=True,
                              env=self.environment())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.said = done.stderr
        return (self.root / "called").read_text().splitlines()

    def test_a_gpu_that_works_is_used(self):
        self.assertEqual(self.train("--steps", "3", gpu=True, works=True),
                         ["doctor --device cuda",
                          "train examples/demo.toml --set device.backend=cuda --steps 3"])

    def test_one_that_fails_is_not_and_the_reason_is_said(self):
        self.assertEqual(self.train(gpu=True, works=False), ["doctor --device cuda", "train examples/demo.toml"])
        self.assertIn("a product  status 14", self.said)
        self.assertIn("Training on the CPU", self.said)

    def test_without_a_gpu_and_where_a_device_is_named_none_is_tried(self):
        self.assertEqual(self.train("--steps", "3", gpu=False, works=True), ["train examples/demo.toml --steps 3"])
        self.assertEqual(self.train("--set", "device.backend=host", gpu=True, works=True),
                         ["train examples/demo.toml --set device.backend=host"])


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
