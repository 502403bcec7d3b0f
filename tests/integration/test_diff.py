"""kldumpctl diff on dumps that the real SGLang wrote (tests/data/real): its answers against truth.json, which torch computed and nothing
but this test reads."""
import json
import os
import random
import re
import shutil
import stat
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from kldump_programs import BUILD

DATA = Path(__file__).resolve().parents[1] / "data" / "real"
NAMES = sorted(path.name[:-7] for path in DATA.glob("*.tar.gz"))
COMPARABLE = [name for name in NAMES if "graph" not in name]
DIFFERENT = [name for name in COMPARABLE if "equal" not in name and "invariant" not in name]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    for name in NAMES:
        with tarfile.open(DATA / f"{name}.tar.gz") as archive:
            archive.extractall(folder)
    return folder


def diff(*arguments, status=None, cwd=None):
    done = subprocess.run([BUILD / "kldumpctl", "diff", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
                          cwd=cwd, check=False)
    assert done.stderr == "" and (status is None or done.returncode == status), (done.returncode, done.stderr, done.stdout[:2000])
    return done.stdout


def answer(folder, name, *options):
    return json.loads(diff("dec", "pre", "--json", *options, cwd=folder / name))


def truth_of(folder, name):
    return json.loads((folder / name / "truth.json").read_text())["ranks"]["0"]["requests"][0]


def test_there_are_enough():
    assert len(COMPARABLE) >= 7 and len(DIFFERENT) >= 5


@pytest.mark.parametrize("name", COMPARABLE)
def test_the_verdict_is_the_truth(dumps, name):
    truth, found = truth_of(dumps, name), answer(dumps, name)
    verdict, first = found["verdict"], truth["first_equal_inputs_different_output"]
    assert found["alignment"]["failed"] in ([], ["A8"])
    if first == "none":
        assert (found["status"], verdict["kind"], verdict["module"]) == (0, "none", None)
        assert all(row["unequal"] == 0 for row in found["evidence"])
        return
    history = truth["attention_suspects_kv_history_equal"].get(f"{first['module']}#0")
    kind = "op" if history is None else "op+cache" if history[str(first["k"][0])] else "state"
    assert (found["status"], verdict["kind"], verdict["module"]) == (1, kind, first["module"])
    assert verdict["position"] == truth["prompt_length"] + first["k"][0]
    assert (verdict["tested"], verdict["unequal"]) == (len(truth["tokens"]), len(first["k"]))
    assert verdict["layer"] == int(re.search(r"layers\.(\d+)", first["module"]).group(1))


@pytest.mark.parametrize("name", COMPARABLE)
def test_every_row_of_the_evidence_is_the_truth(dumps, name):
    truth, found = truth_of(dumps, name), answer(dumps, name)
    modules, matched = {row["module"]: row for row in truth["modules"]}, 0
    for row in found["evidence"]:
        expected = modules.get(row["module"])
        if expected is None or "-" in expected["inputs"] + expected["output"]:
            continue
        equal_inputs = [k for k, same in enumerate(expected["inputs"]) if same == "1"]
        unequal = [k for k in equal_inputs if expected["output"][k] == "0"]
        assert (row["tested"], row["unequal"]) == (len(equal_inputs), len(unequal)), row
        assert row["first_position"] == (truth["prompt_length"] + unequal[0] if unequal else None), row
        matched += 1
    assert matched >= 15


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_strip_is_the_truth(dumps, name):
    truth = truth_of(dumps, name)
    first = truth["first_equal_inputs_different_output"]
    text = diff("dec", "pre", status=1, cwd=dumps / name)
    assert text.startswith(f"verdict      {first['module']} (")
    strip = "".join(re.findall(r"^ +\d+  ([^ \n]{1,80})$", text.split("\ntokens ")[1].split("\n\n")[0], re.M))
    output = next(row["output"] for row in truth["modules"] if row["module"] == first["module"])
    assert "".join("1" if c == "." else "0" for c in strip[truth["prompt_length"]:]) == output


def test_replayed_graphs_have_no_verdict(dumps):
    name = next(n for n in NAMES if "graph" in n)
    found = answer(dumps, name)
    assert found["status"] in (3, 4) and found["verdict"] is None and found["evidence"] == []
    assert "M4" in [message["id"] for message in found["alignment"]["messages"]]
    text = diff("dec", "pre", status=found["status"], cwd=dumps / name)
    assert "\nrecipe " in text and "layernorm" not in text


@pytest.mark.parametrize("name", COMPARABLE)
def test_threads_sides_and_paths_change_nothing(dumps, name, tmp_path):
    first = answer(dumps, name)
    assert answer(dumps, name, "--threads", "1") == answer(dumps, name, "--threads", "5") == first
    swapped = json.loads(diff("pre", "dec", "--json", cwd=dumps / name))
    assert swapped.pop("swapped") is True and first.pop("swapped") is False
    assert swapped == first
    other = tmp_path / "a folder of another name"
    files = [path for side in ("dec", "pre") for path in (dumps / name / side).iterdir()]
    random.Random(1).shuffle(files)
    for side in ("dec", "pre"):
        (other / side).mkdir(parents=True)
    for path in files:  # the order in which a folder lists them is another one
        shutil.copy2(path, other / path.parent.name / path.name)
    moved = json.loads(diff("dec", "pre", "--json", cwd=other))
    moved.pop("swapped")
    assert moved == first


def test_other_names_give_the_same_verdict_under_them(dumps, tmp_path):
    """Nothing hangs on the names of the model or on the numbers of its layers."""
    name = "fault-rms-f32-0.5.23"
    for side in ("dec", "pre"):
        (tmp_path / side).mkdir()
        for path in (dumps / name / side).iterdir():
            new = re.sub(r"model\.layers\.(\d+)", lambda m: f"decoder.blocks.{int(m.group(1)) + 7}", path.name)
            new = re.sub(r"layer_id=(\d+)", lambda m: f"layer_id={int(m.group(1)) + 7}", new).replace("input_layernorm", "scaling")
            shutil.copy2(path, tmp_path / side / new)
    verdict = json.loads(diff("dec", "pre", "--json", cwd=tmp_path))["verdict"]
    assert (verdict["kind"], verdict["module"], verdict["position"]) == ("op", "decoder.blocks.8.scaling", 12)


def flip(path, element_bytes, element):
    """The last bit of one element of the file's tensor."""
    with zipfile.ZipFile(path) as archive:
        info = next(i for i in archive.infolist() if i.filename.endswith("/data/0"))
    with open(path, "r+b") as file:
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        file.seek(info.header_offset + 30 + name + extra + element * element_bytes)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


def test_one_flipped_bit_is_found_and_named(dumps, tmp_path):
    """In a clean pair: one bit of one row of one tensor, anywhere behind the embedding."""
    shutil.copytree(dumps / "invariant-f32-0.5.23", tmp_path / "pair")
    folder = tmp_path / "pair"
    dice = random.Random(5)
    files = [path for path in sorted((folder / "dec").iterdir())
             if not path.name.startswith("step=0_") and re.search(r"name=non_intrusive__model\.layers\.\d+\.(mlp|self_attn|input|post|output)", path.name)
             and "rotary_emb.inputs.0" not in path.name]
    kinds = set()
    for path in dice.sample(files, 40):
        step, name = re.match(r"step=(\d+)___.*___name=non_intrusive__(.*?)___", path.name).groups()
        element = dice.randrange(16)
        flip(path, 4, element)
        found = json.loads(diff("dec", "pre", "--json", status=1, cwd=folder))
        flip(path, 4, element)
        verdict = found["verdict"]
        assert verdict["first_unequal"].split(" (")[0] == name, path.name
        assert (verdict["position"], verdict["unequal"]) == (11 + int(step), 1), path.name
        assert (verdict["kind"] == "gap") == (".inputs." in name), (path.name, verdict["kind"])
        tensor = next(o for o in found["observations"] if o["name"] == verdict["first_unequal"])
        assert (tensor["numbers"]["unequal"], tensor["numbers"]["max_ulp"]) == (1, 1)
        kinds.add(verdict["kind"])
    assert kinds >= {"op", "gap", "glue"}
    assert answer(tmp_path, "pair")["status"] == 0


def test_the_page_of_a_real_pair(dumps, tmp_path):
    page = tmp_path / "diff.html"
    diff("dec", "pre", "--html", str(page), status=1, cwd=dumps / "llama-bf16-0.5.23")
    text = page.read_text()
    assert "model.layers.0.self_attn.attn" in text and "layer 2: " in text and len(text) < 400_000
    assert "://" not in text and "<script" not in text


@pytest.mark.parametrize("kind", ["pipe", "folder", "link to a device", "no name"])
def test_the_page_replaces_files_only(dumps, tmp_path, kind):
    """Refused before any work: as root /dev/null would be gone for all."""
    page = tmp_path / "page"
    if kind == "pipe":
        os.mkfifo(page)
    elif kind == "folder":
        page.mkdir()
    elif kind == "link to a device":
        page.symlink_to("/dev/null")
    done = subprocess.run([BUILD / "kldumpctl", "diff", "dec", "pre", "--html", "" if kind == "no name" else page], text=True,
                          capture_output=True, timeout=60, cwd=dumps / "llama-bf16-0.5.23", check=False)
    assert done.returncode == 2 and "is no file that can be written" in done.stderr and done.stdout == ""
    assert kind == "no name" or not stat.S_ISREG(page.lstat().st_mode)


def test_sides_that_do_not_belong_together(dumps):
    """Each has its message, and none a verdict."""
    for dec, pre, message, part in (("llama-f32-0.5.23/dec", "gpu-attn-bf16-0.5.16/pre", "M2", "differs at position 0"),
                                    ("llama-bf16-0.5.23/dec", "llama-f32-0.5.23/pre", "M12", "bfloat16")):
        found = json.loads(diff(dec, pre, "--json", status=3, cwd=dumps))
        messages = {m["id"]: m["evidence"] for m in found["alignment"]["messages"]}
        assert found["verdict"] is None and part in messages[message], messages


def test_a_side_against_itself_is_equal(dumps):
    for name in COMPARABLE:
        for side in ("dec", "pre"):
            assert json.loads(diff(side, side, "--json", status=0, cwd=dumps / name))["verdict"]["kind"] == "none"


def test_damaged_files(dumps, tmp_path):
    """A file that is cut or no archive is a blind spot that is named; where the embedding's is missing there is no proof."""
    folder = tmp_path / "pair"
    shutil.copytree(dumps / "fault-rms-f32-0.5.23", folder)
    find = {part: next(p for p in (folder / "dec").iterdir() if p.name.startswith("step=3_") and part in p.name)
            for part in ("layers.0.mlp.act_fn.output", "layers.1.input_layernorm.output", "embed_tokens.output")}
    path = find["layers.0.mlp.act_fn.output"]
    whole = path.read_bytes()
    for damage in (whole[:200], whole[:-1], b"", b"PK\x03\x04" + os.urandom(300), b"\x80\x02}q\x00."):
        path.write_bytes(damage)
        found = json.loads(diff("dec", "pre", "--json", cwd=folder))
        assert found["status"] in (1, 4, 5), found["status"]
        if found["verdict"] is not None:
            assert found["verdict"]["module"] == "model.layers.1.input_layernorm" and found["verdict"]["confidence"] != "proven"
            tensor = next(o for o in found["observations"] if o["presence"] == "unreadable" and "act_fn" in o["name"])
            assert tensor["note"].count("step=3___") == 1, tensor["note"]  # the file is named, once
    path.write_bytes(whole)
    path = find["layers.1.input_layernorm.output"]
    path.unlink()
    verdict = json.loads(diff("dec", "pre", "--json", status=1, cwd=folder))["verdict"]
    assert verdict["module"] == "model.layers.1.input_layernorm"
