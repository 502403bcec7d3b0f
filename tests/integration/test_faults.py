"""Faults of the stand-in: servers that look healthy and are not, and servers that do not want to end."""
import json
import os
import re
import signal
import ssl
import subprocess
import time
import urllib.request

import pytest
from guarded import CTL, GONE_S, PYTHON, SEND, is_alive, title_of, wait_for

TWO_RANKS = ["--tp-size", "2"]

# What is switched on, more flags, what the message must name: the setting to blame among it.
UNPROVEN = [
    ("graph-prefill", [], ["--disable-prefill-cuda-graph", "prefill"]),
    ("graph-prefill=hidden", [], ["--disable-prefill-cuda-graph", "prefill"]),
    ("graph-decode", [], ["--disable-decode-cuda-graph", "decode"]),
    ("graph-decode=hidden", [], ["--disable-decode-cuda-graph", "decode"]),
    ("graph-prefill=hidden,graph-decode=hidden", [], ["cuda-graph"]),
    ("no-hooks", [], ["DUMPER_SERVER_PORT", "no hooks"]),
    ("mode-core", [], ["DUMPER_NON_INTRUSIVE_MODE"]),
    ("foreign-request", [], ["other clients"]),
    ("health-pass", [], ["SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION"]),
    ("rank-silent", TWO_RANKS, ["rank 1"]),
    ("failing-writes", [], ["DUMPER_DIR"]),
    ("cached-probe", [], ["cache"]),
    ("no-rids", [], ["rids"]),
    ("filter-drops-all", [], ["filter is", "step == 0", "expected null"]),
    ("filter-drops-all=hidden", [], ["began no file"]),
    ("reset-hooks=1", [], ["/dumper/reset", "start again"]),
    ("rank-deaf", TWO_RANKS, ["not every rank has it"]),
    ("null-answer", [], ["configure", "[null]"]),
    ("disk-full=53", [], ["DUMPER_DIR", "space"]),
    ("retract", [], ["2 prefill passes"]),
    ("", ["--chunked-prefill-size", "4"], ["--chunked-prefill-size", "3 prefill passes"]),
    # what an answer of another program looks like
    ("bad-answer=text:/server_info", [], ["cannot be read"]),
    ("bad-answer=binary:/dumper/get_state", [], ["UTF-8"]),
    ("bad-answer=deep:/server_info", [], ["nested deeper"]),
    ("bad-answer=huge:/server_info", [], ["larger than"]),
    ("bad-answer=endless:/server_info", [], ["larger than"]),
    ("bad-answer=redirect:/server_info", [], ["HTTP 307"]),
    ("bad-answer=status:/dumper/get_state", [], ["HTTP 500"]),
    ("bad-answer=cut:/server_info", [], ["no answer"]),
    ("bad-answer=close:/generate", [], ["no answer"]),
]


@pytest.mark.parametrize("faults, flags, named", UNPROVEN, ids=lambda value: value if isinstance(value, str) else "")
def test_hooks_that_cannot_be_proven(place, standin, faults, flags, named):
    run = place.run(standin, faults=faults, flags=flags)
    output = run.exits_with(82)
    end = output[output.rindex("verify-failed"):]
    assert not [word for word in named if word not in end], end
    proofs = run.record["run"]["proofs"]
    assert proofs["verdict"] == "failed" and proofs["text"]
    assert run.record["run"]["outcome"] == "verify-failed"


# What a wrapper does to the variables that it is to hand through, and what the message must name.
LOST = [
    ("unset DUMPER_SERVER_PORT", "", ["HTTP 404", "DUMPER_SERVER_PORT"]),
    ("export DUMPER_NON_INTRUSIVE_MODE=ALL", "", ["non_intrusive_mode is", "ALL", "expected all"]),
    ("export DUMPER_FILTER='rank == 0'", "", ["filter is", "rank == 0"]),
    ("export DUMPER_ENABLE=1", "", ["was on before it was asked"]),
    ("export DUMPER_DIR=dumps", "", ["dir is", "dumps", "absolute"]),
    ("export DUMPER_CLEANUP_PREVIOUS=1", "", ["cleanup_previous"]),
    ("true", "--dp-size 2", ["--dp-size", "same names"]),
]


@pytest.mark.parametrize("line, flags, named", LOST, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrapper_that_changes_a_setting(place, standin, line, flags, named):
    port, script = place.port(), place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\n{line}\nexec {standin.python(place)} -m sglang.launch_server --model-path /m --port {port} {flags} "
                      "$KLDUMP_SGLANG_ARGS\n")
    script.chmod(0o755)
    output = place.run(standin, command=[str(script), "--port", str(port)]).exits_with(82)
    end = output[output.rindex("verify-failed"):]
    assert not [word for word in named if word not in end], end


# What is switched on, more flags, what the message must name. Another limit ends these.
UNREADY = [
    ("bad-answer=huge:/dumper/get_state", [], ["warming", "larger than"]),
    ("bad-answer=slow:/dumper/get_state", [], ["warming", "has not answered"]),
    ("bad-answer=redirect:/health", [], ["warming", "HTTP 307"]),
    ("bad-answer=text:/v1/loads", [], ["verifying", "cannot be read"]),
    ("no-address", [], ["has not answered", "no address of this host"]),
    ("stall-on-dump=1", [], ["verifying"]),
    ("hang-starting", [], ["warming", "HTTP 503"]),
]


@pytest.mark.parametrize("faults, flags, named", UNREADY, ids=lambda value: value if isinstance(value, str) else "")
def test_starts_that_reach_their_limit(place, standin, faults, flags, named):
    output = place.run(standin, faults=faults, flags=flags, options=["--start-timeout", "3s"]).exits_with(81, 30)
    end = output[output.rindex("start-timeout"):]
    assert not [word for word in named if word not in end], end


@pytest.mark.parametrize("faults, flags, named", [
    ("watchdog-on-dump=1", [], "--watchdog-timeout"),
    ("rank-gone=1", TWO_RANKS, "crashed with exit code -9"),
    ("crash-on-dump=1", [], "RuntimeError: the size of tensor"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_server_that_ends_under_the_probe(place, standin, faults, flags, named):
    """The end is what is told, not the question that got no answer; the cause is from the log."""
    output = place.run(standin, faults=faults, flags=flags).exits_with(81)
    end = output[output.rindex("start-failed"):]
    assert "signal 9" in end and "likely cause" in end and named in end, end


def test_an_answer_that_comes_late(place, standin):
    """Right after it is ready the server has not counted its requests yet; a pass may be long."""
    run = place.run(standin, faults="late-loads=3,busy-pass=300").armed()
    place.ctl("stop", "t", "--now")
    run.exits_with(0)


def second_server(place, standin, port):
    """Somebody starts another one on our port: that is found after it has loaded, and its warm-up goes to ours."""
    return place.start([standin.python(place), "-m", "sglang.launch_server", "--model-path", "/m", "--port", port, "--skip-tokenizer-init"],
                       more=standin.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def test_a_second_server_on_our_port_while_verifying(place, standin):
    """Long passes, so that its warm-up falls into the probe."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_STEP_MS": "400"}).wait_state("verifying", 20)
    second = second_server(place, standin, run.status()["port"])
    output = run.exits_with(82)
    assert second.wait(20) == 3
    assert "other clients" in output[output.rindex("verify-failed"):]


# ---- what others do while it is armed or dumping

def call(run, method, **body):
    """Somebody with curl: /dumper/METHOD."""
    request = urllib.request.Request(f"http://127.0.0.1:{run.status()['port']}/dumper/{method}", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def seal_of(run, experiment):
    return json.loads((run.directory / f"{experiment}.kldump.json").read_text())


def wait_event(run, text, limit=20):
    """Events are told on the terminal as they happen."""
    wait_for(lambda: text in run.output, limit, f"an event with '{text}'")


def test_what_others_do_to_a_dump(place, standin):
    """One run; each dump is disturbed in another way, and its seal says how. The run goes on."""
    run = place.run(standin).armed()
    disturbances = [("changed", {"exp_name": "elsewhere"}, "changed"), ("off", {"enable": False}, "switched off by somebody else"),
                    ("folder", {"dir": str(place.folder / "unguarded")}, "dir is"), ("filter", {"filter": "'mlp' in name"}, "filter")]
    for experiment, body, named in disturbances:
        run.dump(experiment)
        run.send("--rid", experiment)
        call(run, "configure", **body)
        if "enable" not in body:
            run.send("--rid", f"{experiment}-after")
        wait_event(run, "setting" if "filter" in body else f"dump {experiment}")
        if run.status()["state"] == "dumping":
            place.ctl("pause", "t", status=None)
        wait_for(lambda experiment=experiment: (run.directory / f"{experiment}.kldump.json").exists(), 20, "the seal")
        run.wait_state("armed", 20)
        seal = seal_of(run, experiment)
        assert not seal["complete"] and named in " ".join(seal["reasons"]), seal["reasons"]
        call(run, "configure", filter=None, dir=str(run.directory))
    # a dump of somebody else is guarded like any other
    call(run, "configure", enable=True, exp_name="theirs")
    run.wait_state("dumping", 20)
    run.send("--rid", "theirs")
    wait_event(run, "switched on by somebody else")
    place.ctl("pause", "t")
    assert seal_of(run, "theirs")["check"]["files"] == 369
    assert run.status()["state"] == "armed"
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_reset_in_armed_voids_the_proofs(place, standin):
    run = place.run(standin).armed()
    run.dump("dec", "--new", "2")
    call(run, "reset")
    wait_event(run, "the proofs are void")
    assert run.status()["proofs"]["verdict"] == "failed"
    refused = run.dump("more", status=None)
    assert refused.returncode != 0 and "reset" in refused.stderr, refused.stderr
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_reset_while_dumping(place, standin):
    run = place.run(standin).armed()
    run.dump("dec")
    run.send("--rid", "before")
    call(run, "reset")
    wait_event(run, "the proofs are void")
    run.wait_state("armed", 20)
    wait_for(lambda: (run.directory / "dec.kldump.json").exists(), 20, "the seal, which a thread of its own writes")
    seal = seal_of(run, "dec")
    assert not seal["complete"] and "reset" in " ".join(seal["reasons"])
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_second_server_on_our_port_while_dumping(place, standin):
    """Its warm-up lands in our dump: the seal lists a request that is not ours."""
    run = place.run(standin).armed()
    run.dump("dec")
    second = second_server(place, standin, run.status()["port"])
    assert second.wait(30) == 3
    wait_for(lambda: list(run.directory.glob("dec/step=7*")), 20, "the eight passes of its warm-up")
    place.ctl("pause", "t")
    rids = seal_of(run, "dec")["check"]["request_ids"]
    assert any(re.fullmatch("[0-9a-f]{32}", rid) for rid in rids), rids
    place.ctl("stop", "t")
    run.exits_with(0)


def control_timeout(place, text):
    path = place.folder / "kldump.conf"
    path.write_text(f"[run]\ncontrol_timeout = {text}\n")
    return ["--config", path]


def test_lost_control(place, standin):
    """Nothing answers and nothing grows: killed, and it is said when it was seen last."""
    run = place.run(standin, faults="stall-on-dump=6", options=control_timeout(place, "3s")).armed()
    run.dump("dec")
    run.send("--requests", "9", background=True)
    output = run.exits_with(85, 60)
    end = output[output.rindex("control-lost"):]
    assert "has not answered for" in end and "nothing grew" in end, end
    assert seal_of(run, "dec")["sealed_by"] == "death"


def test_a_rank_that_disappears_while_dumping(place, standin):
    run = place.run(standin, faults="rank-gone=6", flags=TWO_RANKS, environment={"KLDUMP_STANDIN_CRASH_MS": "2000"}).armed()
    run.dump("dec")
    run.send("--requests", "9", status=None)
    output = run.exits_with(137)
    end = output[output.rindex("server-exited"):]
    assert "crashed with exit code -9" in end, end
    assert seal_of(run, "dec")["sealed_by"] == "death"


def test_a_dump_that_cannot_be_switched_off(place, standin):
    """The server says yes and goes on: it is told, and the stop ends it all the same."""
    run = place.run(standin, faults="no-disable").armed()
    run.wait_state("dumping", 20)
    wait_event(run, "switched on by somebody else")
    place.ctl("stop", "t", "--now")
    run.exits_with(0)


# ---- how it is reached

def test_encrypted_and_with_keys(place, standin):
    """Neither the certificate's issuer nor its name is known; both keys are used where they belong and told nowhere."""
    pair = [place.folder / "certificate.pem", place.folder / "key.pem"]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=elsewhere", "-out", pair[0],
                    "-keyout", pair[1]], check=True, stderr=subprocess.DEVNULL)
    keys = ["key-of-users-1", "key-of-admins-2"]
    run = place.run(standin, flags=["--ssl-certfile", str(pair[0]), "--ssl-keyfile", str(pair[1]), "--host", "0.0.0.0",
                                    "--api-key", keys[0], f"--admin-api-key={keys[1]}"]).armed()
    run.dump("dec")
    trust = ssl.create_default_context(cafile=pair[0])
    trust.check_hostname = False
    body = {"input_ids": [5, 6, 7], "rid": "own", "sampling_params": {"max_new_tokens": 2}}
    request = urllib.request.Request(f"https://127.0.0.1:{run.status()['port']}/generate", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "Authorization": f"Bearer {keys[0]}"})
    with urllib.request.urlopen(request, context=trust, timeout=30) as answer:
        assert json.load(answer)["meta_info"]["id"] == "own"
    place.ctl("pause", "t")
    assert seal_of(run, "dec")["complete"]
    told = run.output + run.log + json.dumps(run.record) + json.dumps(run.events()) + place.ctl("status", "t").stdout
    assert not [key for key in keys if key in told]
    place.ctl("stop", "t")
    run.exits_with(0)


# ---- releases

RELEASES = ["0.5.10.post1", "0.5.12.post1", "0.5.14", "0.5.16", "0.5.18", "0.5.20", "0.5.23"]


@pytest.mark.parametrize("version", RELEASES)
def test_every_release(place, standin, version):
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": version}).armed()
    assert run.status()["sglang_version"] == version
    run.dump("dec", "--new", "2")
    assert seal_of(run, "dec")["complete"]
    place.ctl("stop", "t")
    run.exit()
    assert run.record["run"]["outcome"] == "stopped"
    place.nothing_lives()


@pytest.mark.parametrize("version, reported", [("0.5.12.post1", "0.5.23"), ("0.5.23", "0.5.10"), ("0.5.10.post1", ""),
                                               ("0.5.20", "unknown")])
def test_a_release_that_is_guessed_wrong(place, standin, version, reported):
    """The server does not know our flags: it is launched again with those of another release, and that is an event."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_VERSION": version, "KLDUMP_STANDIN_REPORTED": reported}).armed()
    again = [event for event in run.events() if "launched again" in event["text"]]
    assert bool(again) == (reported != "unknown"), run.output[-2000:]
    run.dump("dec", "--new", "2")
    assert seal_of(run, "dec")["complete"]
    place.ctl("stop", "t", "--now")
    run.exits_with(0)


def test_hooks_lost_after_arming(place, standin):
    """Somebody calls /dumper/reset: what is dumped afterwards is not complete, and the seal says so."""
    run = place.run(standin, faults="reset-hooks=5").armed()
    run.dump("dec", "--requests", "2", "--new", "3", status=None)
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert not seal["complete"] and seal["reasons"]
    place.ctl("stop", "t")
    run.exits_with(0)


def test_two_healthy_ranks(place, standin):
    run = place.run(standin, flags=TWO_RANKS).armed()
    assert run.status()["proofs"]["ranks"] == 2
    run.dump("dec", "--new", "2")
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"] and seal["check"]["ranks"] == 2 and len(seal["expected"]["ranks"]) == 2
    place.ctl("stop", "t")
    run.exits_with(0)


# Shapes in which one probe cannot show everything: flags, and what the run says it has not proven.
LIMITED = [
    (["--tp-size", "2", "--dp-size", "2", "--enable-dp-attention"], "idle ranks"),
    (["--speculative-algorithm", "EAGLE"], "speculative"),
    (["--disaggregation-mode", "decode"], "the other phase"),
    (["--disaggregation-mode", "prefill"], "the other phase"),
]


@pytest.mark.parametrize("flags, said", LIMITED, ids=lambda value: value if isinstance(value, str) else value[-1])
def test_shapes_that_can_be_proven_in_part(place, standin, flags, said):
    run = place.run(standin, flags=flags).armed()
    proofs = run.status()["proofs"]
    assert proofs["verdict"] == "limited" and said in proofs["text"], proofs
    wait_event(run, "limited")
    place.ctl("stop", "t", "--now")
    run.exits_with(0)


def test_two_stages(place, standin):
    """Each has its own layers and counts its own files; between them goes a word that is no tensor."""
    run = place.run(standin, flags=["--pp-size", "2"]).armed()
    proofs = run.status()["proofs"]
    assert proofs["ranks"] == 2 and proofs["verdict"] == "proven", proofs
    run.dump("dec", "--new", "2")
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["complete"], seal["reasons"]
    place.ctl("stop", "t")
    run.exits_with(0)


def test_one_decode_pass_more(place, standin):
    run = place.run(standin, faults="extra-decode-pass").armed()
    assert "3 decode passes" in run.status()["proofs"]["text"]
    run.dump("dec")
    place.ctl("stop", "t")
    run.exits_with(0)


def test_control_that_hangs_while_verifying(place, standin):
    """The start limit ends it, whatever it waits for."""
    run = place.run(standin, faults="control-hang", options=["--start-timeout", "4s"])
    output = run.exits_with(81, 30)
    assert "start-timeout" in output and "verifying" in output


def test_server_that_dies_while_dumping(place, standin):
    run = place.run(standin, faults="crash-on-dump=6").armed()
    done = run.dump("dec", "--requests", "9", status=None)
    assert done.returncode != 0
    output = run.exits_with(137)
    assert "server-exited" in output and "signal 9" in output
    seal = json.loads((run.directory / "dec.kldump.json").read_text())
    assert seal["sealed_by"] == "death"


def test_slow_dump_is_not_lost_control(place, standin):
    run = place.run(standin, faults="slow-dump=10").armed()
    run.dump("dec", "--new", "3")
    assert json.loads((run.directory / "dec.kldump.json").read_text())["complete"]
    place.ctl("stop", "t")
    run.exits_with(0)


# ---- servers that do not want to end

STUBBORN = ["setsid-child", "double-fork", "stopped-child", "fork-storm", "ignore-term",
            "setsid-child,double-fork,stopped-child,ignore-term,subreaper,renamed"]
GUARANTEES = [{}, {"KLDUMP_NO_CGROUP": "1"}]


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
@pytest.mark.parametrize("faults", STUBBORN)
def test_orderly_stop_leaves_nothing(place, standin, faults, guarantee):
    run = place.run(standin, faults=faults, environment=guarantee, options=["--stop-timeout", "1s"]).armed()
    if guarantee:
        assert run.status()["guarantee"].startswith("keeper alone")
    place.ctl("stop", "t")
    run.exits_with(0)


def test_a_drain_that_never_ends(place, standin):
    """A request that was refused is counted for ever: the stop waits for its limit, then kills."""
    run = place.run(standin, faults="drain-stuck", options=["--stop-timeout", "2s"]).armed()
    assert run.send("--prompt", "5000", status=None).returncode == 1
    place.ctl("stop", "t")
    run.exits_with(0)
    assert "Remaining number of requests 1" in run.log


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
@pytest.mark.parametrize("faults", STUBBORN)
def test_killed_guard_leaves_nothing(place, standin, faults, guarantee):
    run = place.run(standin, faults=faults, environment=guarantee).armed()
    run.process.kill()
    run.dies_within(GONE_S)


@pytest.mark.parametrize("faults", ["", "setsid-child,double-fork", "fork-storm"])
def test_killed_keeper_leaves_nothing_without_a_cgroup(place, standin, faults):
    run = place.run(standin, faults=faults, environment={"KLDUMP_NO_CGROUP": "1"}).armed()
    os.kill(run.keeper(), signal.SIGKILL)
    run.exits_with(85)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
def test_orphans_without_a_guard(place, standin, guarantee):
    """A server that is still loading, whose children have no parent."""
    run = place.run(standin, environment={"KLDUMP_STANDIN_LOAD_MS": "20000", **guarantee}).wait_state("loading", 20)
    wait_for(lambda: len(place.survivors()) >= 5, 20, "the server's children")
    os.kill(run.status()["pid"], signal.SIGKILL)
    run.process.kill()
    run.dies_within(GONE_S)


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=["cgroup", "keeper-alone"])
def test_orphans_that_send_quit_late(place, standin, guarantee):
    """A shell outlives the server that was killed while it loaded; its orphans send SIGQUIT to who adopted them."""
    port, script = place.port(), place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\n{standin.python(place)} -m sglang.launch_server --model-path /m --port {port} $KLDUMP_SGLANG_ARGS\n"
                      "echo the server is gone; sleep 1000\n")
    script.chmod(0o755)
    run = place.run(standin, command=[str(script), "--port", str(port)], faults="orphans,late-quit=300", options=["--start-timeout", "8s"],
                    environment={"KLDUMP_STANDIN_LOAD_MS": "600", **guarantee})
    wait_for(lambda: "BrokenPipeError" in run.log, 20, "the orphan's exception")
    wait_for(lambda: not [pid for pid in place.survivors() if "sglang::scheduler" in title_of(pid)], 20, "the orphan's end, after its SIGQUIT")
    keeper = run.keeper()
    assert is_alive(keeper) and is_alive(run.pid)
    place.ctl("stop", "t", "--now")
    run.exits_with(81)


def test_an_ended_server_with_a_child_that_stays(place, standin):
    """The child in its own session outlives a server that ends in order: it is killed, nobody waits for it for ever."""
    run = place.run(standin, faults="setsid-child").armed()
    begin = time.monotonic()
    place.ctl("stop", "t")
    run.exits_with(0)
    assert time.monotonic() - begin < 15


def session_of(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def test_strangers_are_left_alone(place, standin):
    """A process with the same name and of the same user, but of nobody's run, lives on."""
    canary = place.start([standin.python(place), "-m", "sglang.launch_server", "--model-path", "/m", "--port", str(place.port())],
                         start_new_session=True)
    try:
        run = place.run(standin, environment={"KLDUMP_NO_CGROUP": "1"}).armed()
        run.process.kill()
        end = time.monotonic() + GONE_S
        mine = lambda: [pid for pid in place.survivors() if session_of(pid) not in (None, canary.pid)]  # noqa: E731
        while mine() and time.monotonic() < end:
            time.sleep(0.02)
        assert not mine()
        assert is_alive(canary.pid)
    finally:
        os.killpg(canary.pid, signal.SIGKILL)


def test_a_client_under_which_the_run_is_stopped(place, standin):
    """The run is stopped under a dump with a client: the dump ends with the run, and says how."""
    run = place.run(standin).armed()
    stopped = place.folder / "stopped"
    os.mkfifo(stopped)
    client = place.start([CTL, "dump", "t", "dec", "--", "/bin/sh", "-c", f"{PYTHON} -B {SEND} && read line < {stopped}"],
                         stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_for(lambda: len(list((run.directory / "dec").glob("*.pt"))) >= 369, 20, "all files of the request")
    place.ctl("stop", "t")
    stopped.write_text("now the client may end\n")
    status = client.wait(30)
    run.exits_with(0)
    seal = seal_of(run, "dec")
    assert seal["sealed_by"] == "stop"
    assert status == 4, client.stderr.read()  # complete, but not what the client was to be dumped around
