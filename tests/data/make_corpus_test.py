"""tools/make_corpus.py: markup taken out, packages made into documents, what is missing."""

import gzip
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_corpus  # noqa: E402


def paragraphs(first, count):
    return "".join(f"Paragraph number {i} speaks of looms, of threads, and of nothing else at any length.\n\n"
                   for i in range(first, first + count))


def entries(first, count):
    return "00-database-info\n   About the dictionary.\n\n" + "".join(
        f"Loom{i} \\Loom\\, n. [OE.]\n   A frame for weaving, of which there are many.\n\n"
        for i in range(first, first + count))


def r_vector(lines, kind=16):
    """A vector of texts in R's serialisation."""
    out = b"X\n" + struct.pack(">4I", 3, 0x40201, 0x30500, 5) + b"UTF-8" + struct.pack(">2I", kind, len(lines))
    return out + b"".join(struct.pack(">2I", 0x40009, len(line)) + line for line in lines)


def r_object(serialised):
    return struct.pack(">I", len(serialised)) + zlib.compress(serialised)


class MarkupTest(unittest.TestCase):
    def test_plain_text_joins_prose_and_keeps_drawings(self):
        self.assertEqual(
            make_corpus.plain(b"   One sentence that is\n   wrapped in a co-\n   operative way.\n\n\n"
                              b"  +---+   +---+   +\n  | a |   | b |   |\n\n----------------\n"),
            b"One sentence that is wrapped in a co-operative way.\n\n+---+   +---+   +\n| a |   | b |   |\n")
        self.assertEqual(make_corpus.plain(b""), b"")

    def test_dictionary(self):
        self.assertEqual(
            make_corpus.dictionary(
                b"00-database-info\nAbout it.\n\n   More.\n\n"
                b'Davit \\Dav"it\\ (d[add]), n. [Cf. F. davier [x] forceps.] (Naut.)\n'
                b"   (a) A spar formerly used on board of {ships}, of\n       C[ae]sar's caf['e].\n"
                b"   [1913 Webster]\n\n         A lady writing.    --A. B.\n   [1913 Webster]\n\n   [PJC]\n\n"
                b"GECOM\n\n   <language, history> A language, x <3> y.\n\n   (1996-09-15)\n"),
            b"Davit, n. (Naut.) (a) A spar formerly used on board of ships, of Caesar's cafe.\n\n"
            b"A lady writing. --A. B.\n\nGECOM: A language, x <3> y.\n")

    def test_vectors_of_texts(self):
        database = (r_object(r_vector([b"EMMA", b"", b"by"])) + r_object(r_vector([b"x"], 24))
                    + r_object(b"no serialisation") + r_object(r_vector([b"end"])))
        self.assertEqual(list(make_corpus.r_texts(database)), [b"EMMA\n\nby\n", b"end\n"])


class CorpusTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)

    def spill(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix in (".gz", ".dz") else text.encode())

    def make(self, *options):
        roots = [self.root / "nothing", self.root]
        done = subprocess.run([sys.executable, ROOT / "tools/make_corpus.py", "--roots", *roots,
                               "--out", self.root / "out", *options], capture_output=True, text=True)
        if done.returncode:
            return done.stderr, None
        lines = (self.root / "out/documents.jsonl").read_text().splitlines()
        return [json.loads(line)["text"] for line in lines], json.loads((self.root / "out/packages.json").read_text())

    def test_packages_are_cut_into_documents_without_repetitions(self):
        doc = "usr/share/doc/jargon-text/"
        self.spill(doc + "a.txt.gz", paragraphs(0, 400))
        self.spill(doc + "b.txt.gz", paragraphs(390, 20))
        self.spill(doc + "c.txt.gz", paragraphs(0, 400))  # a second rendering
        self.spill(doc + "copyright", "Format: x\nFiles: *\nLicense: GPL-2\n text\n\nLicense: CC0\n")
        documents, packages = self.make()
        self.assertGreater(len(documents), 3)
        self.assertEqual("\n\n".join(documents) + "\n\n", paragraphs(0, 410))
        for document in documents:
            self.assertLessEqual(len(document), 2 * make_corpus.LEAST_DOCUMENT_BYTES)
        self.assertEqual(packages, [{"name": "jargon-text", "licence": "GPL-2, CC0", "files": 2,
                                     "text_bytes": sum(map(len, documents))}])

    def test_no_package_gives_more_than_a_third(self):
        self.spill("usr/share/dictd/gcide.dict.dz", entries(0, 20000))
        self.spill("usr/share/dictd/foldoc.dict.dz", entries(50000, 20000))
        self.spill("usr/share/doc/jargon-text/j.txt.gz", paragraphs(100, 10000))
        self.spill("usr/share/doc/jargon-text/copyright", "This is in the public domain.")
        documents, packages = self.make("--bytes", "600000")
        self.assertEqual([(p["name"], p["licence"]) for p in packages],
                         [("dict-gcide", "see /usr/share/doc/dict-gcide/copyright"), ("jargon-text", "public domain"),
                          ("dict-foldoc", "see /usr/share/doc/dict-foldoc/copyright")])
        for package in packages:
            self.assertLessEqual(package["text_bytes"], 200_000)
            self.assertGreater(package["text_bytes"], 180_000)
        self.assertIn(", n. A frame", documents[0])
        last = max(int(number) for d in documents for number in re.findall(r"Loom(\d+)", d) if int(number) < 50000)
        self.assertGreater(last, 18_500, "not from all over the dictionary")

    def test_what_is_missing_is_named(self):
        complaint, _ = self.make()
        for name, *_ in make_corpus.PACKAGES:
            self.assertIn(name, complaint)

    def test_the_list_of_packages_is_the_same(self):
        lines = (ROOT / "tools/corpus_packages.txt").read_text().splitlines()
        self.assertEqual([line.split()[0] for line in lines if not line.startswith("#")],
                         [package[0] for package in make_corpus.PACKAGES])


if __name__ == "__main__":
    unittest.main()
