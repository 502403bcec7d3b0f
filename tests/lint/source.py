#!/usr/bin/env python3
"""Lint of the C sources: arrows between rooms, library users, file and function sizes, symbol names, banned calls.

Run by `make check` in the build folder, with the source folder in $srcdir.

Each rule prints how much it looked at: a rule that looked at nothing fails.
"""
import os
import re
import subprocess
import sys
from pathlib import Path

SOURCE, BUILD = Path(os.environ.get("srcdir", ".")).resolve(), Path.cwd()
FILE_LINES, FUNCTION_LINES = 600, 80

# Room -> rooms whose headers it may include (HACKING.md has the reasons). A file of a room may always use its own room.
ARROWS = {
    "base": set(),
    "json": {"base"},
    "conf": {"base"},
    "pt": {"base"},
    "core": {"base", "conf"},
    "sglang": {"base", "core", "json"},
    "analysis": {"base", "pt", "sglang", "json", "core/audit.h"},
    "sys": {"base", "conf", "json", "core"},
    "http": {"base", "conf", "core"},
    "loop": {"base", "conf", "core", "sys", "http", "json"},
    "ctl": {"base", "conf", "core", "sglang", "sys", "http", "json", "pt", "analysis"},
    "programs": {"base", "conf", "core", "sglang", "sys", "loop", "ctl"},
}
# Library header -> the only rooms that may include it.
LIBRARIES = {
    r"uv\.h": {"loop"},
    r"curl/.*": {"http"},
    r"cjson/.*|cJSON\.h": {"json"},
    r"ini\.h": {"conf"},
    r"systemd/.*": {"sys"},
}
# No system calls, clocks or I/O where decisions are made.
PURE = {"base", "conf", "core", "sglang"}
IMPURE_HEADERS = r"unistd\.h|fcntl\.h|sys/(socket|stat|mman|wait|ioctl|epoll)\.h|time\.h|sys/time\.h|signal\.h|pthread\.h|dirent\.h"
EXCEPTIONS = {("sglang", "signal.h")}  # numbers of signals, to explain an exit
BANNED = r"\b(system|popen|strcpy|strcat|sprintf|gets|atoi|atol|strtok|tmpnam|mktemp|alloca)\s*\("

faults = []
counts = {}


def count(rule, number=1):
    counts[rule] = counts.get(rule, 0) + number


def fault(path, line, text):
    faults.append(f"{path.relative_to(SOURCE)}:{line}: {text}")


def room_of(path):
    return path.relative_to(SOURCE / "src").parts[0]


def without_comments_and_strings(text):
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group(0)), text, flags=re.S)


def check_includes(path, text):
    room = room_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        own = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        system = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        if own:
            name = own.group(1)
            count("includes")
            target = name.split("/")[0] if "/" in name else None
            if target is None:
                if name != "config.h":
                    fault(path, number, f'"{name}" is written without its room')
            elif target != room and target not in ARROWS[room] and name not in ARROWS[room]:
                fault(path, number, f"{room} may not use {target} ({name})")
            if name.endswith("_private.h") and target != room:
                fault(path, number, f"{name} is private to {target}")
        elif system:
            for pattern, rooms in LIBRARIES.items():
                if re.fullmatch(pattern, system.group(1)) and room not in rooms:
                    fault(path, number, f"<{system.group(1)}> may be included in {', '.join(rooms)} only")
            if room in PURE and (room, system.group(1)) not in EXCEPTIONS and re.fullmatch(IMPURE_HEADERS, system.group(1)):
                fault(path, number, f"{room} does no I/O: <{system.group(1)}>")


def check_functions(path, text):
    start, name = None, ""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if line == "{":
            start, name = number, lines[number - 2].strip()
        elif line == "}" and start is not None:
            count("functions")
            if number - start - 1 > FUNCTION_LINES:
                fault(path, start, f"{number - start - 1} lines in one function (limit {FUNCTION_LINES}): {name}")
            start = None


def check_file(path):
    raw = path.read_text(encoding="utf-8")
    text = without_comments_and_strings(raw)
    count("files")
    if raw.count("\n") > FILE_LINES:
        fault(path, 1, f"{raw.count(chr(10))} lines (limit {FILE_LINES})")
    check_includes(path, raw)
    if path.suffix == ".c":
        check_functions(path, text)
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(BANNED, line):
            fault(path, number, "a call that is not used here: " + re.search(BANNED, line).group(1))
    for number, line in enumerate(raw.splitlines(), 1):
        if room_of(path) != "sglang" and re.search(r'"[^"]*--(disable|enable)-', line):
            fault(path, number, "a flag of the server: what is known of SGLang stands in src/sglang")
        if re.search(r"\b(TODO|FIXME|XXX)\b", line):
            fault(path, number, "an open end")


def check_symbols():
    """Every symbol that leaves its file begins with the stem of a file of the same room."""
    for archive in sorted(BUILD.glob("lib*.a")):
        room = archive.stem[3:]
        if room not in ARROWS:
            continue
        stems = {p.stem for p in (SOURCE / "src" / room).glob("*.[ch]")}
        out = subprocess.run(["nm", "-A", "-g", "--defined-only", archive], capture_output=True, text=True, check=True).stdout
        for line in out.splitlines():
            match = re.match(r".*?:(?:\w+-)?([\w-]+)\.o:\S+ \w (\S+)", line)
            if not match:
                continue
            symbol = match.group(2)
            count("symbols")
            if symbol.startswith(("__asan", "__ubsan", "__odr_asan", "__tsan")):
                continue
            stem = match.group(1).removeprefix(f"lib{room}_a-")
            candidates = stems | {stem}
            if not any(symbol == s or symbol.startswith(s + "_") for s in candidates):
                faults.append(f"src/{room}: symbol {symbol} of {match.group(1)} does not begin with a file's stem")


def check_tests_are_registered():
    makefiles = "\n".join(p.read_text() for p in (SOURCE / "tests").rglob("*.mk"))
    for path in sorted((SOURCE / "tests").rglob("test_*.c")):
        count("tests")
        if not re.search(rf"\b{path.stem}\b", makefiles):
            fault(path, 1, "this test is in no local.mk: nobody runs it")
    for path in sorted((SOURCE / "tests").rglob("*.py")):
        if not re.search(rf"\b{path.relative_to(SOURCE)}\b", makefiles):
            fault(path, 1, "this file is in no local.mk: the release has it not")


def main():
    for path in sorted((SOURCE / "src").rglob("*.[ch]")):
        check_file(path)
    check_symbols()
    check_tests_are_registered()
    print(", ".join(f"{number} {rule}" for rule, number in sorted(counts.items())))
    for rule in ("files", "includes", "functions", "symbols", "tests"):
        if not counts.get(rule):
            faults.append(f"the rule about {rule} looked at nothing")
    for text in faults:
        print(text)
    sys.exit(1 if faults else 0)


main()
