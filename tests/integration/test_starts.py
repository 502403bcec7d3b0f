"""Starts that are refused or fail, on both servers: the status, the values, the cause."""
import os
import shlex
import shutil
import signal
import socket
import subprocess

import guarded
import pytest
from guarded import CTL, GONE_S, PYTHON, is_alive, processes_of, wait_for

CONTRADICTIONS = [
    ({"DUMPER_ENABLE": "1"}, [], ["DUMPER_ENABLE=1", "DUMPER_ENABLE=0"]),
    ({"DUMPER_SERVER_PORT": "40000"}, [], ["DUMPER_SERVER_PORT=40000", "DUMPER_SERVER_PORT=reuse"]),
    ({"DUMPER_NON_INTRUSIVE_MODE": "core"}, [], ["DUMPER_NON_INTRUSIVE_MODE=core", "DUMPER_NON_INTRUSIVE_MODE=all"]),
    ({"DUMPER_DIR": "/elsewhere"}, [], ["DUMPER_DIR=/elsewhere", "--dir"]),
    ({"DUMPER_FILTER": "layer_id < 3"}, [], ["DUMPER_FILTER=layer_id < 3", "layer_id is None or layer_id < 3"]),
    ({"DUMPER_EXP_NAME": "../up"}, [], ["DUMPER_EXP_NAME=../up", "leaves the folder"]),
    ({"DUMPER_CLEANUP_PREVIOUS": "1"}, [], ["DUMPER_CLEANUP_PREVIOUS=1", "DUMPER_CLEANUP_PREVIOUS=0"]),
    ({}, ["--cuda-graph-bs-decode", "8"], ["--cuda-graph-bs-decode 8", "asks for graphs"]),
    ({}, ["--cuda-graph-backend-prefill", "full"], ["--cuda-graph-backend-prefill full", "disabled"]),
    ({}, ["--cuda-graph-backend-decode=full"], ["--cuda-graph-backend-decode full", "disabled"]),
    ({}, ["--enable-torch-compile"], ["--enable-torch-compile"]),
    ({}, ["--debug-tensor-dump-output-folder", "/tmp/x"], ["--debug-tensor-dump-output-folder /tmp/x"]),
    ({}, ["--dp-size", "2"], ["--dp-size 2", "--dp-size 1"]),
]


@pytest.mark.parametrize("environment, flags, named", CONTRADICTIONS, ids=lambda value: str(value)[:40])
def test_contradictions_are_refused_with_both_values(place, standin, environment, flags, named):
    run = place.run(standin, environment=environment, flags=flags)
    output = run.exits_with(80)
    assert not [word for word in named if word not in output], output
    assert len(output.splitlines()) == 1


@pytest.mark.parametrize("environment, flags", [({"DUMPER_ENABLE": "1"}, []), ({}, ["--cuda-graph-backend-prefill", "full"])],
                         ids=["environment", "flag"])
def test_contradiction_to_the_server_at_hand(place, server, environment, flags):
    place.run(server, environment=environment, flags=flags).exits_with(80)


def test_settings_that_agree_are_taken(place, standin):
    run = place.run(standin, environment={"DUMPER_ENABLE": "0", "DUMPER_SERVER_PORT": "reuse", "DUMPER_NON_INTRUSIVE_MODE": "all"},
                    flags=["--disable-cuda-graph"]).armed()
    place.ctl("stop", "t")
    run.exits_with(0)


def test_releases_without_hooks_are_refused(place, standin):
    output = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": "0.5.9"}).exits_with(80)
    assert "0.5.9" in output and "0.5.10" in output


@pytest.mark.parametrize("version, flags", [("0.5.10", "--disable-piecewise-cuda-graph"), ("0.5.20", "--disable-prefill-cuda-graph")])
def test_flags_in_the_spelling_of_the_release(place, standin, version, flags):
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": version}).armed()
    assert flags in run.status()["command"]
    assert run.status()["sglang_version"] == version
    place.ctl("stop", "t", "--now")
    run.exits_with(0)


# ---- the server does not come up

def test_a_second_launch_that_fails(place, standin):
    """The first try does not know a flag and leaves a child; for the second there is no keeper any more."""
    place.copy_programs()
    fake = place.folder / "python3"
    fake.write_text("#!/bin/sh\nif [ \"$1\" = -c ]; then echo 0.5.23; exit 0; fi\n"
                    f"rm '{place.folder}/programs/kldump-keeper'\nsleep 60 &\n"
                    "echo 'launch_server.py: error: unrecognized arguments: --disable-prefill-cuda-graph' >&2\nexit 2\n")
    fake.chmod(0o755)
    command = [str(fake), "-m", "sglang.launch_server", "--model-path", "x", "--port", str(place.port())]
    output = place.run(standin, command=command).exits_with(81)
    assert "launched again" in output
    assert "start-failed: kldump-keeper is neither" in output


def test_bad_model_path(place, server):
    model = place.folder / "no-such-model"
    run = place.run(server, command=place.command(server, model=model),
                    faults="exit-loading" if server.name == "standin" else "")
    output = run.exits_with(81, 120)
    assert "the server's last lines:" in output
    assert "start-failed" in output
    if server.name == "real":
        assert "no-such-model" in output[output.rindex("start-failed"):]


def test_bad_flag(place, server):
    output = place.run(server, flags=["--no-such-flag"]).exits_with(81, 120)
    end = output[output.rindex("start-failed"):]
    assert "unrecognized arguments" in output or "does not know" in output
    assert "--no-such-flag" in end and "status 2" in end


def test_main_killed_while_loading(place, server):
    run = place.run(server, environment={"KLDUMP_STANDIN_LOAD_MS": "20000"}).wait_state("loading", 20)
    wait_for(lambda: "server_args=" in run.output or "server_args=" in run.log, 60, "the first lines")
    os.kill(run.status()["pid"], signal.SIGKILL)
    output = run.exits_with(81)
    assert "signal 9" in output and "the server's last lines:" in output


@pytest.mark.parametrize("faults, words", [
    ("crash-loading", ["signal 9", "likely cause"]),
    ("exit-loading=3", ["status"]),
    ("orphans", ["signal 9"]),
    ("fired-up-then-exit", ["status 3", "port was taken"]),
    ("bad-flag", ["unrecognized", "--disable-prefill-cuda-graph"]),
])
def test_faults_while_loading(place, standin, faults, words):
    output = place.run(standin, faults=faults, environment={"KLDUMP_STANDIN_LOAD_MS": "500"}).exits_with(81)
    assert not [word for word in words if word not in output], output[-3000:]
    assert "the server's last lines:" in output


@pytest.mark.parametrize("faults, state", [("hang-loading", "loading"), ("hang-starting", "warming")])
def test_a_start_that_hangs_ends_at_its_limit(place, standin, faults, state):
    output = place.run(standin, faults=faults, options=["--start-timeout", "3s"]).exits_with(81, 30)
    assert "start-timeout" in output and f"it is {state}" in output


def test_port_taken_before_the_start(place, standin):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        output = place.run(standin, command=place.command(standin, port=port)).exits_with(88)
    assert f"port {port}" in output and f"pid {os.getpid()}" in output


def test_port_taken_while_loading(place, standin):
    """The server of somebody else must not be taken for ours, nor get our probe."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_LOAD_MS": "4000"}).wait_state("loading", 20)
    port = run.status()["port"]
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", port))
        holder.listen()
        holder.settimeout(0.1)
        output = run.exits_with(81)
        with pytest.raises(TimeoutError):
            holder.accept()
    assert f"pid {os.getpid()}" in output


def test_interrupt_while_loading(place, server):
    run = place.run(server, terminal=True, environment={"KLDUMP_STANDIN_LOAD_MS": "20000"}).wait_state("loading", 20)
    run.type("\x03")
    run.exits_with(130)


def test_stop_while_loading_is_not_armed(place, standin):
    run = place.run(standin, environment={"KLDUMP_STANDIN_LOAD_MS": "20000"}).wait_state("loading", 20)
    place.ctl("stop", "t", status=None)
    run.exits_with(81)


# ---- the command and its folders

@pytest.mark.parametrize("command, status", [(["/nonexistent/python3", "-m", "sglang.launch_server"], 127),
                                             (["/etc/passwd", "-m", "sglang.launch_server"], 126)])
def test_command_that_cannot_run(place, standin, command, status):
    place.run(standin, command=command).exits_with(status)


def test_no_command(place, standin):
    assert place.run(standin, arguments=["run", "--name", "t"]).exits_with(125)
    assert place.run(standin, arguments=["run", "--name", "t", "--floor", "5", "--", "python3"]).exits_with(125)


@pytest.mark.parametrize("command", [["docker", "run", "sglang"], ["ssh", "host", "python3", "-m", "sglang.launch_server"],
                                     ["sudo", "python3", "-m", "sglang.launch_server"]])
def test_commands_whose_server_is_no_child_are_refused(place, standin, command):
    output = place.run(standin, command=command).exit()
    assert output in (80, 88, 125)
    assert "inside" in place.runs[-1].output


# What stands in front of the server, and whether its arguments can be added to.
FORMS = {"env": (["nice", "-n", "1", "env", "A=b"], True), "timeout": (["timeout", "-s", "KILL", "300", "stdbuf", "-oL"], True),
         "shell": (["bash", "-c"], False)}


@pytest.mark.parametrize("form", FORMS)
def test_programs_in_front_of_the_server(place, standin, form):
    before, known = FORMS[form]
    server = place.command(standin)
    run = place.run(standin, command=[*before, *(server if known else [f"exec {shlex.join(server)} $KLDUMP_SGLANG_ARGS"])]).armed()
    place.ctl("stop", "t")
    output = run.exits_with(0)
    assert ("added --disable-decode-cuda-graph" in output) == known
    assert ("must hand $KLDUMP_SGLANG_ARGS" in output) == (not known)
    assert ("version is not known" in output) == (not known)


@pytest.mark.parametrize("before", [["env", "A=b", "ssh", "host"], ["bash", "-c", "cd / && exec sudo sglang serve"], ["tmux", "new"]],
                         ids=["ssh", "sudo", "tmux"])
def test_servers_that_would_not_be_children(place, standin, before):
    output = place.run(standin, command=[*before, *place.command(standin)]).exits_with(80)
    assert "would not be a child of kldump" in output and "run kldumpctl inside instead" in output


def test_wrapper_script(place, standin):
    """Nothing is appended to a script; it is told what to hand through, and verification decides."""
    port, script = place.port(), place.folder / "serve.sh"
    start = f"exec {standin.python(place)} -m sglang.launch_server --model-path /m --port {port}"
    script.write_text(f"#!/bin/sh\n{start} $KLDUMP_SGLANG_ARGS\n")
    script.chmod(0o755)
    run = place.run(standin, command=[str(script), "--port", str(port)]).armed()
    run.dump("dec", "--new", "2")
    place.ctl("stop", "t")
    run.exits_with(0)


@pytest.mark.parametrize("said", [[], ["--port", "1"]])
def test_wrapper_script_that_keeps_the_port_to_itself(place, standin, said):
    """Its arguments do not say the port, or say one that it does not hand on; the server's own line does."""
    port, script = place.port(), place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\nexec {standin.python(place)} -m sglang.launch_server --model-path /m --port {port} $KLDUMP_SGLANG_ARGS\n")
    script.chmod(0o755)
    run = place.run(standin, command=[str(script), *said]).armed()
    assert run.status()["port"] == port
    place.ctl("stop", "t")
    assert (f"listens on port {port}, not on the 1 of" in run.exits_with(0)) == bool(said)


def test_wrapper_script_that_drops_the_flags(place, standin):
    port, script = place.port(), place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\nexec {standin.python(place)} -m sglang.launch_server --model-path /m --port {port}\n")
    script.chmod(0o755)
    output = place.run(standin, command=[str(script), "--port", str(port)]).exits_with(82)
    assert "graph" in output[output.rindex("verify-failed"):]


def test_wrapper_script_that_keeps_a_shell(place, standin):
    """The server is a grandchild; it is found, and it ends with the shell."""
    port, script = place.port(), place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\n{standin.python(place)} -m sglang.launch_server --model-path /m --port {port} $KLDUMP_SGLANG_ARGS\n"
                      "echo after; sleep 1000\n")
    script.chmod(0o755)
    run = place.run(standin, command=[str(script), "--port", str(port)], options=["--stop-timeout", "1s"]).armed()
    place.ctl("stop", "t")
    run.exits_with(0)


def test_moved_prefix(place, standin, monkeypatch):
    """The programs find each other from bin to libexec and back, wherever the prefix is now."""
    programs = {"bin": ["kldumpctl"], "libexec/kldump": ["kldump-run", "kldump-keeper"]}
    for folder, names in programs.items():
        (place.folder / "moved" / folder).mkdir(parents=True)
        for name in names:
            shutil.copy(guarded.BUILD / name, place.folder / "moved" / folder)
    monkeypatch.setattr(guarded, "CTL", place.folder / "moved/bin/kldumpctl")
    run = place.run(standin)
    run.armed().dump("dec", "--new", "2")
    place.ctl("stop", "t")
    run.exits_with(0)


def test_foreign_files_in_the_dump_folder(place, standin):
    folder = place.folder / "used"
    folder.mkdir()
    (folder / "precious").touch()
    output = place.run(standin, directory=folder).exits_with(88)
    assert "precious" in output
    assert (folder / "precious").exists()


def test_sealed_dumps_in_the_folder_are_no_obstacle(place, standin):
    for name in ("a", "b"):
        run = place.run(standin, name=name, directory=place.folder / "dumps").armed()
        place.ctl("capture", name, "--synthetic", "1:9:1", "--new", "2", "--name", f"both-{name}")
        run.dump(f"dec-{name}")
        place.ctl("stop", name)
        run.exits_with(0)


def test_too_little_space(place, standin):
    output = place.run(standin, floor="900T").exits_with(88)
    assert "free" in output and "floor" in output


def test_a_folder_that_a_live_run_has(place, standin):
    """Two would spoil each other's dumps; however the folder is named. Not once the other has ended."""
    folder, link = place.folder / "dumps", place.folder / "link"
    link.symlink_to(folder)
    one = place.run(standin, name="one", directory=folder).armed()
    for directory in folder, link:
        output = place.ctl("run", "--name", "two", "--dir", directory, "--floor", "64M", "--", *place.command(standin), status=88).stderr
        assert f"dump folder {folder} is that of the live run one" in output and "give another one with --dir" in output
        doctor = place.ctl("doctor", "--dir", directory, "--floor", "64M", status=None)
        assert "is that of the live run one" in doctor.stdout, doctor.stdout
    one.dump("dec")
    place.ctl("stop", "one")
    one.exits_with(0)
    place.run(standin, name="two", directory=folder).armed()


def test_runtime_folder_that_others_may_enter(place, standin):
    place.runtime.chmod(0o755)
    assert place.run(standin).exits_with(88)
    place.runtime.chmod(0o700)


# ---- more than one, and other ways to start

def test_two_runs_at_once(place, standin):
    one = place.run(standin, name="one")
    two = place.run(standin, name="two")
    one.armed(), two.armed()
    assert {json_name for json_name in place.ctl("list").stdout.split() if json_name in ("one", "two")} == {"one", "two"}
    assert "one, two" in place.ctl("status", status=2).stderr
    one.dump("dec", "--rid", "first")
    keeper = two.keeper()
    two.process.kill()
    wait_for(lambda: not is_alive(keeper) and not processes_of(two.folder), GONE_S, "the end of the other")  # TMPDIR is there
    assert one.status()["state"] == "armed"
    one.dump("dec2", "--rid", "second")
    place.ctl("stop", "one")
    one.exits_with(0)


def test_names_are_made_up(place, standin):
    run = place.run(standin, arguments=["run", "--dir", place.folder / "d", "--floor", "64M", "--", *place.command(standin)])
    wait_for(lambda: list(place.runtime.glob("runs/*/control")), 20)
    run.name = next(place.runtime.glob("runs/*")).name
    run.armed()
    place.ctl("stop")
    run.exits_with(0)


def test_no_terminal_and_closed_output(place, standin):
    """The reader of the output goes away; the run goes on."""
    reader, writer = os.pipe()
    run = place.run(standin, output=writer)
    os.close(writer)
    os.read(reader, 10)
    os.close(reader)
    run.armed()
    run.dump("dec")
    place.ctl("stop", "t")
    assert run.exit() == 0


def test_output_that_nobody_reads(place, standin):
    reader, writer = os.pipe()
    run = place.run(standin, output=writer, command=noisy(place, standin, 20 << 20))
    os.close(writer)
    try:
        run.armed()
        assert run.status()["state"] == "armed"
        place.ctl("stop", "t")
        assert run.exit() == 0
    finally:
        os.close(reader)


def noisy(place, standin, count):
    """A server that prints COUNT bytes before it starts."""
    port, script = place.port(), place.folder / "noisy.sh"
    script.write_text(f"#!/bin/sh\nhead -c {count} /dev/zero | tr '\\0' x | fold -w 120\n"
                      f"exec {standin.python(place)} -m sglang.launch_server --model-path /m --port {port} $KLDUMP_SGLANG_ARGS\n")
    script.chmod(0o755)
    return [str(script), "--port", str(port)]


def test_much_output(place, standin):
    run = place.run(standin, command=noisy(place, standin, 20 << 20)).armed()
    wait_for(lambda: "fired up and ready" in place.ctl("logs", "t").stdout, 20, "the log, which a thread of its own writes")
    size = sum(path.stat().st_size for path in run.folder.glob("server.log*"))
    assert size < 64 << 20
    place.ctl("stop", "t")
    run.exits_with(0)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="missing: root, to become another user")


@needs_root
def test_as_an_ordinary_user(place, standin):
    """No cgroup that it may write: the keeper alone guards, says so, and leaves nothing."""
    place.copy_programs()
    standin.python(place)
    for path in (place.folder, place.runtime):
        os.chown(path, 65534, 65534)
    place.folder.chmod(0o755)
    place.before = ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    run = place.run(standin, faults="setsid-child,double-fork").armed()
    assert run.status()["guarantee"].startswith("keeper alone")
    run.dump("dec")
    run.process.kill()
    run.dies_within()


def test_help_and_usage(place):
    assert "Examples:" in place.ctl("help", "run").stdout
    assert subprocess.run([CTL, "run", "--help"], stdout=subprocess.PIPE, check=True, text=True).stdout
    place.ctl("nonsense", status=2)
    place.ctl("stop", "--nonsense", status=2)
    assert PYTHON
