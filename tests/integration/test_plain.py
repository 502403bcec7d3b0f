"""Runs of the kind plain: the server as its user starts it, guarded, never dumped. Any flag is taken, nothing is added, graphs stay on."""
import json

import guarded
import pytest

READY, NO, USAGE, FLOOR = 0, 1, 125, 83


def start(place, server, flags=(), **more):
    return place.run(server, options=["--kind", "plain", *more.pop("options", ())], flags=flags, **more).wait_state("ready")


def server_of(run):
    """The main process of the server, by its own view of its arguments and environment."""
    return run.status()["pid"]


def test_the_server_is_as_its_user_starts_it(place, server):
    graphs = ["--cuda-graph-max-bs", "8"] if server.name == "standin" else []
    run = start(place, server, flags=graphs, environment={"DUMPER_FILTER": "x("})
    status = run.status()
    assert (status["kind"], status["state"], status["exp"]) == ("plain", "ready", None)
    assert (status["proofs"]["verdict"], status["costs"]["bytes_per_prefill_token"]) == (None, None)
    if server.name == "standin":
        assert status["proofs"]["decode_graphs"] == "full"
    text = place.ctl("status", "t").stdout
    assert "plain: guarded as it is; nothing is proven, and nothing can be dumped" in text and "decode graphs" in text
    environment = guarded.environment_of(server_of(run))
    assert [name for name in environment if name.startswith("DUMPER_")] == ["DUMPER_FILTER"]
    assert environment["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"] == "0" and environment["TMPDIR"].startswith(str(place.runtime))
    assert status["command"] == list(map(str, run.command))
    assert "DUMPER_FILTER is left to the server" in json.dumps(run.events())
    assert run.send("--requests", "2").returncode == 0
    place.ctl("stop", "t")
    run.exits_with(0)
    # the server's own, and two of this test; its two outputs come in any order, so where a line stands says nothing
    assert "POST /dumper" not in run.log and run.log.count("POST /generate") == 3, run.log
    assert not [path for path in run.directory.iterdir() if not path.name.startswith("t.kldump-run")]


def test_what_is_refused(place, standin):
    run = start(place, standin)
    for command, status in ((("dump", "t", "e"), NO), (("capture", "t"), 2)):
        done = place.ctl(*command, status=status)
        assert "run t is of the kind plain: its server was started without the settings that a dump needs" in done.stderr
    assert "run t is ready, not dumping" in place.ctl("pause", "t", status=NO).stderr
    assert "never armed; wait for ready" in place.ctl("wait", "t", "--for", "armed", status=NO).stderr
    assert place.ctl("wait", "t", "--for", "ready").returncode == READY
    assert not list(run.directory.glob("*e*/"))
    other = place.run(standin, name="u", options=["--kind", "dump"]).armed()
    assert "of the kind dump and never ready" in place.ctl("wait", "u", "--for", "ready", status=NO).stderr
    assert other.status()["kind"] == "dump"
    done = place.ctl("run", "--kind", "follower", "--", "true", status=USAGE)
    assert "--kind: 'follower' is no kind of run; there are dump and plain" in done.stderr


def test_a_wrapper_and_flags_that_no_dump_takes(place, standin):
    script = place.folder / "serve.sh"
    port = place.port()
    script.write_text(f"#!/bin/sh\nexec {standin.python(place)} -m sglang.launch_server --model-path M --port {port} --skip-tokenizer-init "
                      "--debug-tensor-dump-output-folder x\n")
    script.chmod(0o755)
    run = start(place, standin, command=[str(script), "--port", str(port)])
    assert "KLDUMP_SGLANG_ARGS" not in guarded.environment_of(server_of(run))


def test_an_unknown_flag_ends_the_start(place, standin):
    """No other spelling is tried: the arguments are the user's."""
    run = place.run(standin, options=["--kind", "plain"], flags=["--disable-prefill-cuda-graph"], faults="bad-flag")
    output = run.exits_with(81)
    assert "launched again" not in output


def test_the_floor(place, standin):
    disk = place.small_disk("100M")
    run = start(place, standin, directory=disk / "d", floor="30M")
    with open(disk / "big", "wb") as file:
        while run.process.poll() is None and file.tell() < 90 << 20:
            file.write(bytes(1 << 20))
            file.flush()
    assert "floor" in run.exits_with(FLOOR)


@pytest.mark.parametrize("now", [False, True])
def test_ends(place, standin, now):
    run = start(place, standin)
    if now:
        guarded.os.kill(server_of(run), guarded.signal.SIGKILL)
        run.exits_with(137)
    else:
        place.ctl("stop", "t")
        run.exits_with(0)


def test_doctor(place, standin):
    command = place.command(standin, "--enable-torch-compile")
    refused = place.ctl("doctor", "--floor", "64M", "--", *command, status=None)
    assert "enable-torch-compile contradicts" in refused.stdout
    taken = place.ctl("doctor", "--kind", "plain", "--floor", "64M", "--", *command, status=None)
    assert "contradicts" not in taken.stdout and "a plain run takes CMD as it is" in taken.stdout


def test_owned_by_kldumpd(place, standin):
    """start returns when it is ready."""
    place.start([guarded.BUILD / "kldumpd"], stdout=guarded.subprocess.DEVNULL, stderr=guarded.subprocess.DEVNULL)
    guarded.wait_for(lambda: place.ctl("list", status=None).returncode == 0, 10, "kldumpd")
    done = place.ctl("start", "--name", "p", "--kind", "plain", "--dir", place.folder / "d", "--floor", "64M", "--", *place.command(standin))
    assert "p" in done.stdout
    run = json.loads(place.ctl("status", "p", "--json").stdout)["runs"][0]
    assert (run["state"], run["kind"]) == ("ready", "plain")
    place.ctl("stop", "p")


def test_measured_with_graphs_on(place, standin):
    """A run of decode against prefill on it; the stand-in's numbers do not depend on the batch."""
    run = start(place, standin)
    done = place.ctl("kl", "t", "--synthetic", "3:9:1", "--min-samples", "3", "--new", "4", "--comma", "20", "--json", status=None)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["helpers"]["match"]["grade"] == "bit-equal"
    assert run.status()["state"] == "ready"
