#!/usr/bin/env python3
"""Plants bugs in copies of the run machine and requires that the simulation finds each, by the rule that it breaks.

Run by `make check` in the build folder, with the source folder in $srcdir. Each row of BUGS is one bug: the file below
src/core, a text that is in it exactly once, what is put in its place, and the rules of which the simulation must name one.
A trace must be shrunk to a few happenings.
"""
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE, BUILD = Path(os.environ.get("srcdir", ".")).resolve(), Path.cwd()
RUNS, HAPPENINGS, LIMIT_S = 60000, 8, 300

BUGS = [
    ("run_start.c", "run_ask(c, VERIFY_ENABLE, SERVER_ENABLE, run->settings.probe_experiment);",
     'run_ask(c, VERIFY_ENABLE, SERVER_ENABLE, "dump");',
     ["nothing but the probe is enabled before the run is armed"]),
    ("run_start.c", "if (answer->ok && run->settings.plain)", "if (answer->ok && run->settings.plain && run->pid == 0)",
     ["a plain run asks nothing of the dumper"]),
    ("run_start.c", "    run_enter(c, RUN_LAUNCHING, LAUNCH_CLEAN);\n    run_add(c, RUN_DO_KILL);",
     "    run_enter(c, RUN_LAUNCHING, STEP_NONE);\n    run_add(c, RUN_DO_LAUNCH);",
     ["launched again only when nothing lives"]),
    ("run_watch.c", "if (now->dump_index >= seen->rank[i].dump_index && now->step >= seen->rank[i].step)",
     "if (now->step >= seen->rank[i].step)",
     ["a reset voids the proofs"]),
    ("run_watch.c", "run->last.rank[i].step < run->base.rank[i].step + run->passes_end",
     "run->last.rank[i].step + 1 < run->base.rank[i].step + run->passes_end",
     ["a dump ends by itself when it was asked to, not before"]),
    ("run_watch.c", "        lost = busy < most ? busy : most;", "        lost = busy;",
     ["a dumper that does not answer is given up"]),
    ("run_watch.c", "        external(c, rank->experiment, run->revoked ? &run->seen : &base);", "        return;",
     ["what somebody else switched on is guarded"]),
    ("run_dump.c", "bool quiet = off && run->quiet_once && same;", "bool quiet = off && same;",
     ["the audit begins when it is quiet"]),
    ("run_dump.c", "    run_reply(c, run->dump_request, code, \"%s\", text);\n    run->dump_request = 0;\n    run_dump_rest",
     "    run_reply(c, run->dump_request, code, \"%s\", text);\n    run_dump_rest",
     ["a request is answered once"]),
    ("run_dump.c", "    if (!run->hold)\n        return;\n    run_note", "    if (run->hold)\n        return;\n    run_note",
     ["a dump does not outlive its holder"]),
    ("run_space.c", "if (run->space == SPACE_UNMEASURABLE || !run_space_refuses(run, &by, text, sizeof text))",
     "if (run->space != SPACE_FINE || !run_space_refuses(run, &by, text, sizeof text))",
     ["no dump goes on at the soft level"]),
    ("run_space.c", "    return since + run->settings.blind_limit_ms * RUN_MS;",
     "    return since + 2 * run->settings.blind_limit_ms * RUN_MS;",
     ["no dump goes on blind"]),
    ("run_space.c", "    run_space_survey(c);\n    end_dump(c);", "    run_space_survey(c);",
     ["no dump goes on over the budget"]),
    ("run_space.c", "bool more = run->written_bytes > run->settled_bytes;", "bool more = false;",
     ["bytes that come over the budget end the run"]),
    ("run_suspend.c", "&run->unanswered_ns,", "",
     ["a dumper that lives is not given up"]),
    ("run_end.c", "if (run->outcome == RUN_OUTCOME_NONE || (graver && run->outcome != RUN_OUTCOME_UNKILLABLE))",
     "if (run->outcome == RUN_OUTCOME_NONE)",
     ["the floor is the outcome"]),
]


def from_makefile(name):
    match = re.search(rf"^{name} = (.*)$", (BUILD / "Makefile").read_text(), re.M)
    return shlex.split(match.group(1)) if match else []


def plant(folder, bug):
    """One simulation with this bug in it: the fault as text, or None."""
    name, original, replacement, rules = bug
    text = (SOURCE / "src/core" / name).read_text()
    if text.count(original) != 1:
        return f"{name}: found {text.count(original)} times, expected once: {original}"
    copy, program = folder / name, folder / "sim_run"
    copy.write_text(text.replace(original, replacement))
    objects = sorted(str(path) for path in (BUILD / "tests/sim").glob("sim_run-*.o"))
    command = [*from_makefile("CC"), *from_makefile("CFLAGS"), *from_makefile("KLDUMP_CFLAGS"), "-w", "-D_GNU_SOURCE", "-iquote", str(SOURCE / "src"),
               "-o", str(program), str(copy), *objects, *from_makefile("LDFLAGS"), "libcore.a", "libbase.a", "-lpthread"]
    built = subprocess.run(command, cwd=BUILD, capture_output=True, text=True)
    if built.returncode != 0:
        return f"{name}: {original}: does not build: {built.stderr[-600:]}"
    ran = subprocess.run([program, str(RUNS)], capture_output=True, text=True, timeout=LIMIT_S)
    found = re.search(r"broken rule: (.*)", ran.stdout)
    if ran.returncode != 1 or not found:
        return f"{name}: not found in {RUNS} runs: {original}\n{ran.stdout[-400:]}"
    if found.group(1) not in rules:
        return f"{name}: {original}: expected {rules}, found:\n{ran.stdout[-2000:]}"
    left = int(re.search(r"shrunk from \d+ happenings to (\d+)", ran.stdout).group(1))
    if left > HAPPENINGS:
        return f"{name}: {original}: {left} happenings are left, expected at most {HAPPENINGS}:\n{ran.stdout[-3000:]}"
    print(f"found: {name}: {found.group(1)} ({left} happenings)")
    return None


def main():
    if not list((BUILD / "tests/sim").glob("sim_run-*.o")):
        print("no objects of tests/sim/sim_run in the build folder")
        return 1
    with tempfile.TemporaryDirectory(prefix="kldump-planted-") as top:
        folders = [Path(top) / str(number) for number in range(len(BUGS))]
        for folder in folders:
            folder.mkdir()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            faults = [fault for fault in pool.map(plant, folders, BUGS) if fault]
    for fault in faults:
        print(fault)
    print(f"{len(BUGS) - len(faults)} of {len(BUGS)} planted bugs found")
    return 1 if faults or len(BUGS) < 10 else 0


sys.exit(main())
