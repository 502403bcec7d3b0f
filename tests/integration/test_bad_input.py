"""What a person, a script or a broken server may hand to kldumpctl run: each gets its status and a message that names
the thing, and nothing is left behind (the fixture `place` looks for processes, ports, cgroups and folders)."""
import json
import os
import subprocess
import threading

import pytest
from guarded import CTL, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, for a small filesystem or another user")


def refused(place, run, status, *words):
    """Before anything was started: one line, no record, the status."""
    output = run.exits_with(status)
    assert len(output.splitlines()) == 1, output
    assert not [word for word in words if word not in output], output
    assert not (run.folder / "record.json").exists()
    return output


def last_line(output):
    """What the run says about its end, without the server's last lines below it."""
    return [line for line in output.splitlines() if line.startswith("kldump:") and "] error: " in line][-1]


# ---- the folder

def a_file(place):
    (place.folder / "file").write_text("x")
    return place.folder / "file"


def below_a_file(place):
    return a_file(place) / "dumps"


def a_link_to_nowhere(place):
    (place.folder / "link").symlink_to("nowhere")
    return place.folder / "link"


def a_link_to_itself(place):
    (place.folder / "link").symlink_to("link")
    return place.folder / "link"


def in_proc(_place):
    return "/proc/self/dumps"


def a_long_name(_place):
    return "/tmp/" + "x" * 300


FOLDERS = [(a_file, 88, "Not a directory"), (below_a_file, 88, "Not a directory"), (a_link_to_nowhere, 88, "No such file"),
           (a_link_to_itself, 88, "Too many levels of symbolic links"), (in_proc, 88, "No such file"),
           (a_long_name, 88, "File name too long")]


@pytest.mark.parametrize("make, status, reason", FOLDERS, ids=lambda value: getattr(value, "__name__", ""))
def test_folders_that_cannot_be(place, standin, make, status, reason):
    folder = make(place)
    output = refused(place, place.run(standin, directory=folder), status, str(folder)[:60], reason, "--dir")
    assert output.startswith("kldump: dump folder ")


@pytest.mark.parametrize("folder, words", [("/tmp/" + ("x" * 200 + "/") * 25, "longer than 3000 bytes"),
                                           ("a\nb", "control character"), ("a\x1b[31mb", "control character")],
                         ids=["too-long", "newline", "escape"])
def test_names_of_folders_that_no_record_could_show(place, standin, folder, words):
    output = refused(place, place.run(standin, directory=folder), 125, "--dir", words)
    assert "\x1b" not in output


@pytest.mark.parametrize("given, made", [("rel/dumps", "rel/dumps"), ("a/b/../c", "a/c"), ("link", "target"), ("new/", "new")])
def test_folders_that_are_taken(place, standin, given, made):
    """Relative, missing with its parents, a link: the real path is shown, told to the server and used."""
    (place.folder / "target").mkdir()
    (place.folder / "link").symlink_to("target")
    output = place.run(standin, directory=given, faults="exit-loading").exits_with(81)
    path = place.folder / made
    assert f"dumps in {path}:" in output.splitlines()[0]
    assert f"DUMPER_DIR={path} " in output
    assert (path / "t.kldump-run.json").exists()


def test_a_folder_with_something_in_it(place, standin):
    folder = place.folder / "used"
    (folder / "half a dump").mkdir(parents=True)
    refused(place, place.run(standin, directory=folder), 88, str(folder), "'half a dump'", "--dir")
    assert os.listdir(folder) == ["half a dump"]


@needs_root
def test_folders_that_an_ordinary_user_may_not_write(place, standin):
    place.copy_programs()
    standin.python(place)
    for path in (place.folder, place.runtime):
        os.chown(path, 65534, 65534)
    place.folder.chmod(0o755)
    place.before = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    theirs = place.folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, 0, 0)
    for mode, folder in ((0o755, theirs), (0o755, theirs / "dumps"), (0o700, theirs / "dumps")):
        theirs.chmod(mode)
        refused(place, place.run(standin, directory=folder), 88, f"dump folder {folder}: Permission denied", "--dir")
    assert os.listdir(theirs) == []


@needs_root
def test_full_disks(place, standin):
    disk = place.small_disk("256M")
    subprocess.run(["fallocate", "-l", "250M", str(disk / "other")], check=True)
    refused(place, place.run(standin, directory=disk / "dumps"), 88, str(disk), "6.0 MiB free", "floor 64.0 MiB", "--floor", "--dir")
    (disk / "other").unlink()
    refused(place, place.run(standin, directory=disk / "dumps", floor="1G"), 88, "floor 1.0 GiB", "256.0 MiB")


@needs_root
def test_a_disk_that_cannot_be_written(place, standin):
    disk = place.small_disk("256M")
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    refused(place, place.run(standin, directory=disk / "dumps"), 88, "Read-only file system", "--dir")
    refused(place, place.run(standin, directory=disk), 88, "Read-only file system", "--dir")


# ---- the command

def script(place, text, mode=0o755):
    path = place.folder / "serve.sh"
    path.write_bytes(text)
    path.chmod(mode)
    return [str(path)]


COMMANDS = [
    ("missing", lambda place: ["/nonexistent/program"], 127, ["'/nonexistent/program': No such file", "check the path"]),
    ("not-on-the-path", lambda place: ["no-such-program"], 127, ["'no-such-program': No such file"]),
    ("empty-word", lambda place: [""], 127, ["'': No such file"]),
    ("folder", lambda place: ["/tmp"], 126, ["'/tmp': Permission denied", "may execute"]),
    ("not-executable", lambda place: script(place, b"#!/bin/sh\n", 0o644), 126, ["serve.sh': Permission denied", "may execute"]),
    ("no-first-line", lambda place: script(place, b"echo hello\n"), 126, ["Exec format error", "#!/bin/sh"]),
    ("no-interpreter", lambda place: script(place, b"#!/nonexistent/sh\n"), 127, ["No such file", "the program in its first line"]),
    ("ends-well-at-once", lambda place: ["/bin/true"], 81, ["while loading", "ended by itself with status 0"]),
    ("ends-badly-at-once", lambda place: ["/bin/false"], 81, ["while loading", "status 1"]),
    ("kills-itself", lambda place: script(place, b"#!/bin/sh\nkill -SEGV $$\n"), 81, ["while loading", "signal 11"]),
]


@pytest.mark.parametrize("make, status, words", [row[1:] for row in COMMANDS], ids=[row[0] for row in COMMANDS])
def test_commands_that_come_to_nothing(place, standin, make, status, words):
    run = place.run(standin, command=make(place))
    line = last_line(run.exits_with(status))
    assert not [word for word in ["start-failed", *words] if word not in line], line
    ended = run.record["run"]
    assert (ended["state"], ended["outcome"], ended["exit_status"]) == ("ended", "start-failed", status)


@pytest.mark.parametrize("how", ["random", "fault"])
def test_binary_output(place, standin, how):
    """What kldump says itself stays text: a terminal must not obey a line that it repeats, and the record stays JSON."""
    if how == "random":
        run = place.run(standin, command=script(place, b"#!/bin/sh\nprintf '\\033]0;mine\\007\\000\\377\\n'\nhead -c 30000 /dev/urandom\nexit 3\n"))
    else:
        run = place.run(standin, faults="binary-output,exit-loading")
    run.exits_with(81)
    repeated = [line for line in run.output_path.read_bytes().split(b"\n") if line.startswith(b"kldump: ") and b"  | " in line]
    assert repeated and not [line for line in repeated if set(line) & set(range(32)) or b"\x7f" in line]
    assert json.loads((run.folder / "record.json").read_bytes().decode("utf-8"))["run"]["outcome"] == "start-failed"
    assert b"\x1b]0;" in (run.folder / "server.log").read_bytes()  # the log has the bytes as they came
    for arguments in (["events", "t"], ["status", "t"], ["events", "t", "--json"]):
        done = subprocess.run([CTL, *arguments], env=place.environment(), stdout=subprocess.PIPE, check=True)
        assert not set(done.stdout) & (set(range(32)) - set(b"\n\t"))
        done.stdout.decode("utf-8")


def test_binary_output_of_a_server_that_goes_on(place, standin):
    run = place.run(standin, faults="binary-output").armed()
    assert json.loads(place.ctl("status", "t", "--json").stdout)["runs"][0]["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)


# ---- what the server answers

ARMED_TOO_LATE = "start-timeout: not ready after 2 s"
ANSWERS = [
    # kind, route, status, what the line must say
    ("text", "/dumper/get_state", 82, ["POST /dumper/get_state", "HTTP 200", "a value is expected"]),
    ("empty", "/dumper/get_state", 82, ["POST /dumper/get_state", "it ends where a value is expected"]),
    ("binary", "/dumper/get_state", 82, ["not valid UTF-8"]),
    ("deep", "/dumper/get_state", 82, ["nested deeper than"]),
    ("status", "/dumper/get_state", 82, ["POST /dumper/get_state: HTTP 500"]),
    ("redirect", "/dumper/get_state", 82, ["HTTP 307, a redirect", "--port"]),
    ("huge", "/dumper/get_state", 81, [ARMED_TOO_LATE, "last answer: POST /dumper/get_state", "larger than 2097152 bytes"]),
    ("cut", "/dumper/get_state", 81, [ARMED_TOO_LATE, "last answer: POST /dumper/get_state", "bytes remaining"]),
    ("close", "/dumper/get_state", 81, [ARMED_TOO_LATE, "last answer: POST /dumper/get_state", "Empty reply"]),
    ("slow", "/dumper/get_state", 81, [ARMED_TOO_LATE, "it has not answered what the dumper's settings and counters are"]),
    ("endless", "/dumper/get_state", 81, [ARMED_TOO_LATE, "last answer: POST /dumper/get_state", "larger than 2097152 bytes"]),
    ("text", "/server_info", 82, ["GET /server_info: HTTP 200", "a value is expected"]),
    ("huge", "/server_info", 82, ["GET /server_info", "larger than 2097152 bytes"]),
    ("redirect", "/server_info", 82, ["GET /server_info: HTTP 307, a redirect"]),
    ("slow", "/server_info", 81, [ARMED_TOO_LATE, "it has not answered what its settings are"]),
    ("text", "/generate", 82, ["POST /generate: HTTP 200"]),
    ("status", "/generate", 82, ["POST /generate: HTTP 500"]),
    ("redirect", "/health", 81, [ARMED_TOO_LATE, "last answer: GET /health: HTTP 307"]),
    ("huge", "/health", 81, [ARMED_TOO_LATE, "last answer: GET /health", "larger than"]),
    ("slow", "/health", 81, [ARMED_TOO_LATE, "it has not answered whether it is up"]),
    ("endless", "/health", 81, [ARMED_TOO_LATE, "last answer: GET /health", "larger than"]),
]


@pytest.mark.parametrize("kind, route, status, words", ANSWERS, ids=[f"{row[0]}:{row[1]}" for row in ANSWERS])
def test_answers_that_are_none(place, standin, kind, route, status, words):
    late = status == 81
    run = place.run(standin, faults=f"bad-answer={kind}:{route}", options=["--start-timeout", "2s" if late else "20s"])
    line = last_line(run.exits_with(status))
    assert not [word for word in words if word not in line], line
    assert "\ufffd" not in line and line.isprintable()


# ---- the config file

CONFIGS = [
    ("unknown-key", b"[run]\nflor = 5G\n", ["line 2", "unknown key 'flor'"]),
    ("unknown-section", b"[runs]\nfloor = 64M\n", ["line 1", "unknown section"]),
    ("twice", b"[run]\nfloor = 64M\nfloor = 65M\n", ["line 3", "'floor' was set in line 2 already"]),
    ("byte-order-mark", b"\xef\xbb\xbf[run]\nfloor = 64M\n", ["line 1", "byte order mark"]),
    ("no-value", b"[run]\nfloor\n", ["line 2", "KEY = VALUE"]),
    ("before-a-section", b"floor = 64M\n", ["line 1", "[run]"]),
    ("indented", b"[run]\n floor = 64M\n", ["line 2", "indented"]),
    ("nul", b"[run]\nfloor = 64M\0\n", ["line 2", "NUL"]),
    ("latin-1", b"[run]\n# caf\xe9\n", ["line 2", "column 6", "UTF-8"]),
    ("long-line", b"[run]\n#" + b"x" * 200 + b"\n", ["line 2", "longer than 180 bytes"]),
    ("two-megabytes", b"[run]\n#" + b"x" * (2 << 20) + b"\n", ["65536 bytes"]),
    ("bad-size", b"[run]\nsoft = 5\n", ["line 2", "unit"]),
    ("binary", bytes(range(256)), ["line 1"]),
]


@pytest.mark.parametrize("content, words", [row[1:] for row in CONFIGS], ids=[row[0] for row in CONFIGS])
def test_config_files_that_are_refused(place, standin, content, words):
    config = place.folder / "config"
    config.write_bytes(content)
    output = place.run(standin, options=["--config", config]).exits_with(125)
    assert not [word for word in [str(config), *words] if word not in output], output
    assert all(line.isprintable() for line in output.splitlines())


@pytest.mark.parametrize("content", [b"[run]\r\nstop_timeout = 7s\r\n", b"[run]\nstop_timeout = 7s", b"\n\n[run]\nstop_timeout=7s\n\n; end\n",
                                     b"[run]\r\nstop_timeout = 7s"], ids=["crlf", "no-final-newline", "empty-lines", "crlf-cut"])
def test_config_files_that_are_taken(place, standin, content):
    config = place.folder / "config"
    config.write_bytes(content)
    run = place.run(standin, options=["--config", config], faults="exit-loading")
    run.exits_with(81)
    assert run.record["settings"]["stop_timeout"] == "7000ms"


def test_a_config_file_that_is_none(place, standin):
    for path, words in ((place.folder / "nowhere", "No such file"), (place.folder, "not a regular file")):
        output = place.run(standin, options=["--config", path]).exit()
        assert output in (125, 87, 88)
        assert str(path) in place.runs[-1].output and words in place.runs[-1].output


def test_an_endless_config_file(place, standin):
    output = place.run(standin, options=["--config", "/dev/zero"])
    assert output.exit(20) != 0
    assert "/dev/zero" in output.output


# ---- names

@pytest.mark.parametrize("name", ["a/b", "a\nb", "x" * 300, "..", "-x", "", "a b"])
def test_names_of_runs(place, standin, name):
    run = place.run(standin, arguments=["run", f"--name={name}", "--dir", place.folder / "d", "--floor", "64M", "--", *place.command(standin)])
    output = run.exits_with(125)
    assert "--name" in output and all(line.isprintable() for line in output.splitlines())
    assert not (place.runtime / "runs").exists()


def test_two_runs_of_one_name_at_once(place, standin):
    """One of them is refused with the name, whichever comes second; the other is not disturbed."""
    runs = [place.run(standin, name="same", directory=place.folder / f"d{number}") for number in (1, 2)]
    wait_for(lambda: any(run.process.poll() is not None for run in runs), 30, "one of them refused")
    [loser] = [run for run in runs if run.process.poll() is not None]
    assert loser.exit() == 88
    assert "a run named same is live" in loser.output and "kldumpctl stop same" in loser.output
    place.runs.remove(loser)
    [winner] = place.runs
    winner.armed()
    place.ctl("stop", "same")
    winner.exits_with(0)


def test_many_bad_starts_leave_the_runtime_folder_as_it_was(place, standin):
    """Refused ones in parallel: no folder of a run, no lock that stays."""
    def start(number):
        subprocess.run([CTL, "run", "--name", f"n{number}", "--dir", str(a_file_at(place, number)), "--floor", "64M", "--", "python3"],
                       env=place.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    threads = [threading.Thread(target=start, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not list(place.runtime.glob("runs/*"))


def a_file_at(place, number):
    path = place.folder / f"file{number}"
    path.write_text("x")
    return path


# ---- the port

def test_a_port_that_is_none(place, standin):
    for port in ("0", "65536", "-1", "http", ""):
        run = place.run(standin, command=[*place.command(standin)[:-3], "--port", port])
        refused(place, run, 80, "--port", port, "1 to 65535")
