"""The admin's rules: in the wrapper, through kldumpd, and read again at HUP. A file of its own stands for the machine's
(KLDUMP_RULES, kldumpd --rules)."""
import json
import os
import re
import signal
import subprocess

import pytest

import kldump_programs
from guarded import PYTHON, wait_for
from kldump_programs import BUILD

MIB, GIB = 1 << 20, 1 << 30
OTHER = 4711  # a user who is in no file


def write(path, text):
    path.write_text(text)
    path.chmod(0o644)
    return path


# ---- the wrapper

def test_what_the_wrapper_refuses(place, standin):
    """Status 88 with the rule, before anything is launched or made."""
    disk = place.small_disk("512M")
    elsewhere = place.folder / "elsewhere"
    path = place.folder / "k.conf"
    limits = f"[filesystem {disk}]\nfloor = 25%\n[limits]\nfolders = {disk}\n"
    config = write(place.folder / "own", "[run]\nfloor = 100M\n")
    for name, (text, options, words) in {
        "floor": (limits, ["--floor", "64M"], (f"floor 64.0 MiB was asked for, and [filesystem {disk}] of {path} wants 128.0 MiB",)),
        "config": (limits, ["--config", config], ("floor 100.0 MiB was asked for",)),
        "room": ("[limits]\nfloor = 90%\n", [], (f"floor 460.8 MiB ([limits] of {path})", "512.0 MiB", "ask the admin")),
        "folder": (limits, ["--dir", elsewhere / "d"], (f"{path}: dump folder {elsewhere}/d", f"({disk})", "--dir")),
        "dots": (limits, ["--dir", disk / "x/../../elsewhere"], (f"dump folder {elsewhere}",)),
        "broken": ("[limits]\nfloor = 1G\nfloo = 2G\n", [], (f"{path} line 3: unknown key 'floo'", "no run is guarded while")),
        "missing": (None, [], (f"KLDUMP_RULES: the admin's rules {path}: No such file",)),
    }.items():
        if text is None:
            path.unlink()
        else:
            write(path, text)
        directory = [] if "--dir" in options else ["--dir", disk / "d"]
        run = place.run(standin, name=name, arguments=["run", "--name", name, *directory, *options, "--", *place.command(standin)],
                        environment={"KLDUMP_RULES": str(path)})
        output = run.exits_with(88)
        assert all(word in output for word in words), output
        assert "launch:" not in output and not run.folder.exists()
        assert not elsewhere.exists()
    write(path, limits).chmod(0o666)
    run = place.run(standin, name="mode", environment={"KLDUMP_RULES": str(path)})
    assert "can be written by others (mode 0666)" in run.exits_with(88)


def test_the_wrapper_takes_floor_rate_and_defaults_of_the_rules(place, standin):
    disk = place.small_disk("100G")  # room above the floor: the soft level is raised where a kill was measured to be slow
    path = write(place.folder / "k.conf", f"[filesystem {disk}]\nfloor = 25%\nworst_rate = 11G\n[defaults]\nsoft = 80G\ndir = {disk}/d\n"
                                          "budget = 9M\nstop_timeout = 7s\n")
    run = place.run(standin, directory=disk / "d", environment={"KLDUMP_RULES": str(path)},
                    arguments=["run", "--name", "t", "--budget", "5M", "--", *place.command(standin)]).armed()
    found = run.record["run"]
    assert (found["space"]["floor_bytes"], found["space"]["soft_bytes"], found["space"]["budget_bytes"]) == (25 * GIB, 80 * GIB, 5 * MIB)
    texts = [event["text"] for event in run.record["events"]]
    assert f"floor 25.0 GiB: [filesystem {disk}] of {path}; without it 10.0 GiB" in texts, texts
    assert f"worst rate 11.0 GiB/s: [filesystem {disk}] of {path}; without it 10.0 GiB/s" in texts
    least = 25 * GIB + 11 * GIB * 6 // 1000  # the kill level stands on the raised rate
    assert found["space"]["act_bytes"] >= least
    place.ctl("stop", "t")
    run.exits_with(0)


# ---- kldumpd

@pytest.fixture
def box():
    with kldump_programs.Place() as found:
        found.rules = found.folder / "k.conf"
        yield found


def begin(box, text):
    write(box.rules, text)
    return box.start_daemon(arguments=["--rules", box.rules])


def reload(box, text=None, lines=1):
    """So many lines that it says about it; one too many would be the first of the next."""
    if text is not None:
        write(box.rules, text)
    box.daemon.send_signal(signal.SIGHUP)
    return [box.daemon.stderr.readline().decode().rstrip("\n") for _ in range(lines)]


def start(box, name, *options, status=0):
    done = box.ctl("start", "--name", name, "--dir", box.folder / f"dumps-{name}", *options, "--", *box.command(), check=False)
    assert done.returncode == status, done.stderr
    return done.stderr


def floor_of(box, name):
    return json.loads(box.ctl("status", "--json", name).stdout)["runs"][0]["space"]["floor_bytes"]


def test_a_bad_file_at_the_start_is_fatal(box):
    for text, status, words in (("[limits]\nfloor = 5\n", 2, f"kldumpd: {box.rules} line 2: floor: '5'"),
                                ("[access]\nusers = no-such-user-1\n", 2, "line 2: there is no user 'no-such-user-1'")):
        assert words in begin(box, text)
        assert box.daemon.wait(10) == status
        assert not (box.runtime / "control").exists()
        box.daemon.stderr.close()
    box.rules.chmod(0o666)
    assert "can be written by others" in box.start_daemon(arguments=["--rules", box.rules])
    assert box.daemon.wait(10) == 88


def test_bad_options_of_kldumpd(box):
    """Each names the option, the value and what was expected, with a status that no service manager tries again."""
    usual = re.search(r"in place of (\S+);", subprocess.run([BUILD / "kldumpd", "-h"], stdout=subprocess.PIPE, text=True, check=True).stdout)[1]
    usage = "; usage: kldumpd [--rules FILE], 'kldumpd --help' says more\n"
    for words, said in ((["--rules", "/missing"], "--rules: the admin's rules /missing: No such file or directory; give the path of a file, "
                                                  f"or leave --rules out for {usual}\n"),
                        (["--rules=/etc"], "--rules: /etc is not a regular file; give the path of a file, or leave --rules out for "
                                           f"{usual}\n"),
                        (["--rules", ""], f"the admin's rules: '' is no absolute path; expected one such as {usual}\n"),
                        (["--rules", "a.conf"], f"the admin's rules: 'a.conf' is no absolute path; expected one such as {usual}\n"),
                        (["--rules"], "--rules needs a file after it" + usage),
                        (["--rules=/a", "--rules", "/b"], "--rules is given twice" + usage),
                        (["--bogus"], "unknown option '--bogus'" + usage), (["-x"], "unknown option '-x'" + usage),
                        (["--rules", "/a", "x"], "'x' is one argument too many" + usage),
                        (["--rules", "/a", "--version"], "'--version' stands alone" + usage)):
        assert box.start_daemon(arguments=words) == f"kldumpd: {said}", words
        assert box.daemon.wait(10) == 2, words
        assert box.daemon.stderr.read() == b""
        box.daemon.stderr.close()


def test_rules_through_kldumpd_and_read_again(box):
    assert "listening" in begin(box, "[limits]\nfloor = 70M\nruns_per_user = 1\n")
    assert f"floor 64.0 MiB was asked for, and [limits] of {box.rules} wants 70.0 MiB" in start(box, "a", "--floor", "64M", status=88)
    start(box, "a")  # the refused one does not count
    assert floor_of(box, "a") == 70 * MIB or floor_of(box, "a") > 70 * MIB  # the default of this disk may be higher
    refused = start(box, "b", status=88)
    assert f"has 1 live run, and runs_per_user = 1 of {box.rules} allows no more" in refused
    assert reload(box) == ["kldumpd: rules unchanged"]
    good = "[limits]\nruns_per_user = 2\nfloor = 80M\n[filesystem /proc]\nfloor = 5%\n"
    assert reload(box, good, 3) == ["kldumpd: rules: limits.runs_per_user: 1 -> 2", "kldumpd: rules: limits.floor: 70M -> 80M",
                                 "kldumpd: rules: filesystem.floor of /proc: none -> 5%"]
    start(box, "b", "--floor", "80M")
    # all or nothing: what is right in it counts no more than what is wrong
    assert reload(box, "[limits]\nruns_per_user = 9\n\n\n\nflor = 1G\n") == [
        f"kldumpd: {box.rules} line 6: unknown key 'flor'; section [limits] has folders, runs_per_user, floor, worst_rate; the old rules stay"]
    assert "runs_per_user = 2" in start(box, "c", status=88)
    assert reload(box, "[access]\nusers = no-such-user-1\n") == [
        f"kldumpd: {box.rules} line 2: there is no user 'no-such-user-1'; the old rules stay"]
    box.rules.unlink()
    assert reload(box) == [f"kldumpd: the admin's rules {box.rules}: No such file or directory; the old rules stay"]
    assert reload(box, good) == ["kldumpd: rules unchanged"]
    assert floor_of(box, "a") >= 70 * MIB
    box.ctl("stop", "a")
    guard = json.loads(box.ctl("status", "--json", "a").stdout)["runs"][0]["guard_pid"]
    wait_for(lambda: not kldump_programs.process_is_alive(guard), 10, "the end of the guard, which counts")
    wait_for(lambda: box.ctl("list", "--json").stdout.count('"ended"') > 0, 10, "kldumpd's word about it")
    start(box, "c")  # one of two has ended


@pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to be another user")
def test_who_is_refused_is_told_by_which_rule(box):
    for folder in (box.folder, box.runtime):
        folder.chmod(0o755)
    begin(box, "[access]\nusers = 0\nadmin_groups = 4712\n")
    program = ("import json,socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nf=s.makefile('rwb')\n"
               "for m in ('hello','list'):\n f.write(json.dumps({'jsonrpc':'2.0','id':1,'method':m,'params':{'version':1} if m=='hello' else {}}).encode()+b'\\n')\n"
               " try: f.flush()\n except BrokenPipeError: pass\n a=f.readline().decode()\n print(a,end='')\n if 'error' in a: break\n")

    def ask(groups=()):
        return subprocess.run([PYTHON, "-c", program, box.runtime / "control"], user=OTHER, group=OTHER, extra_groups=groups,
                              stdout=subprocess.PIPE, text=True, timeout=30, check=False).stdout
    assert f"[access] of {box.rules} allows users 0" in ask()
    assert '"runs":[' in ask([4712]).replace(" ", "")
    assert reload(box, f"[access]\nusers = 0 {OTHER}\nadmin_groups = 4712\n") == [f"kldumpd: rules: access.users: 0 -> 0 {OTHER}"]
    assert '"runs":[' in ask().replace(" ", "")


def test_a_path_that_hangs_holds_nothing_up(place, standin):
    """The rules are read by a thread: requests are answered meanwhile, and the end does not wait for it."""
    disk, faults = place.fuse_disk()
    path = write(place.folder / "k.conf", f"[filesystem {disk}/x]\nfloor = 1G\n")
    with kldump_programs.Place() as box:
        box.rules = path
        assert "listening" in box.start_daemon(arguments=["--rules", path])
        (faults / "hang").touch()
        try:
            box.daemon.send_signal(signal.SIGHUP)
            box.daemon.send_signal(signal.SIGHUP)
            with box.control() as control:
                assert control.call("list")["runs"] == []
            box.daemon.send_signal(signal.SIGTERM)
            # a thread that hangs in the kernel keeps the process; whoever comes next finds socket and lock free
            wait_for(lambda: not (box.runtime / "control").exists(), 5, "the end of the service")
            old = box.daemon
            wait_for(lambda: "listening" in box.start_daemon(), 5, "the next kldumpd")
            assert box.kill_daemon(signal.SIGTERM) == 0
        finally:
            (faults / "hang").unlink()
        assert old.wait(10) == 0
        old.stderr.close()
