#!/usr/bin/python3
"""The reports of diffs made by hand (diff_world.c), as a person or a program gets them: pages, JSON, text."""
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from html.parser import HTMLParser

SAMPLES = os.path.join("tests", "unit", "report_samples")
UNPROVEN = ["m1", "m2", "m3", "m4", "m6", "m11", "m12", "m13", "m14", "m15", "unusable", "refused", "nothing"]
LOOSE = {"meta", "path", "rect"}  # without an end tag in HTML, or ended by "/>" in SVG
CULPRITS = {"op": "model.layers.1.input_layernorm", "op-cache": "model.layers.0.self_attn.attn", "state": "model.layers.1.self_attn.attn",
            "gap": "model.layers.1.mlp", "glue": "model.layers.1.mlp", "moe": "model.layers.17.mlp.gate"}


class Page(HTMLParser):
    """Fails on an end tag that does not belong to the last begun one; gathers what the tests ask for."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.attributes, self.text, self.figures = [], [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]
        if tag == "svg":
            self.figures.append(dict(attributes) | {"title": False})
        if tag == "title" and self.open and self.open[-1] == "svg":
            self.figures[-1]["title"] = True
        if tag not in LOOSE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:], self.getpos())
        self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data


class Samples(unittest.TestCase):
    """What PROGRAM writes into a folder: for each name a page and the same as text and JSON."""
    PROGRAM = None

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        subprocess.run([os.path.abspath(cls.PROGRAM), cls.folder], check=True)
        cls.names = sorted(name[:-5] for name in os.listdir(cls.folder) if name.endswith(".html"))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def read(self, name, ending):
        with open(os.path.join(self.folder, f"{name}.{ending}"), encoding="utf-8", newline="") as f:
            return f.read()


class Reports(Samples):
    PROGRAM = SAMPLES

    # pages

    def test_pages_are_well_formed(self):
        self.assertGreater(len(self.names), 25)
        for scenario in self.names:
            with self.subTest(scenario):
                page = Page(self.read(scenario, "html"))
                for tag in ("html", "head", "body", "main", "header", "footer", "h1", "style"):
                    self.assertEqual(page.tags.count(tag), 1, tag)
                ids = [value for _, name, value in page.attributes if name == "id"]
                self.assertEqual(len(ids), len(set(ids)))
                for _, name, value in page.attributes:
                    if name == "href":
                        self.assertIn(value[1:], ids)

    def test_pages_stand_alone(self):
        """Nothing is fetched and nothing runs."""
        for scenario in self.names:
            text = self.read(scenario, "html")
            page = Page(text)
            with self.subTest(scenario):
                self.assertNotIn("://", text)
                self.assertNotRegex(text, r"url\(|@import")
                self.assertFalse({"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(page.tags))
                names = {name for _, name, _ in page.attributes}
                self.assertFalse({n for n in names if n.startswith("on")} | {"src", "srcset", "xlink:href"} & names)
                self.assertIn("default-src 'none'", text)

    def test_pages_can_be_heard_and_typed(self):
        for scenario in self.names:
            page = Page(self.read(scenario, "html"))
            with self.subTest(scenario):
                for figure in page.figures:
                    self.assertTrue(figure["title"] or figure.get("aria-hidden") == "true", figure)
                self.assertIn("Skip to the verdict", page.text)
                self.assertNotIn(("tabindex", "-1"), [(n, v) for _, n, v in page.attributes])
        self.assertIn("desc", Page(self.read("op", "html")).tags)
        self.assertIn("details", Page(self.read("op", "html")).tags)

    def test_cells(self):
        """Which columns have which colour: in the layer and in the tensor of the verdict, at decode positions alone."""
        page = Page(self.read("op", "html"))
        for title in ("layer 0: 0 of 20 columns differ", "layer 1: 8 of 20 columns differ", "layer 3: 8 of 20 columns differ",
                      "input_layernorm.inputs.0: 0 of 20 columns differ", "input_layernorm.output: 8 of 20 columns differ"):
            self.assertTrue(title in page.text, title)
        row = re.search(r"<title>input_layernorm\.output: .*?</svg>", self.read("op", "html")).group()
        cells = {column: int(level) for level, runs in re.findall(r'class="l(\d+)" d="(.*?)"', row)
                 for first, count in re.findall(r"M(\d+) 0h(\d+)v", runs) for column in range(int(first), int(first) + int(count))}
        strip = "1" * 12 + "".join(str(min(int(c) - 1, 4) + 2) for c in "52413524")  # 5 is 16 to 31 ULP: the fifth class
        self.assertEqual("".join(str(cells[i]) for i in range(20)), strip)

    def test_light_dark_narrow(self):
        text = self.read("op", "html")
        for part in ("prefers-color-scheme:dark", "width=device-width", "max-width:40rem", ":focus-visible"):
            self.assertIn(part, text)

    def test_pages_are_bounded(self):
        """A page grows with the number of tensors, not with positions: 21,000 share 300 columns."""
        for scenario in self.names:
            self.assertLess(len(self.read(scenario, "html")), 1_000_000, scenario)
        self.assertTrue("A column stands for 70 positions" in Page(self.read("long", "html")).text)

    def test_hostile_names_are_text(self):
        text = self.read("hostile", "html")
        page = Page(text)
        self.assertNotIn("\x1b", text)
        self.assertNotIn("<script", text)
        self.assertEqual(text.count("</style>"), 1)
        self.assertNotIn("<b ", text)
        self.assertIn("<b onload=x>\"'&?[2J", page.text)
        self.assertIn("<script>alert('rid')</script>&\"", page.text)
        self.assertLess(max(map(len, page.text.split())), 300)

    def test_a_verdict_only_with_a_proof(self):
        for scenario in self.names:
            page, answer = Page(self.read(scenario, "html")), json.loads(self.read(scenario, "json"))
            with self.subTest(scenario):
                self.assertEqual(answer["verdict"] is None, scenario in UNPROVEN)
                if scenario in UNPROVEN:
                    for text in (page.text, self.read(scenario, "80.txt"), self.read(scenario, "json")):
                        self.assertNotIn("layernorm", text)
                        self.assertNotIn("self_attn", text)
                    self.assertNotIn("Layers by positions", page.text)

    def test_every_report_names_the_culprit(self):
        for scenario, module in CULPRITS.items():
            with self.subTest(scenario):
                verdict = json.loads(self.read(scenario, "json"))["verdict"]
                self.assertEqual(verdict["module"], module)
                self.assertTrue(self.read(scenario, "80.txt").startswith("verdict      " + module))
                self.assertIn(verdict["lines"]["verdict"], Page(self.read(scenario, "html")).text)

    def test_messages_and_the_recipe(self):
        for number in range(1, 14):
            scenario = f"m{number}"
            page, text = Page(self.read(scenario, "html")).text, self.read(scenario, "80.txt")
            message = json.loads(self.read(scenario, "json"))["alignment"]["messages"][0]
            with self.subTest(scenario):
                self.assertEqual(message["id"], f"M{number}")
                for shown in (page, re.sub(r"\s+", " ", text)):
                    for part in ("cause", "evidence", "remedy"):
                        self.assertIn(message[part], shown)
                    self.assertEqual("kldumpctl dump t pre -- ./score" in shown, number in (3, 4, 11))

    # JSON

    def test_json(self):
        for scenario in self.names:
            answer = json.loads(self.read(scenario, "json"))
            with self.subTest(scenario):
                self.assertEqual(next(iter(answer)), "schema")
                self.assertEqual(answer["schema"], "kldump.diff/1")
                self.assertEqual(len(answer["alignment"]["certificate"]), 9)
                self.assertIs(answer["alignment"]["proven"], scenario not in UNPROVEN or scenario == "refused")
                self.assertIsInstance(answer["evidence"], list)
                for request in answer["requests"]:
                    self.assertLessEqual(request["first_pair"] + request["pairs"], len(answer["pairs"]) + answer["pairs_cut"])
        statuses = {s: json.loads(self.read(s, "json"))["status"] for s in ("clean", "op", "m2", "unusable", "refused")}
        self.assertEqual(statuses, {"clean": 0, "op": 1, "m2": 3, "unusable": 4, "refused": 5})

    def test_every_member_is_described(self):
        with open(os.path.join(os.environ.get("srcdir", "."), "doc", "diff.md"), encoding="utf-8") as f:
            described = set(re.findall(r"`([a-z_]+)`", f.read()))

        def members(value):
            for child in value if isinstance(value, list) else value.values() if isinstance(value, dict) else []:
                yield from members(child)
            if isinstance(value, dict):
                yield from (key for key in value if not {"first_bits_dec", "first_bits_pre"} & set(value))  # those of numbers.h

        for scenario in ("op", "gap", "m2", "long", "refused"):
            self.assertEqual(set(members(json.loads(self.read(scenario, "json")))) - described, set(), scenario)

    def test_json_of_one_operator(self):
        answer = json.loads(self.read("op", "json"))
        verdict = answer["verdict"]
        self.assertEqual({k: verdict[k] for k in ("kind", "layer", "position", "class", "confidence", "tested", "unequal")},
                         {"kind": "op", "layer": 1, "position": 12, "class": "token-wise", "confidence": "proven", "tested": 8,
                          "unequal": 8})
        rows = [row for row in answer["evidence"] if row["unequal"]]
        self.assertEqual([(r["module"], r["first_position"], r["max_ulp"]) for r in rows], [("model.layers.1.input_layernorm", 12, 16)])
        tensor = next(o for o in answer["observations"] if o["name"] == verdict["first_unequal"])
        self.assertEqual(tensor["numbers"]["first_bits_dec"], "0x3ee00000")
        self.assertEqual(tensor["marks"][0], [0, 12, 1])
        self.assertEqual(sum(run[1] for run in tensor["marks"]), 20)
        self.assertNotIn("marks", answer["observations"][0])
        self.assertEqual(answer["pair_columns"][2], "position")
        self.assertEqual(answer["pairs"][12][:5], [0, 0, 12, 12 * 31 % 500 + 3, True])
        long = json.loads(self.read("long", "json"))
        self.assertTrue(any(o.get("marks_cut") for o in long["observations"]))
        self.assertTrue(all(len(o.get("marks", [])) <= 256 for o in long["observations"]))

    # text

    def test_text_fits(self):
        """No line is wider than it should be, but for one that is a single word or a command to be copied."""
        for scenario in self.names:
            for width in (40, 80, 200):
                text = self.read(scenario, f"{width}.txt")
                self.assertNotIn("\x1b", text)
                for line in text.splitlines():
                    if len(line) > width and "kldumpctl" not in line:
                        self.assertNotIn(" ", line[13:].strip(), (scenario, width))

    def test_text_of_one_operator(self):
        text = self.read("op", "80.txt")
        labels = [line.split()[0] for line in text.splitlines()[:14] if line and line[0] != " "]
        self.assertEqual(labels[:6], ["verdict", "where", "evidence", "class", "next", "compared"])
        self.assertRegex(text, r"\nA4 holds     the same token")
        self.assertRegex(text, r"\nbracket      equal    model.layers.1.inputs.0\n")
        self.assertRegex(text, r" unequal  model.layers.1.input_layernorm.output\n")
        self.assertIn("\n          0  ............52413524\n", text)
        self.assertRegex(text, r"\nmodel.layers.1.input_layernorm  normalisation +8 +8 +12 +16\n")
        self.assertIn("exonerated   8 operators", text)
        self.assertIn("blind spots  2 of 86", text)
        self.assertIn("!", self.read("nan", "80.txt").split("request dec-0, prompt")[1].split("DIFFERS")[0])
        requests = self.read("requests", "80.txt")
        self.assertEqual(re.findall(r"request (dec-\d), prompt of (\d+) tokens", requests),
                         [("dec-0", "12"), ("dec-1", "20"), ("dec-2", "28"), ("dec-3", "36"), ("dec-4", "44")])

    def test_narrow_table_keeps_the_end_of_names(self):
        text = self.read("op", "40.txt")
        self.assertRegex(text, r"\n~.*layernorm +8 +16\n")

    def test_long_strips_are_told_in_few_lines(self):
        text = self.read("long", "80.txt")
        self.assertRegex(text, r"\n +0  \. \.\.\. 9000 alike\n")
        self.assertIn(" more: --all\n", text)
        self.assertLess(text.count("\n"), 80)
        self.assertNotIn(": --all", self.read("long", "80-all.txt"))
        self.assertGreater(self.read("long", "80-all.txt").count("\n"), 190)


if __name__ == "__main__":
    unittest.main()
