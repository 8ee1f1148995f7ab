#!/usr/bin/env python3
"""The Chinese page has the blocks, the links and the tables of the English one: same commands, same order.

    readme_zh_test.py ROOT
"""
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]


def page(name):
    return (ROOT / name).read_text()


def blocks(text):
    """Each fenced block with the comment above it that steers the tests."""
    return re.findall(r"(?:<!-- [^\n]* -->\n)?^```\w*\n.*?^```$", text, flags=re.S | re.M)


def links(text):
    return sorted(set(re.findall(r"\]\(([^)]+)\)", text)) - {"README.md", "README.zh.md"})


def rows(text):
    """Of each table the number of columns of its rows, in order."""
    return [len(re.findall(r"(?<!\\)\|", line)) - 1 for line in text.splitlines() if line.startswith("|")]


class Readme(unittest.TestCase):
    def test_both_pages_say_the_same(self):
        english, chinese = page("README.md"), page("README.zh.md")
        self.assertGreater(len(blocks(english)), 4)
        self.assertEqual(blocks(chinese), blocks(english))
        self.assertEqual(links(chinese), links(english))
        self.assertEqual(rows(chinese), rows(english))
        self.assertEqual(chinese.count("\n## "), english.count("\n## "))
        figures = r"\d[\d,.]*\d|\d"
        self.assertEqual(sorted(re.findall(figures, chinese)), sorted(re.findall(figures, english)))

    def test_each_leads_to_the_other(self):
        self.assertIn("(README.zh.md)", page("README.md"))
        self.assertIn("(README.md)", page("README.zh.md"))


if __name__ == "__main__":
    unittest.main()
