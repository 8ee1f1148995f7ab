#!/usr/bin/env python3
"""Libraries of each vendor by their names: a folder of stub libraries, each with the file name and the functions that
the vendor's own has, and the program's loaders compiled for that vendor (vendor_libraries.cpp). A loader must find
them there, and name the file or function that it misses."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv[1])
HEADERS = pathlib.Path(sys.argv[2])  # of cuBLASLt

NCCL = ["GetUniqueId", "CommInitRank", "CommDestroy", "CommAbort", "CommGetAsyncError", "GetErrorString", "GroupStart",
        "GroupEnd", "Send", "Recv"]
CUBLASLT = ["Create", "MatmulDescCreate", "MatmulDescDestroy", "MatmulDescSetAttribute", "MatrixLayoutCreate",
            "MatrixLayoutDestroy", "MatrixLayoutSetAttribute", "MatmulPreferenceCreate", "MatmulPreferenceDestroy",
            "MatmulPreferenceSetAttribute", "MatmulAlgoGetHeuristic", "MatmulAlgoCheck", "Matmul"]


def cublas_major():
    return re.search(r"define CUBLAS_VER_MAJOR (\d+)", (HEADERS / "cublas_api.h").read_text()).group(1)


# The names as the vendors publish them: file, prefix of the functions, name in messages. None: never called.
NAMES = {
    "nvidia": {"messages": ("libnccl.so.2", "nccl", "NCCL"),
               "products": ("libcublasLt.so.MAJOR", "cublasLt", "cuBLASLt")},
    "metax": {"messages": ("libmccl.so", "mccl", "MCCL"), "products": ("libmcblasLt.so", "mcblasLt", "mcBLASLt")},
    "amd": {"messages": ("librccl.so.1", "nccl", "RCCL"), "products": None},
}


def stub(folder, use, file, prefix, without=""):
    names = [n for n in (NCCL if use == "messages" else CUBLASLT) if n != without]
    text = "".join(f"int {prefix}{name}(void) {{ return 0; }}\n" for name in names)
    if use == "messages":
        text += f"int {prefix}GetVersion(int* version) {{ *version = 21605; return 0; }}\n"
    else:
        text += f"unsigned long {prefix}GetVersion(void) {{ return {cublas_major()}0000 + 203; }}\n"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / file], input=text, text=True, check=True)


class VendorLibraries(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory(prefix="heddle_vendor_")
        self.folder = pathlib.Path(self.place.name)

    def tearDown(self):
        self.place.cleanup()

    def lines(self, vendor):
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.folder)}
        for name in ("HEDDLE_CUBLASLT", "HEDDLE_CUBLASLT_PATH"):
            environment.pop(name, None)
        done = subprocess.run([BUILD / f"vendor_libraries_{vendor}"], env=environment, text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()

    def uses(self):
        for vendor, libraries in NAMES.items():
            for use, names in libraries.items():
                if names:
                    yield vendor, use, names[0].replace("MAJOR", cublas_major()), names[1], names[2]

    def test_each_is_found_by_its_names(self):
        for vendor, use, file, prefix, name in self.uses():
            with self.subTest(vendor=vendor, use=use):
                stub(self.folder, use, file, prefix)
                release = "2.16.5" if use == "messages" else f"{cublas_major()}.2.3"
                self.assertIn(f"{use}: {name} {release} ({self.folder / file})", self.lines(vendor))
                (self.folder / file).unlink()

    def test_a_function_that_is_missing_is_named(self):
        for vendor, use, file, prefix, name in self.uses():
            with self.subTest(vendor=vendor, use=use):
                last = "Recv" if use == "messages" else "Matmul"
                stub(self.folder, use, file, prefix, without=last)
                self.assertIn(f"{use}: the {name} of this machine has no {prefix}{last}", self.lines(vendor))
                (self.folder / file).unlink()

    # NVIDIA's own may be installed here.
    def test_a_file_that_is_missing_is_named(self):
        for vendor, use, file, *_ in self.uses():
            if vendor != "nvidia":
                self.assertTrue(any(line.startswith(f"{use}: {file} is not found") for line in self.lines(vendor)),
                                (vendor, use))

    def test_what_is_never_called_is_named_with_the_reason(self):
        self.assertIn("products: hipBLASLt (libhipblaslt.so) is not used, since it cannot check an algorithm that "
                      "was chosen before: the own kernels multiply", self.lines("amd"))

    # Without a device, beside the facts; with one its trials say so.
    def test_doctor_names_what_it_found(self):
        file, prefix, _ = NAMES["nvidia"]["messages"]
        stub(self.folder, "messages", file, prefix)
        done = subprocess.run([BUILD / "heddle", "doctor", "--device", "cuda", "--json"], text=True,
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.folder)}, capture_output=True)
        found = {row["what"]: row["found"] for row in json.loads(done.stdout)["trials"]}
        if "library of messages" not in found:
            self.skipTest("there is a device")
        self.assertEqual(found["library of messages"], f"NCCL 2.16.5 ({self.folder / file})")
        self.assertIn("libcublasLt", found["library of products"])

    def test_every_vendor_has_a_row_of_every_use(self):
        for vendor in NAMES:
            rows = [line for line in self.lines(vendor) if line.startswith("row: ")]
            self.assertEqual([row.split()[1:3] for row in rows], [["0", "own"], ["1", "own"], ["2", "own"]], vendor)


if __name__ == "__main__":
    sys.argv = sys.argv[:1]
    unittest.main()
