#!/usr/bin/python3
"""The reports of investigations made by hand (investigate_samples.c), as a person or a program gets them: page, JSON, text."""
import json
import os
import re
import sys
import unittest
from pathlib import Path

import test_reports
from test_reports import Page

SAMPLES = os.path.join("tests", "unit", "investigate_samples")
SOURCE = Path(__file__).resolve().parents[2]
ENDS = {"clean": "clean", "operator": "operator", "both": "both", "graph": "needs-a-graph", "decode": "decode-context", "restore": "restore",
        "other": "other-reading", "refused": "refused", "unproven": "alignment-not-proven", "stopped": "unfinished", "failed": "not-started",
        "hostile": "operator"}


class Reports(test_reports.Samples):
    PROGRAM = SAMPLES

    def test_every_end(self):
        self.assertEqual(set(self.names), set(ENDS))
        for name in self.names:
            answer = json.loads(self.read(name, "json"))["answer"]
            self.assertEqual(answer["end"], ENDS[name])
            if name == "hostile":
                continue
            page, text = Page(self.read(name, "html")).text, " ".join(self.read(name, "txt").split())
            with self.subTest(name):
                for line in (answer["text"], *answer["evidence"], *answer["not_measured"], *answer["next"]):
                    self.assertIn(line, page)
                    self.assertIn(line, text)
                self.assertTrue(text.startswith(f"answer {ENDS[name]}: "))  # the answer first

    def test_pages_are_well_formed_and_stand_alone(self):
        for name in self.names:
            text = self.read(name, "html")
            page = Page(text)
            with self.subTest(name):
                for tag in ("html", "head", "body", "main", "header", "footer", "h1", "style"):
                    self.assertEqual(page.tags.count(tag), 1, tag)
                ids = [value for _, attribute, value in page.attributes if attribute == "id"]
                self.assertEqual(len(ids), len(set(ids)))
                for _, attribute, value in page.attributes:
                    if attribute == "href":
                        self.assertTrue(value[1:] in ids if value[0] == "#" else re.fullmatch(r"[a-z-]+\.(json|html)", value), value)
                self.assertNotIn("://", text)
                self.assertNotRegex(text, r"url\(|@import")
                self.assertFalse({"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags))
                names = {attribute for _, attribute, _ in page.attributes}
                self.assertFalse({n for n in names if n.startswith("on")} | {"src", "srcset", "xlink:href"} & names)
                self.assertIn("default-src 'none'", text)
                for figure in page.figures:
                    self.assertTrue(figure["title"] or figure.get("aria-hidden") == "true", figure)
                self.assertLess(len(text), 60_000)

    def test_paths_side_by_side(self):
        page = self.read("graph", "html")
        rows = re.findall(r'<tr><th scope="row">(match.*?|.*? hit|restore)</th>(.*?)</tr>', page)
        self.assertEqual([name for name, _ in rows], ["match", "match, one at a time", "prefill cache hit", "decode cache hit", "restore"])
        self.assertEqual(re.findall(r"nonzero|bit-equal", rows[0][1]), ["nonzero", "bit-equal"])
        widths = [float(width) for width in re.findall(r'width="([\d.]+)"', rows[0][1])]
        self.assertEqual(widths, [round(100 * 35 / 96, 2), 0])

    def test_hostile_names_are_text(self):
        text, plain = self.read("hostile", "html"), self.read("hostile", "txt")
        page = Page(text)
        for report in (text, plain):
            self.assertNotRegex(report.replace("\n", ""), r"[\x00-\x1f\x7f]")
        self.assertNotIn("<script", text)
        self.assertNotIn("<img", text)
        self.assertNotIn("<b ", text)
        self.assertEqual(text.count("</style>"), 1)
        self.assertIn("<script>alert('model')</script>", page.text)
        self.assertLess(max(map(len, page.text.split())), 300)
        self.assertNotIn("javascript:", " ".join(value or "" for _, name, value in page.attributes if name == "href"))
        self.assertNotIn("\nInjected", plain)
        self.assertEqual(json.loads(self.read("hostile", "json"))["diff"]["what"], "<b onload=x>\"'&\x1b[2J")

    def test_every_member_is_described(self):
        described = set(re.findall(r"`([a-z_0-9]+)`", (SOURCE / "doc/investigate.md").read_text()))

        def members(value):
            for key, child in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
                if isinstance(key, str):
                    yield key
                yield from members(child)
        for name in self.names:
            found = json.loads(self.read(name, "json"))
            self.assertEqual(set(members(found)) - described, set())
            self.assertEqual(next(iter(found)), "schema")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
