"""kldumpctl investigate on the stand-in: what each fault comes to; stopped at every step and continued, without doing anything twice;
killed, and nothing left; what must be refused.

The programs are copied, and `kldumpctl` beside them is a script: it notes each command that investigate starts, and can hold one,
let it crash or end with 1 before it has begun. So a test knows which steps were done, and stops in the middle of any."""
import contextlib
import json
import os
import signal
import subprocess

import guarded
import pytest
from guarded import wait_for

CLEAN, DIVERGES, USAGE, INCOMPLETE, NOT_ARMED, UNVERIFIED, RUN_ENDED, FORBIDDEN, INTERNAL, INTERRUPTED = 0, 1, 2, 4, 81, 82, 85, 88, 125, 130
STEPS = ["doctor", "kl-own", "kl-dump", "ab", "invariance", "capture", "check", "diff"]
CALLS = ["doctor", "kl-1", "kl-2", "ab", "invariance", "capture", "check-1", "check-2", "diff"]
NEEDS_SERVER = {"kl-1", "kl-2", "invariance", "capture"}
SMALL = ["--synthetic", "4:10-20:1", "--min-samples", "4", "--new", "8"]
ROWS = "batch-variant=1"
SCRIPT = """#!/bin/sh
here={here}
number=$(grep -c "^$1" $here/calls 2>/dev/null)
case "$*" in *--expect*) exec $here/investigator "$@";; esac  # the guard's own audit
case $1 in kl|check) call=$1-$((number + 1));; *) call=$1;; esac
echo $call >> $here/calls
if [ -e $here/crash-$call ]; then rm $here/crash-$call; kill -9 $$; fi
if [ -e $here/refuse-$call ]; then rm $here/refuse-$call; echo "kldumpctl $1: refused in $call" >&2; exit 1; fi
if [ -e $here/hold-$call ]; then exec 3<>$here/hold-$call; touch $here/held-$call; read _ <&3; exec 3<&-; fi
exec $here/investigator "$@"
"""


class Look:
    """One investigation and its folder."""

    def __init__(self, place, server, faults="", flags=(), options=(), prompts=SMALL, environment=None, folder="look", floor="64M"):
        self.place, self.server, self.options, self.prompts = place, server, list(options), list(prompts)
        if not (place.folder / "programs").exists():
            place.copy_programs()
            self.wrap()
        self.programs = place.folder / "programs"
        self.folder = place.folder / folder
        self.command = place.command(server, *flags)
        self.options += ["--name", "look", "--dir", str(self.folder), "--floor", floor]
        self.environment = {**server.environment(), "KLDUMP_STANDIN_FAULTS": faults, **(environment or {})}

    def wrap(self):
        here = self.place.folder / "programs"
        (here / "kldumpctl").rename(here / "investigator")
        (here / "kldumpctl").write_text(SCRIPT.format(here=here))
        (here / "kldumpctl").chmod(0o755)

    def arguments(self, *more):
        return [self.programs / "investigator", "investigate", *self.options, *self.prompts, *more, "--", *self.command]

    def run(self, *more, status=None, limit=180):
        done = subprocess.run([*map(str, self.arguments(*more))], env=self.place.environment(**self.environment), cwd=self.place.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=limit, check=False)
        assert status is None or done.returncode == status, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        assert not self.place.survivors(), [guarded.title_of(pid) for pid in self.place.survivors()]
        return done

    def begin(self, *more):
        return self.place.start(self.arguments(*more), self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def calls(self):
        path = self.programs / "calls"
        return path.read_text().split() if path.exists() else []

    def forget_calls(self):
        (self.programs / "calls").unlink(missing_ok=True)

    def hold(self, call):
        """A pipe, so that what is held has no child that could live on for a moment."""
        os.mkfifo(self.programs / f"hold-{call}")

    def wait_held(self, call):
        wait_for((self.programs / f"held-{call}").exists, 60, f"the step {call}")
        pipe = self.programs / f"hold-{call}"
        with contextlib.suppress(OSError):  # what was killed reads no more
            descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            os.write(descriptor, b"\n")
            os.close(descriptor)
        pipe.unlink()
        (self.programs / f"held-{call}").unlink()

    def report(self):
        return json.loads((self.folder / "report.json").read_text())

    def states(self):
        return {step["step"]: step["state"] for step in self.report()["steps"]}

    def end(self):
        answer = self.report()["answer"]
        return answer["end"], answer["condition"], answer["module"]


def states_of_runs(place):
    """Guard -> state, by its record, which tells later how far it was."""
    runs = [json.loads(path.read_text())["run"] for path in place.runtime.glob("runs/*/record.json")]
    return {run["guard_pid"]: run["state"] for run in runs}


# ---- what a fault comes to

def test_a_clean_server(place, standin):
    """That is the end: nothing else is measured, and no second server is started."""
    look = Look(place, standin)
    done = look.run(status=CLEAN)
    assert look.calls() == CALLS[:2]
    assert look.end() == ("clean", "none", None)
    assert look.states() == {"doctor": "done", "kl-own": "done", **{step: "not needed" for step in STEPS[2:]}}
    assert "No divergence under your own flags" in done.stdout
    assert "step 2 of 8: kl under your own flags" in done.stderr and "step 3 of 8" not in done.stderr
    assert (look.folder / "own.log").exists() and not (look.folder / "dump.log").exists()
    look.forget_calls()
    again = look.run(status=CLEAN)
    assert look.calls() == [] and "finished earlier" in again.stderr and again.stdout.splitlines()[0] == done.stdout.splitlines()[0]


def test_an_operator_is_named(place, standin):
    look = Look(place, standin, ROWS)
    done = look.run("--json", status=DIVERGES)
    assert look.calls() == CALLS
    assert set(look.states().values()) == {"done"}
    assert look.end() == ("operator", "1", "model.layers.1.mlp.down_proj")
    assert json.loads(done.stdout) == look.report()
    for name in ("report.html", "diff.html", "doctor.json", "check-2.json", "own.log", "dump.log"):
        assert (look.folder / name).stat().st_size > 0
    assert "model.layers.1.mlp.down_proj" in (look.folder / "report.html").read_text()
    # both measurements are over one file of ids, and the dumps over some of its lines
    own, dump = (json.loads((look.folder / f"kl-{which}.json").read_text()) for which in ("own", "dump"))
    assert own["prompts"] == dump["prompts"] and own["prompts"]["source"] == "prompts.jsonl"
    chosen = (look.folder / "capture-prompts.jsonl").read_text().splitlines()
    assert chosen and set(chosen) <= set((look.folder / "prompts.jsonl").read_text().splitlines())
    # a fault of one row: one request at a time
    capture = json.loads((look.folder / "capture.json").read_text())
    assert capture["alone"] and capture["complete"] and capture["dir"] == str(look.folder / "dumps")
    # the axes that changed name it as well, and there is a script
    axes = {axis["axis"]: axis for axis in look.report()["invariance"]["axes"]}
    assert axes["decode"]["state"] == "changed" and axes["decode"]["module"] == "model.layers.1.mlp.down_proj"
    assert "down_proj" in (look.folder / "repro.py").read_text()
    assert "step 7 of 8: whether the dumps are complete (no server is needed any more)" in done.stderr
    # each command can be typed again
    line = next(line for line in done.stderr.splitlines() if line.startswith("  kldumpctl ab ")).strip()
    (place.folder / "path").mkdir()
    (place.folder / "path/kldumpctl").symlink_to(look.programs / "investigator")
    kept = (look.folder / "ab.json").read_bytes()
    (look.folder / "ab.json").unlink()
    subprocess.run(line, shell=True, check=False, env=place.environment() | {"PATH": f"{place.folder / 'path'}:/usr/bin:/bin"})
    assert (look.folder / "ab.json").read_bytes() == kept


@pytest.mark.parametrize("faults,end,states", [
    # in every decode pass, also of a batch
    ("batch-variant=1:gate_up_proj:40", ("operator", "1", "model.layers.1.mlp.gate_up_proj"), {"capture": "done", "diff": "done"}),
    ("wrong-norm=1", ("operator", "1", "model.layers.1.post_attention_layernorm"), {"diff": "done"}),
    ("window-eviction=16", ("decode-context", "2", "model.layers.0.self_attn.attn"), {"diff": "done"}),
    # decode agrees with a fresh prefill: what comes from the cache is wrong
    ("stale-prefix=3", ("restore-in-a-layer", "2", "model.layers.0.self_attn.attn"), {"capture": "done", "diff": "done"}),
    ("stale-last", ("restore-in-a-layer", "2", "model.layers.0.self_attn.attn"), {"capture": "done", "diff": "done"}),
    # the flags of a dump switch graphs off, and the fault with them
    ("graph-only=1", ("needs-a-graph", "1", None), {"kl-dump": "done", "ab": "done", "invariance": "not needed", "capture": "not needed",
                                                     "check": "not needed", "diff": "not needed"}),
    ("shifted-logprobs", ("refused", "refused", None), {"kl-own": "done", "kl-dump": "not needed", "diff": "not needed"}),
])
def test_each_fault(place, standin, faults, end, states):
    look = Look(place, standin, faults)
    look.run(status=DIVERGES)
    assert look.end() == end
    assert {step: look.states()[step] for step in states} == states
    if end[0] == "needs-a-graph":
        assert any("examples/state_probe.py" in line for line in look.report()["answer"]["next"])
        assert any("disable_decode_cuda_graph" in line for line in look.report()["settings"])


@pytest.mark.real
def test_the_unedited_server(place, servers):
    """float32 on a CPU: condition 1, in the first matrix product."""
    look = Look(place, servers("real"), prompts=["--synthetic", "2:24-40:3", "--min-samples", "2", "--new", "8"])
    look.run(status=DIVERGES, limit=1200)
    assert set(look.states().values()) == {"done"}
    assert look.end() == ("operator", "1", "model.layers.0.self_attn.qkv_proj")
    assert json.loads((look.folder / "diff.json").read_text())["verdict"]["layer"] == 0


def test_only_under_the_flags_of_a_dump(place, standin):
    """Nobody has that divergence: the own flags are clean, and that is the end."""
    eager = place.folder / "eager"
    eager.write_text(f"""#!/bin/sh
case "$*" in *--disable-*cuda-graph*|*--cuda-graph-backend*) export KLDUMP_STANDIN_FAULTS={ROWS};; esac
exec {standin.python(place)} "$@"
""")
    eager.chmod(0o755)
    look = Look(place, standin)
    look.command[0] = str(eager)
    look.run(status=CLEAN)
    assert look.end()[0] == "clean" and look.states()["kl-dump"] == "not needed"


# ---- stopped and continued

@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_in_a_step_and_continued(place, standin, call, number):
    """The server is gone, what is finished stays, and the next call does the rest alone."""
    look = Look(place, standin, ROWS)
    look.hold(call)
    process = look.begin()
    wait_for((look.programs / f"held-{call}").exists, 60, call)
    process.send_signal(number)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED, err
    assert not place.survivors()
    look.wait_held(call)
    step = STEPS[CALLS.index(call) - (CALLS.index(call) > CALLS.index("check-1"))]
    states = look.states()
    assert states == {name: "done" if STEPS.index(name) < STEPS.index(step) else "not reached" for name in STEPS}
    assert f"--name look --dir {look.folder}" in err
    assert look.end()[0] == "unfinished"
    finished = {name: (look.folder / f"{name}.json").stat().st_mtime_ns for name in STEPS if states[name] == "done"}
    look.forget_calls()
    done = look.run(status=DIVERGES)
    rest = ["check-1" if call == "check-2" else call, *CALLS[CALLS.index(call) + 1:]]
    rest = ["kl-1", *[one for one in rest if not one.startswith("kl")]] if call == "kl-2" else rest  # the script counts from 1 again
    doctor = ["doctor"] if NEEDS_SERVER & set(rest) and call != "doctor" else []
    assert look.calls() == [*doctor, *(rest if call != "check-2" else ["check-1", "check-2", "diff"])], done.stderr
    finished.pop("doctor", None)
    assert {name: (look.folder / f"{name}.json").stat().st_mtime_ns for name in finished} == finished
    assert look.end() == ("operator", "1", "model.layers.1.mlp.down_proj")
    assert [step["taken_over"] for step in look.report()["steps"]][1:] == [name in finished for name in STEPS][1:]


def test_stopped_while_a_server_starts(place, standin):
    look = Look(place, standin, environment={"KLDUMP_STANDIN_LOAD_MS": "60000"}, folder="my look")
    process = look.begin()
    wait_for(lambda: "loading" in states_of_runs(place).values(), 30, "the server")
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and not place.survivors(), err
    assert f"--name look --dir '{look.folder}':" in err
    look.environment["KLDUMP_STANDIN_LOAD_MS"] = "60"
    look.run(status=CLEAN)


def test_stopped_before_the_guard_is_one(place, standin):
    """In the moment of its fork, when it still has the signal handlers of investigate."""
    look = Look(place, standin)
    process = look.begin()
    wait_for((look.folder / "own.log").exists, 30, "the text of the guard")
    process.send_signal(signal.SIGINT)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED and not place.survivors(), err


def test_stopped_twice(place, standin):
    """The second signal does not wait for a server that takes its time."""
    look = Look(place, standin, "ignore-term")
    look.hold("kl-1")
    process = look.begin()
    wait_for((look.programs / "held-kl-1").exists, 60, "kl")
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: "SIGTERM" in (look.folder / "own.log").read_text() or "stopping" in (look.folder / "own.log").read_text(), 30, "the end begins")
    process.send_signal(signal.SIGTERM)
    _out, err = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGTERM and "ended at once; the guard kills the server" in err
    wait_for(lambda: not place.survivors(), 10, "the end of all")


def test_ctrl_c_in_a_capture(place, standin):
    """On a terminal it reaches the step as well: the dump is sealed, and the next capture gets another name."""
    look = Look(place, standin, ROWS, environment=place.hold_environment())
    place.ctl_path = look.programs / "investigator"
    run = guarded.Run(place, standin, name="look", arguments=look.arguments()[1:], environment=look.environment, terminal=True)
    with run.held("capture-dec"):
        wait_for(lambda: any((look.folder / "dumps").glob("capture-dec/*.pt")), 60, "the first file")
        run.type("\x03")
    assert run.exit(60) == INTERRUPTED, run.output
    run.close()
    assert "capture-dec: " in run.output or "interrupted" in run.output
    assert not place.survivors()
    seal = json.loads((look.folder / "dumps/capture-dec.kldump.json").read_text())
    assert seal["complete"] in (True, False)
    look.run(status=DIVERGES)
    assert json.loads((look.folder / "capture.json").read_text())["dir"] == str(look.folder / "dumps-2")
    assert look.end()[0] == "operator"


@pytest.mark.parametrize("call", ["kl-1", "capture", "diff"])
def test_killed(place, standin, call):
    """By 9: no server and no step is left, and the next call goes on."""
    look = Look(place, standin, ROWS)
    look.hold(call)
    process = look.begin()
    wait_for((look.programs / f"held-{call}").exists, 60, call)
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not place.survivors(), 20, "the end of all")
    look.wait_held(call)
    assert list(look.folder.glob("*.tmp"))
    (look.folder / "notes.tmp").touch()
    look.forget_calls()
    look.run(status=DIVERGES)
    assert [path.name for path in look.folder.glob("*.tmp")] == ["notes.tmp"]
    assert look.calls()[0] == ("doctor" if call != "diff" else "diff")
    assert "kl-2" in look.calls() or call != "kl-1"
    assert look.end()[0] == "operator"


def test_a_guard_that_is_killed_while_it_dumps(place, standin):
    """What it leaves is no dump: the next server of the same call gets a folder of its own."""
    look = Look(place, standin, ROWS, environment=place.hold_environment())
    place.hold_path("invariance-decode-ref").touch()
    process = look.begin()
    wait_for(lambda: any((look.folder / "dumps").glob("invariance-decode-ref/*.pt")), 60, "a dump of invariance")
    guard = next(pid for pid in place.survivors() if "kldump-run" in guarded.title_of(pid))
    os.kill(guard, signal.SIGKILL)
    _out, err = process.communicate(timeout=120)
    assert process.returncode == RUN_ENDED and "the guard was killed" in err, err
    assert look.end() == ("operator", "1", "model.layers.1.mlp.down_proj")
    assert json.loads((look.folder / "capture.json").read_text())["dir"] == str(look.folder / "dumps-2")
    assert look.states() == {step: "failed" if step == "invariance" else "done" for step in STEPS}


def test_continued_while_the_earlier_run_still_ends(place, standin):
    """Killed by 9, and called again at once, without its name: the port is waited for."""
    look = Look(place, standin, environment={"KLDUMP_STANDIN_TERM_MS": "60000"})
    look.options = look.options[2:]
    look.hold("kl-1")
    process = look.begin()
    wait_for((look.programs / "held-kl-1").exists, 60, "kl")
    process.kill()
    process.wait()
    look.wait_held("kl-1")
    name = json.loads((look.folder / "investigation.json").read_text())["name"]
    server = json.loads((place.runtime / "runs" / name / "record.json").read_text())["run"]["pid"]
    del look.environment["KLDUMP_STANDIN_TERM_MS"]
    process = look.begin()
    said = iter(process.stderr.readline, "")
    assert any(f"waiting for the end of run {name}, which an earlier call has left" in line for line in said)
    os.kill(server, signal.SIGKILL)  # until now it has taken its time
    process.communicate(timeout=60)
    assert process.returncode == CLEAN and json.loads((look.folder / "investigation.json").read_text())["name"] == name


def test_results_that_are_gone_or_damaged(place, standin):
    """They and what was built on them are made again; the rest is not."""
    look = Look(place, standin, ROWS)
    look.run(status=DIVERGES)
    for damage, calls in ((lambda path: path.unlink(), ["doctor", "capture", "check-1", "check-2", "diff"]),
                          (lambda path: path.write_text(path.read_text()[:-9]), ["doctor", "capture", "check-1", "check-2", "diff"])):
        damage(look.folder / "capture.json")
        look.forget_calls()
        look.run(status=DIVERGES)
        assert look.calls() == calls
    (look.folder / "kl-dump.json").write_text("{}")
    look.forget_calls()
    look.run(status=DIVERGES)
    assert look.calls() == ["doctor", "kl-1", *CALLS[3:]]
    (look.folder / "diff.json").unlink()
    look.forget_calls()
    look.run(status=DIVERGES)
    assert look.calls() == ["diff"]
    state = json.loads((look.folder / "investigation.json").read_text())
    state["steps"]["check"]["key"] = "0" * 16  # as of another version of kldump
    (look.folder / "investigation.json").write_text(json.dumps(state))
    look.forget_calls()
    look.run(status=DIVERGES)
    assert look.calls() == ["check-1", "check-2"]
    (look.folder / "prompts.jsonl").write_text('{"input_ids": [20, 21]}\n')
    look.forget_calls()
    look.run(status=DIVERGES)
    assert look.calls() == CALLS


# ---- what is refused

def test_another_command_or_other_prompts(place, standin):
    look = Look(place, standin)
    look.run(status=CLEAN)
    other = Look(place, standin, flags=["--dtype", "float32"])
    done = other.run(status=FORBIDDEN)
    assert "holds the investigation of another command: there it is '" in done.stderr
    assert " --dtype float32'" in done.stderr and done.stderr.count("-m sglang.launch_server") == 2
    for prompts in (["--synthetic", "4:10-20:2", *SMALL[2:]], [*SMALL[:-1], "9"]):
        look.prompts = prompts
        done = look.run(status=FORBIDDEN)
        assert "holds an investigation over other prompts: there synthetic 4:10-20:1" in done.stderr
        assert " ".join(prompts[1:2]) in done.stderr and f"--new {prompts[-1]}" in done.stderr
    assert json.loads((look.folder / "report.json").read_text())["answer"]["end"] == "clean"


def test_prompts_from_a_file(place, standin):
    """By what it holds: another name is the same file."""
    lines = "".join(json.dumps({"input_ids": [20 + i, *range(30, 40)]}) + "\n" for i in range(3))
    (place.folder / "a.jsonl").write_text(lines)
    look = Look(place, standin, prompts=["--prompts", str(place.folder / "a.jsonl"), "--min-samples", "3", "--new", "4"])
    look.run(status=CLEAN)
    assert (look.folder / "prompts.jsonl").read_text() == lines
    (place.folder / "a.jsonl").rename(place.folder / "b.jsonl")
    look.prompts[1] = str(place.folder / "b.jsonl")
    look.forget_calls()
    look.run(status=CLEAN)
    assert look.calls() == []
    (place.folder / "b.jsonl").write_text(lines.replace("20", "25"))
    assert "over other prompts: there b.jsonl" in look.run(status=FORBIDDEN).stderr


def test_other_weights_under_the_same_name(place, standin):
    """What was measured on the earlier ones is taken again, and not set beside the new ones."""
    model = place.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    look = Look(place, standin)
    look.command = place.command(standin, model=model)
    look.run(status=CLEAN)
    look.forget_calls()
    look.run(status=CLEAN)
    assert look.calls() == []
    (model / "model.safetensors").write_bytes(b"other")
    look.run(status=CLEAN)
    assert look.calls() == CALLS[:2]


def test_a_folder_that_is_taken(place, standin):
    look = Look(place, standin)
    look.folder.mkdir()
    (look.folder / "notes.txt").write_text("mine")
    assert "is not empty and holds no investigation ('notes.txt' lies there)" in look.run(status=FORBIDDEN).stderr
    assert [path.name for path in look.folder.iterdir() if path.name != ".lock"] == ["notes.txt"]
    (look.folder / "notes.txt").unlink()
    look.hold("kl-1")
    process = look.begin()
    wait_for((look.programs / "held-kl-1").exists, 60, "kl")
    second = subprocess.run([*map(str, look.arguments())], env=place.environment(**look.environment), cwd=place.folder, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60)
    assert second.returncode == FORBIDDEN and "another 'kldumpctl investigate' is at work in" in second.stderr
    look.wait_held("kl-1")
    assert process.wait(60) == CLEAN


def test_another_server_between_two_calls(place, standin):
    """Results of different servers are not mixed."""
    look = Look(place, standin, ROWS)
    look.hold("invariance")
    process = look.begin()
    wait_for((look.programs / "held-invariance").exists, 60, "invariance")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    look.wait_held("invariance")
    look.environment["KLDUMP_STANDIN_VERSION"] = "0.5.20"
    done = look.run(status=FORBIDDEN)
    assert "kl-own.json was measured on another server: server.version is '0.5.23' there and '0.5.20' now" in done.stderr
    assert "begin anew with another --dir" in done.stderr
    del look.environment["KLDUMP_STANDIN_VERSION"]
    look.run(status=DIVERGES)
    assert look.end()[0] == "operator"


def test_dumps_that_do_not_fit(place, standin):
    """Refused before the first byte, with the numbers; tried with fewer prompts first."""
    look = Look(place, standin, ROWS, options=["--budget", "1M"], prompts=["--synthetic", "4:150:1", "--min-samples", "4", "--new", "8"])
    done = look.run(status=FORBIDDEN)
    assert "of the byte budget are left (--budget)" in done.stderr
    assert "tried again with 2 of the prompts" in done.stderr and "tried again with 1 of the prompts" in done.stderr
    assert look.states()["capture"] == "failed" and look.states()["diff"] == "not reached"
    why = next(step["why"] for step in look.report()["steps"] if step["step"] == "capture")
    assert "of the byte budget are left (--budget)" in why and why in look.report()["answer"]["text"] + str(look.report()["answer"]["not_measured"])
    assert not list((look.folder / "dumps").glob("capture*"))


# ---- what fails

def test_a_doctor_that_finds_something(place, standin):
    """Nothing is started."""
    look = Look(place, standin)
    with guarded.socket.socket() as taken:
        taken.bind(("127.0.0.1", int(look.command[look.command.index("--port") + 1])))
        taken.listen()
        done = look.run(status=NOT_ARMED)
    assert look.calls() == ["doctor"] and look.states()["doctor"] == "failed"
    assert "failed: port: " in done.stderr and look.end()[0] == "not-started"
    look.run(status=CLEAN)


def test_a_server_that_does_not_start(place, standin):
    look = Look(place, standin, "exit-loading")
    done = look.run(status=NOT_ARMED)
    assert look.states()["kl-own"] == "failed" and look.end()[0] == "not-started"
    assert "has ended (exit status 81)" in done.stderr and str(look.folder / "own.log") in done.stderr


def test_a_run_that_somebody_stops(place, standin):
    """As in 'kldumpctl stop', or a guard that was killed: no error of kldump's own."""
    for number, said in ((signal.SIGKILL, "the guard was killed while the run was loading"), (signal.SIGTERM, "stopped: interrupted")):
        look = Look(place, standin, environment={"KLDUMP_STANDIN_LOAD_MS": "60000"}, folder=f"look-{number}")
        process = look.begin()
        guard = wait_for(lambda: next((pid for pid in place.survivors() if "kldump-run" in guarded.title_of(pid)), None), 30, "the guard")
        wait_for(lambda: states_of_runs(place).get(guard) == "loading", 30, "the server")
        os.kill(guard, number)
        _out, err = process.communicate(timeout=60)
        assert process.returncode == RUN_ENDED and said in err, err
        wait_for(lambda: not place.survivors(), 10, "the end of all")


@pytest.mark.parametrize("text,status,said", [
    ("", USAGE, "what is finished in {} is not known any more, give another --dir: "),
    ('{{"schema": "kldump.investigation/9"}}', FORBIDDEN, "is of another kldump: its schema is kldump.investigation/9, expected ")])
def test_a_state_that_cannot_be_used(place, standin, text, status, said):
    look = Look(place, standin)
    look.folder.mkdir()
    (look.folder / "investigation.json").write_text(text.format())
    assert said.format(look.folder) in look.run(status=status).stderr
    assert look.calls() == [] and (look.folder / "investigation.json").read_text() == text.format()


def test_a_wrapper_that_keeps_its_arguments(place, standin):
    """Under the own flags that is nothing wrong; under those of a dump it is told what it must do."""
    look = Look(place, standin, ROWS)
    script = place.folder / "serve.sh"
    script.write_text(f"#!/bin/sh\nexec {' '.join(look.command)}\n")
    script.chmod(0o755)
    look.command, port = [str(script)], look.command[look.command.index("--port") + 1]
    look.run(status=UNVERIFIED)
    assert look.end()[0] == "own-flags-alone" and port in (look.folder / "own.log").read_text()
    assert "a wrapper must hand $KLDUMP_SGLANG_ARGS to it" in look.report()["answer"]["text"]


def test_a_server_that_dies_of_a_prompt(place, standin):
    """Why is told, and not only that a request got no answer."""
    (place.folder / "a.jsonl").write_text('{"input_ids": [20, 999999999]}\n')  # the model's folder is not there, so its vocabulary is not known
    look = Look(place, standin, prompts=["--prompts", str(place.folder / "a.jsonl"), "--min-samples", "1", "--new", "4"])
    done = look.run(status=RUN_ENDED)
    assert "a request had a token id beyond the vocabulary" in done.stderr and "a request had a token id beyond the vocabulary" in look.report()["answer"]["text"]


def test_output_that_cannot_be_written(place, standin):
    look = Look(place, standin)
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run([*map(str, look.arguments())], env=place.environment(**look.environment), cwd=place.folder, stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode == INTERNAL and "cannot write the output: No space left on device" in done.stderr
    assert look.end()[0] == "clean"


def test_hooks_that_cannot_be_proven(place, standin):
    look = Look(place, standin, f"{ROWS},no-hooks")
    look.run(status=UNVERIFIED)
    assert look.states()["kl-dump"] == "failed" and look.end()[:2] == ("own-flags-alone", "1")


@pytest.mark.parametrize("call,status,rest", [("invariance", INTERNAL, "done"), ("diff", INTERNAL, "failed"), ("capture", INTERNAL, "not reached")])
def test_a_step_that_crashes(place, standin, call, status, rest):
    """It failed; what does not build on it goes on; the next call does it again."""
    look = Look(place, standin, ROWS)
    (look.programs / f"crash-{call}").touch()
    done = look.run(status=status)
    assert look.states()[call] == "failed" and look.states()["diff"] == rest
    assert "failed: it died of signal 9" in done.stderr
    look.forget_calls()
    look.run(status=DIVERGES)
    assert look.end()[0] == "operator" and "kl-1" not in look.calls()


@pytest.mark.parametrize("call, end", [("kl-1", "not-started"), ("diff", "no-dump")])
def test_an_answer_without_numbers(place, standin, call, end):
    """A command that could not begin (its run has just ended) says 1 as well: that is a failure and no answer."""
    look = Look(place, standin, ROWS)
    look.programs.joinpath(f"refuse-{call}").touch()
    look.run(status=INCOMPLETE)
    step = "kl-own" if call == "kl-1" else call
    assert look.states()[step] == "failed" and look.end()[0] == end
    look.run(status=DIVERGES)
    assert look.states()[step] == "done" and look.end()[0] == "operator"


def test_nothing_old_beside_a_step_that_failed(place, standin):
    """A page or script of an earlier call would be taken for that of this one."""
    look = Look(place, standin, ROWS)
    look.run(status=DIVERGES)
    for step, beside in [("diff", "diff.html"), ("invariance", "repro.py")]:
        assert (look.folder / beside).exists()
        (look.folder / f"{step}.json").unlink()
        look.programs.joinpath(f"refuse-{step}").touch()
        look.run(status=INCOMPLETE)
        assert not (look.folder / beside).exists()


def test_nohup(place, standin):
    """A terminal that is closed ends nothing of what was started to outlive it."""
    look = Look(place, standin)
    look.hold("kl-1")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = look.begin()
    signal.signal(signal.SIGHUP, before)
    wait_for((look.programs / "held-kl-1").exists, 60, "kl")
    process.send_signal(signal.SIGHUP)
    look.wait_held("kl-1")
    _out, err = process.communicate(timeout=60)
    assert process.returncode == CLEAN, err


def test_secrets_are_in_no_file(place, standin):
    look = Look(place, standin, flags=["--api-key", "correct-horse-battery"])
    look.environment["KLDUMP_API_KEY"] = "correct-horse-battery"
    done = look.run(status=CLEAN)
    assert "correct-horse" not in done.stdout + done.stderr
    for path in look.folder.rglob("*"):
        assert not path.is_file() or b"correct-horse" not in path.read_bytes(), path


def test_usage(place):
    for options, said in (((), "--"), (("--new", "1", "--", "true"), "--new"), (("--kind", "plain", "--", "true"), "a run of each kind"),
                          (("--prompts", "a", "--synthetic", "1:1:1", "--", "true"), "exclude each other"), (("--nosuch", "--", "true"), "--nosuch")):
        assert said in place.ctl("investigate", *options, status=USAGE).stderr
    few = place.ctl("investigate", "--dir", place.folder / "x", "--synthetic", "2:9:1", "--", "true", status=USAGE)
    assert "2 prompts; at least 32 are wanted" in few.stderr and not (place.folder / "x").exists()
    assert os.listdir(place.folder) == ["r"]
