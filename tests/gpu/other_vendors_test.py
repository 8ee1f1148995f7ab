#!/usr/bin/env python3
"""The toolchain files of AMD and MetaX. With hipcc every kernel file, and every file of the host that calls the device,
is compiled for AMD's; the device code is read back. No cucc is to be had: a program of the test's own stands for it,
hands its options to nvcc, and so shows what a cucc would be asked for.

HEDDLE_HIP_ARCHITECTURES names AMD's devices, gfx940 without. Skips (77) where there is neither hipcc nor nvcc."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
KERNELS = SOURCE / "src/heddle/kernels/cuda"
FOLDERS = ["", "attention", "experts", "products", "router"]
ARCHITECTURES = os.environ.get("HEDDLE_HIP_ARCHITECTURES", "gfx940")
NVCC = shutil.which("nvcc", path=os.environ["PATH"] + ":/usr/local/cuda/bin")
HEADERS = pathlib.Path(NVCC).resolve().parents[1] / "include" if NVCC else None
LEAST_SHARED = 64 << 10  # that a block of these devices has


def kernel_files():
    return sorted(file for folder in FOLDERS for file in (KERNELS / folder).glob("*.cu"))


def tool(name):
    """A tool of LLVM, beside hipcc's own."""
    return next((found for suffix in ("", "-15") if (found := shutil.which(name + suffix))), name)


class Build(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="heddle_vendors_")
        self.root = pathlib.Path(self.place.name)
        self.build = self.root / "build"

    def tearDown(self):
        self.place.cleanup()

    def configure(self, toolchain, *options, fails=False, **environment):
        done = subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE, "-B", self.build, "--toolchain",
                               SOURCE / "tools/toolchains" / toolchain, "-DHEDDLE_TESTS=OFF", "-DHEDDLE_BENCH=OFF",
                               "-DHEDDLE_PCH=OFF", "-DHEDDLE_MPI=OFF", *options], text=True, capture_output=True,
                              env={**os.environ, **{k: str(v) for k, v in environment.items()}})
        if not fails:
            self.assertEqual(done.returncode, 0, done.stdout[-3000:] + done.stderr)
        return done

    def make(self, *targets):
        done = subprocess.run(["ninja", "-C", self.build, "-j", str(os.cpu_count()), *targets], text=True,
                              capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:])

    def targets(self, pattern):
        said = subprocess.run(["ninja", "-C", self.build, "-t", "targets", "all"], text=True, capture_output=True,
                              check=True).stdout
        return sorted(set(re.findall(rf"^({pattern}): ", said, re.M)))

    def notes(self, file):
        """The numbers of each kernel of an object, by name."""
        fat = self.root / "fat"
        subprocess.run(["objcopy", "-O", "binary", "--only-section=.hip_fatbin", file, fat], check=True)
        for architecture in ARCHITECTURES.split(";"):
            code = self.root / "code"
            subprocess.run([tool("clang-offload-bundler"), "--unbundle", "--type=o", f"--input={fat}",
                            f"--output={code}", f"--targets=hipv4-amdgcn-amd-amdhsa--{architecture}"], check=True)
            said = subprocess.run([tool("llvm-readelf"), "--notes", code], text=True, capture_output=True, check=True)
            for kernel in said.stdout.split("  - .agpr_count:")[1:]:
                yield architecture, dict(re.findall(r"^\s+\.(\w+): +(\S+)$", kernel, re.M))

    @unittest.skipUnless(shutil.which("hipcc"), "no hipcc")
    def test_amd(self):
        options = [f"-DHEDDLE_HIP_ARCHITECTURES={ARCHITECTURES}"]
        if HEADERS and (HEADERS / "nccl.h").exists():  # RCCL has the same names, and is not packaged
            folder = self.root / "rccl"
            folder.mkdir()
            text = re.sub(r"#include <cuda_(fp|bf)\w+\.h>", "", (HEADERS / "nccl.h").read_text())
            (folder / "rccl.h").write_text(text)
            options.append(f"-DHEDDLE_RCCL_HEADERS={self.root}")
        self.configure("hipcc.cmake", *options)
        objects = self.targets(r"kernels/\S*\.cu\.o")
        self.assertEqual(len(objects), len(kernel_files()))
        hosts = self.targets(r"src/\S*heddle_(?:device\.dir/device/cuda|comm\.dir/comm/nccl|kernels\.dir/kernels/cuda/device)/\S*\.o")
        self.assertGreater(len(hosts), 9)
        self.make(*objects, *hosts)
        kernels = spilled = 0
        for file in objects:
            named = subprocess.run(["nm", self.build / file], text=True, capture_output=True, check=True).stdout
            for architecture, of in self.notes(self.build / file):
                kernels += 1
                spilled += int(of["vgpr_spill_count"]) > 0
                self.assertEqual(of["wavefront_size"], "64", (file, of["name"]))
                self.assertLessEqual(int(of["group_segment_fixed_size"]), LEAST_SHARED, (file, of["name"]))
                # A launch takes the kernel by this name of the host's.
                self.assertRegex(named, rf" [VDBR] {of['name']}\n")
        self.assertGreater(kernels, 100)
        print(f"hipcc, {ARCHITECTURES}: {len(objects)} files, {kernels} kernels with 64 lanes, {spilled} of them with "
              f"spilled registers; {len(hosts)} files of the host", file=sys.stderr)

    @unittest.skipUnless(NVCC, "no nvcc to stand behind a cucc")
    def test_metax(self):
        maca = self.root / "maca"
        bridge = maca / "tools/cu-bridge"
        (bridge / "bin").mkdir(parents=True)
        (maca / "lib").mkdir()
        (maca / "include").mkdir()
        (bridge / "include").symlink_to(HEADERS)
        cucc = bridge / "bin/cucc"
        cucc.write_text(f'#!/bin/sh\necho "$*" >>{self.root}/asked\nexec {NVCC} "$@"\n')
        cucc.chmod(0o755)
        for name in ("mcruntime", "runtime_cu"):
            subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", maca / f"lib/lib{name}.so"], check=True)
        self.configure("cucc.cmake", MACA_PATH=maca)
        objects = self.targets(r"kernels/\S*\.cu\.o")
        self.assertEqual(len(objects), len(kernel_files()))
        self.make("kernels/kernels/cuda/dropout_kernels.cu.o")
        asked = (self.root / "asked").read_text()
        for word in ("-DHEDDLE_WARP=64", "-DHEDDLE_PLAIN_TILES", "-fmad=false", "-x cu"):
            self.assertIn(word, asked)
        commands = subprocess.run(["ninja", "-C", self.build, "-t", "commands", "heddle"], text=True,
                                  capture_output=True, check=True).stdout
        link = next(line for line in commands.splitlines() if "-o heddle " in line)
        self.assertIn(str(maca / "lib"), link)
        self.assertRegex(link, r"(-l|/lib)mcruntime\b.*(-l|/lib)runtime_cu\b")
        loader = next(line for line in commands.splitlines() if "cublaslt/library.cpp" in line)
        self.assertIn("-DHEDDLE_VENDOR=metax", loader)
        self.assertNotIn("cudnn/plan.cpp", commands)

    def test_what_is_missing_is_named(self):
        nowhere = self.root / "nowhere"
        done = self.configure("cucc.cmake", fails=True, MACA_PATH=nowhere)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("HEDDLE_KERNEL_COMPILER is not set or not found, HEDDLE_VENDOR is metax",
                      " ".join(done.stderr.split()))


if __name__ == "__main__":
    if not NVCC and not shutil.which("hipcc"):
        sys.exit(77)
    unittest.main()
