"""doc/protocol.md is true: its examples are sent to a live kldumpd, its tables compared with the sources."""
import json
import re
import socket
from pathlib import Path

import pytest

from kldump_programs import PATIENCE_S, Place, process_is_alive, wait_for
from ports import free_port

SOURCE = Path(__file__).resolve().parents[2]
PAGE = (SOURCE / "doc/protocol.md").read_text()
ANY = re.compile(r"<[^>]*>")


METHODS = {name: {"access": access, "parameters": parameters} for name, access, parameters in
           re.findall(r'^X\(\w+, "([^"]*)", \w+, (\w+), "([^"]*)",', (SOURCE / "src/core/methods.def").read_text(), flags=re.M)}
ERRORS = {name: status for name, status in
          re.findall(r'^X\(\w+, "([^"]*)", (\w+),', (SOURCE / "src/base/error.def").read_text(), flags=re.M)}
STATUS = dict(re.findall(r'^X\((\w+), (\d+),', (SOURCE / "src/base/status.def").read_text(), flags=re.M))


def section(title):
    match = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,3}} |\Z)", PAGE, flags=re.S | re.M)
    assert match, f"doc/protocol.md has no section {title}"
    return match.group(2)


def words(text):
    return re.findall(r"`([^`]+)`", text)


# ---- the tables ----

def test_every_method_has_its_section_with_its_parameters():
    for name, method in METHODS.items():
        listed = re.search(r"^Parameters: (.*)$", section(name), flags=re.M).group(1)
        expected = [word.strip() for word in method["parameters"].split(",") if word.strip()]
        assert words(listed) == expected and (expected or listed == "none"), name


def test_who_may_is_as_in_the_table_of_methods():
    for access in "READ", "CONTROL":
        row = next(line for line in section("Who may do what").splitlines() if line.startswith(f"| `{access}`"))
        assert set(words(row.split("|")[2])) == {name for name, method in METHODS.items() if method["access"] == access}


def test_every_error_that_travels_is_listed_with_its_exit_status():
    text = section("Errors")
    listed = dict(re.findall(r"^\| `([\w-]+)` +\| (\d+) ", text, flags=re.M))
    silent = set(words(re.search(r"Of the names below(.*?)do not travel", text, flags=re.S).group(1)))
    assert listed == {name: STATUS[status] for name, status in ERRORS.items() if name not in silent}


def test_errors_of_the_methods_are_errors():
    of_all = set(words(re.search(r"its own errors:(.*?)\n\n", section("Methods"), flags=re.S).group(1)))
    assert of_all <= set(ERRORS)
    for name in METHODS:
        listed = re.search(r"^Errors: (.*?)(?:\n\n|\Z)", section(name), flags=re.S | re.M).group(1)
        names = {word for word in words(listed) if word in ERRORS}
        assert names or "see above" in listed, name


def test_errors_in_the_sources_are_in_the_page():
    """What the sockets, kldumpd and the guard's methods can refuse a request with."""
    listed = set(words(re.sub(r"^```.*?^```$", "", PAGE, flags=re.S | re.M)))
    constants = {constant: name for constant, name in
                 re.findall(r'^X\((\w+), "([^"]*)"', (SOURCE / "src/base/error.def").read_text(), flags=re.M)}
    seen = set()
    for path in [*(SOURCE / "src/loop").glob("control*.c"), *(SOURCE / "src/loop").glob("daemon_*.c"),
                 SOURCE / "src/loop/guard_control.c", *(SOURCE / "src/core").glob("run*.c")]:
        for constant in re.findall(r"(?:error_set|error_set_errno|control_refuse|run_reply|prepare_failed|seal_begin)\([^;]*?"
                                   r"\bERROR_(?!INIT|MAX)(\w+)", path.read_text()):
            seen.add(constants[constant])
    assert len(seen) > 10 and seen - {"none"} <= listed


# ---- the examples ----

def blocks():
    return re.findall(r"^```protocol\n(.*?)^```$", PAGE, flags=re.S | re.M)


def as_here(line, place, ports):
    """The page's folders, command and ports, as they are in this test."""
    line = line.replace("/data/", f"{place.folder}/").replace("/home/alice", str(place.folder))
    line = line.replace('"python3"', json.dumps(str(place.folder / "bin/python3")))
    variables = json.dumps([f"{key}={value}" for key, value in place.environment.items()])
    line = line.replace('["PATH=/usr/bin:/bin","HOME=%s"]' % place.folder, variables)
    return re.sub(r'"(3000\d)"', lambda match: json.dumps(ports.setdefault(match.group(1), str(free_port()))), line)


def fits(told, found, where="answer"):
    """`found` has the shape that the page tells."""
    if isinstance(told, dict):
        assert isinstance(found, dict), f"{where}: {found!r}"
        wanted = {key for key in told if key != "..."}
        assert wanted <= set(found) and ("..." in told or wanted == set(found)), f"{where}: {sorted(found)}, told: {sorted(wanted)}"
        for key in wanted:
            fits(told[key], found[key], f"{where}.{key}")
    elif isinstance(told, list):
        assert isinstance(found, list) and bool(told) == bool(found), f"{where}: {found!r}"
        for number, element in enumerate(found):
            fits(told[min(number, len(told) - 1)], element, f"{where}.{number}")
    elif isinstance(told, str) and ANY.fullmatch(told):
        assert isinstance(found, str), f"{where}: {found!r}"
    elif isinstance(told, (str, bool)) or told is None or where.endswith((".id", ".code", ".status")):
        assert found == told, f"{where}: {found!r}, told: {told!r}"
    else:
        assert isinstance(found, (int, float)) and not isinstance(found, bool), f"{where}: {found!r}"


@pytest.fixture(scope="module")
def place():
    with Place() as found:
        found.start_daemon()
        yield found


def guard_pid(place):
    return json.loads((place.runtime / "runs/demo/record.json").read_text())["run"]["guard_pid"]


def test_every_example_is_answered_as_the_page_says(place):
    shown, ports = set(), {}
    for block in blocks():
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2 * PATIENCE_S)
            client.connect(str(place.runtime / "control"))
            stream = client.makefile("rb")
            for line in block.splitlines():
                if line.startswith("> "):
                    client.sendall(as_here(line[2:], place, ports).encode() + b"\n")
                    shown |= {json.loads(line[2:])["method"]}
                else:
                    assert line.startswith("< "), line
                    answer = stream.readline()
                    assert answer, f"no answer: {line}"
                    fits(json.loads(line[2:]), json.loads(answer))
            stream.close()
        if '"state":"armed"' in block:  # list tells what the guard has said at the register, a moment later
            wait_for(lambda: json.loads(place.ctl("list", "--json").stdout)["state"] != "verifying", what="the packet")
        if '"state":"ended"' in block:
            wait_for(lambda: not process_is_alive(guard_pid(place)), what="the end of the guard")
    assert shown >= set(METHODS)
    with place.control() as control:  # of the run that the examples leave behind
        run = control.call("status", run="demo")["run"]
    table = {}
    for row in re.findall(r"^\| (`.*?) +\|(.*)\|$", section("The run object"), flags=re.M):
        table.update({word: row[1] for word in words(row[0])})
    assert set(table) == set(run) | {"told_age_ms"}
    for member in "proofs", "costs", "space":
        assert set(run[member]) <= set(words(table[member])), member
    assert set(run["seals"][0]) == set(words(table["seals"]))
