#!/usr/bin/python3
"""kldumpctl diff on folders of a small model (diff_folders.c): options, statuses, what goes where."""
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ctl import Base  # noqa: E402

FOLDERS = os.path.abspath(os.path.join("tests", "unit", "diff_folders"))
MODULE = "model.layers.1.mlp.down_proj"


class Diff(Base):
    @classmethod
    def setUpClass(cls):
        cls.dumps = tempfile.mkdtemp(prefix="kl-")
        subprocess.run([FOLDERS, cls.dumps], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.dumps)

    def sides(self, case):
        return [os.path.join(self.dumps, case, side) for side in ("dec", "pre")]

    def diff(self, case, *options, status):
        return self.ctl("diff", *self.sides(case), *options, status=status)

    def test_equal(self):
        out, err = self.diff("clean", status=0)
        self.assertTrue(out.startswith("verdict      EQUAL (proven)"), out)
        self.assertEqual(err, "")
        self.assertNotIn("DIFFERS", out)

    def test_an_operator(self):
        out, err = self.diff("product", status=1)
        self.assertTrue(out.startswith(f"verdict      {MODULE} (op, proven)"), out)
        self.assertIn("position 6 of request dec-a (decode pass 0)", re.sub(r"\s+", " ", out))
        self.assertNotIn("\x1b", out + err)
        self.assertEqual(err, "")
        answer = json.loads(self.diff("product", "--json", status=1)[0])
        verdict = answer["verdict"]
        self.assertEqual((answer["schema"], answer["status"]), ("kldump.diff/1", 1))
        self.assertEqual((verdict["kind"], verdict["module"], verdict["layer"], verdict["position"]), ("op", MODULE, 1, 6))
        self.assertEqual((verdict["tested"], verdict["unequal"]), (16, 16))
        self.assertTrue(answer["alignment"]["proven"])
        self.assertEqual(answer["alignment"]["failed"], [])
        self.assertEqual([(r["dec_rid"], r["pre_rid"], r["prompt_length"], r["targets"]) for r in answer["requests"]],
                         [("dec-a", "pre-a", 6, 8), ("dec-b", "pre-b", 6, 8)])

    def test_other_tokens_have_no_verdict(self):
        dec, pre = self.sides("tokens")
        one = os.path.join(self.runtime, "pre")
        os.mkdir(one)
        for name in os.listdir(pre):  # without the request that fits
            if "step=0___" in name:
                os.link(os.path.join(pre, name), os.path.join(one, name))
        out, _ = self.ctl("diff", dec, one, status=3)
        self.assertTrue(out.startswith("alignment    NOT PROVEN: the rows of both sides are not"), out)
        self.assertIn("\nM2 ", out)
        self.assertNotIn("mlp", out)
        answer = json.loads(self.ctl("diff", dec, one, "--json", status=3)[0])
        self.assertIsNone(answer["verdict"])
        self.assertEqual(answer["alignment"]["messages"][0]["id"], "M2")

    def test_statuses(self):
        for folder in ("nowhere", ""):
            _, err = self.ctl("diff", os.path.join(self.runtime, "no", folder), self.sides("clean")[1], status=87)
            self.assertIn("no", err)
        for command in (("diff", "x" * 10000, self.sides("clean")[1]), ("check", "x" * 10000), ("show", "x" * 10000)):
            _, err = self.ctl(*command, status=87)
            self.assertIn("File name too long", err)
        empty = os.path.join(self.runtime, "empty")
        os.mkdir(empty)
        self.ctl("diff", empty, self.sides("clean")[1], status=4)

    def test_both_in_one_folder(self):
        dec, pre = self.sides("product")
        both = os.path.join(self.runtime, "both")
        os.mkdir(both)
        for name in os.listdir(dec):
            os.link(os.path.join(dec, name), os.path.join(both, name))
        for name in os.listdir(pre):
            step, index = int(re.match(r"step=(\d+)", name).group(1)), int(re.search(r"dump_index=(\d+)", name).group(1))
            other = re.sub(r"dump_index=\d+", f"dump_index={index + 100000}", re.sub(r"^step=\d+", f"step={step + 100}", name))
            os.link(os.path.join(pre, name), os.path.join(both, other))
        out, _ = self.ctl("diff", both, status=1)
        self.assertIn(MODULE, out.splitlines()[0])

    def test_what_was_compared_is_said(self):
        """That a dump equals itself proves nothing about decode against prefill."""
        dec, pre = self.sides("clean")
        for arguments, word, part in (((dec,), "itself", "each request with itself"), ((dec, dec), "itself", "each request with itself"),
                                      ((dec, pre), "phases", None)):
            out, _ = self.ctl("diff", *arguments, status=0)
            answer = json.loads(self.ctl("diff", *arguments, "--json", status=0)[0])
            self.assertEqual(answer["pairing"], word)
            self.assertEqual(re.search(r"^only         (.{24})", out, re.M) and re.search(r"^only         (.{24})", out, re.M).group(1), part)

    def test_each_message_stands_once(self):
        """Files can be missing in every pass."""
        dec, pre = self.sides("clean")
        holes = os.path.join(self.runtime, "holes")
        os.mkdir(holes)
        for name in os.listdir(dec):
            if "layers.1.mlp.inputs.0" not in name:
                os.link(os.path.join(dec, name), os.path.join(holes, name))
        out, _ = self.ctl("diff", holes, pre, status=4)
        self.assertTrue(out.startswith("alignment    UNUSABLE: what could be compared is equal, but files are missing"), out)
        self.assertEqual((out.count("\nM5 "), out.count("\n  do ")), (1, 1))
        more = int(re.search(r"^ +\.\.\. (\d+) more: --all$", out, re.M).group(1))
        every, _ = self.ctl("diff", holes, pre, "--all", status=4)
        answer = json.loads(self.ctl("diff", holes, pre, "--json", status=4)[0])
        self.assertEqual((every.count(": dump_index"), len(answer["alignment"]["messages"])), (more + 3, more + 3))

    def test_the_other_way_round(self):
        dec, pre = self.sides("product")
        out, _ = self.ctl("diff", pre, dec, status=1)
        self.assertTrue(out.startswith(f"verdict      {MODULE} (op, proven)"), out)
        self.assertIn("given the other way round", re.sub(r"\s+", " ", out))

    def test_output_does_not_depend_on_threads(self):
        answers = {self.diff("product", "--json", "--threads", n, status=1)[0] for n in ("1", "2", "7")}
        self.assertEqual(len(answers), 1)

    def test_page(self):
        page = os.path.join(self.runtime, "diff.html")
        with open(page, "w") as f:
            f.write("old")
        out, _ = self.diff("product", "--html", page, status=1)
        self.assertIn(f"\npage         {page}\n", out)
        with open(page) as f:
            text = f.read()
        self.assertIn(MODULE, text)
        self.assertIn("</html>", text)
        self.assertEqual([n for n in os.listdir(self.runtime) if "html" in n], ["diff.html"])
        before = sorted(os.listdir(self.sides("product")[0]))
        for folder in self.sides("product"):
            _, err = self.diff("product", "--html", os.path.join(folder, "diff.html"), status=2)
            self.assertIn("lies in the folder of a dump; write the page beside it", err)
        self.assertEqual(sorted(os.listdir(self.sides("product")[0])), before)
        _, err = self.diff("product", "--html", "/no/such/diff.html", status=2)
        self.assertIn("there is no folder '/no/such'", err)

    def test_wrong_usage(self):
        for options, text in (([], "name the folder of the decode run"), (["a", "b", "c"], "'c' is one argument too many"),
                              (["a", "--threads", "0"], "0 is no number of threads"), (["a", "--threads", "x"], "--threads"),
                              (["a", "--html"], "--html needs a value"), (["a", "--history"], "--history needs a value"),
                              (["a", "--html", "x", "--html", "y"], "--html is given twice"),
                              (["a", "--wrong"], "unknown option '--wrong'")):
            self.assertIn(text, self.ctl("diff", *options, status=2)[1])

    def test_further_folders_may_be_given_several_times(self):
        dec, pre = self.sides("product")
        for options in (["--history", pre, f"--history={pre}"], ["--stateful", "norm", "--stateful", "mlp"]):
            out, err = self.ctl("diff", dec, pre, "--threads", "1", *options, status=1)
            self.assertIn(MODULE, out, err)

    def test_terminal(self):
        """Colours and the width of a terminal; none with NO_COLOR; nothing is left of the progress."""
        for colour in (True, False):
            leader, follower = pty.openpty()
            environment = dict(self.environment, TERM="xterm", **({} if colour else {"NO_COLOR": "1"}))
            subprocess.run(["stty", "cols", "60"], stdin=follower, check=True)
            process = subprocess.Popen([os.path.abspath(os.environ.get("KLDUMPCTL", "kldumpctl")), "diff", *self.sides("product")],
                                       env=environment, stdin=subprocess.DEVNULL, stdout=follower, stderr=follower)
            text = self.read_terminal(leader, follower)
            self.assertEqual(process.wait(timeout=30), 1)
            self.assertEqual("\x1b[31m" in text, colour)
            plain = re.sub(r"\x1b\[[0-9]*m", "", text).replace("\r\n", "\n")
            self.assertNotIn("\x1b", plain)
            for line in plain.splitlines():
                if len(line) > 60:
                    self.assertNotIn(" ", line[13:].strip())


if __name__ == "__main__":
    unittest.main()
