#!/usr/bin/env python3
"""kldumpctl(1) and kldumpd.conf(5) held against the tables they describe: settings.def, rules.def, status.def, commands and their
options.

Run by `make check` in the build folder, with the source folder in $srcdir. Each rule prints how much it looked at.
"""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(os.environ.get("srcdir", "."))
PROGRAM = Path(os.environ.get("KLDUMPCTL", "./kldumpctl")).resolve()
PAGE = SOURCE / "man" / "kldumpctl.1"
page = PAGE.read_text()
faults, counts = [], {}


def check(rule, fine, text):
    counts[rule] = counts.get(rule, 0) + 1
    if not fine:
        faults.append(f"{rule}: {text}")


def rows(path):
    """The X(...) rows of a .def file, as lists of their arguments; string literals next to each other are joined."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
    for row in re.findall(r"^X\((.*?)\)$", text, re.S | re.M):
        row = re.sub(r'"\s*\n\s*"', "", row)
        yield [a.strip().strip('"') for a in re.findall(r'\s*("[^"]*"|[^,"]+)\s*(?:,|$)', row)]


def section(title, text=page):
    """The text of a .Sh or .Ss section."""
    match = re.search(rf"^\.S[hs] {re.escape(title)}\n(.*?)(?=^\.S[hs] |\Z)", text, re.S | re.M)
    return match.group(1) if match else ""


def check_settings():
    options = section("Options of run and start")
    for _, _, flag, metavar, _, fallback, _, _, key, _ in rows(SOURCE / "src" / "conf" / "settings.def"):
        if flag:
            found = re.search(rf"^\.It Fl -{flag} Ar {re.escape(metavar)}\n(.*?)(?=^\.It|^\.El)", options, re.S | re.M)
            check("settings", found, f"--{flag} {metavar} is not in the page")
            check("settings", not fallback or (found and f"default: {fallback}" in found.group(1)),
                  f"--{flag}: the default {fallback} is not in the page")
        if key:
            check("settings", re.search(rf"^\.(It )?Li {key}\b", options, re.M), f"key {key} is not in the page")
    for flag in re.findall(r"^\.It Fl -([a-z-]+) Ar", options, re.M):
        check("settings", any(r[2] == flag for r in rows(SOURCE / "src" / "conf" / "settings.def")),
              f"--{flag} is in the page but no setting")


def check_rules():
    text = (SOURCE / "man" / "kldumpd.conf.5").read_text()
    table = [(row[1], row[2], row[5]) for row in rows(SOURCE / "src" / "conf" / "rules.def")]
    for name, key, fallback in table:
        place = section("[filesystem PATH]" if name == "filesystem" else f"[{name}]", text)
        found = re.search(rf"^\.It Li {key}\n(.*?)(?=^\.It|^\.El)", place, re.S | re.M)
        check("rules", found, f"key {key} of [{name}] is not in kldumpd.conf(5)")
        check("rules", not fallback or (found and f"default: {fallback})" in found.group(1)),
              f"[{name}] {key}: the default {fallback} is not in kldumpd.conf(5)")
    for title in re.findall(r"^\.Ss \[(\w+).*\]$", text, re.M):
        place = section("[filesystem PATH]" if title == "filesystem" else f"[{title}]", text)
        for key in re.findall(r"^\.It Li (\w+)", place, re.M):
            check("rules", any(row[:2] == (title, key) for row in table), f"[{title}] {key} is in kldumpd.conf(5) but no rule")
    told = re.search(r"^\.Li (dir , .*) \.$", section("[defaults]", text), re.M)
    keys = [row[8] for row in rows(SOURCE / "src" / "conf" / "settings.def") if row[8]]
    check("rules", told and sorted(told.group(1).split(" , ")) == sorted(keys), f"[defaults] of kldumpd.conf(5) must name {keys}")


def check_statuses():
    told = re.findall(r"^\.It (\d+)\n(.*)$", section("EXIT STATUS"), re.M)
    real = [(r[1], r[3]) for r in rows(SOURCE / "src" / "base" / "status.def")]
    for row in real:
        check("exit statuses", row in told, f"{row} is not in the page")
    for row in told:
        check("exit statuses", row in real, f"{row} is in the page but not in status.def")


def check_diff():
    """The tables of diff: every proof with its claim, every kind of verdict, every message."""
    text, source = section("diff"), SOURCE / "src" / "analysis"
    for name, _, claim, _ in rows(source / "diff_proofs.def"):
        check("diff", f".It {name} Ta {claim}\n" in text, f"proof {name} with its claim is not in the page")
    for _, word, *_ in rows(source / "diff_kinds.def"):
        check("diff", f".It Li {word} Ta " in text, f"kind {word} is not in the page")
    for name, *_ in rows(source / "diff_messages.def"):
        check("diff", f".It {name} Ta " in text, f"message {name} is not in the page")


def check_investigate():
    """The ends of an investigation, and the exit status of each."""
    text = section("investigate")
    told = re.findall(r"^\.It ([a-z0-9-]+) Ta ", text, re.M)
    real = list(dict.fromkeys(row[0] for row in rows(SOURCE / "src" / "analysis" / "investigation_ends.def")))
    check("ends of investigate", sorted(told) == sorted(real), f"in the page: {told}, in the table: {real}")
    numbers = {name: number for name, number, *_ in rows(SOURCE / "src" / "base" / "status.def")}
    line = re.search(r"^The exit status is 0 for\n(.*?)^and 1 for all others\.$", text, re.S | re.M)
    for row in rows(SOURCE / "src" / "analysis" / "investigation_ends.def"):
        number = numbers[row[8]]
        place = re.search(rf"^\.Li {row[0]}\b", line.group(0), re.M) if line else None
        named = place and re.findall(r"(\d+) for$", line.group(0)[:place.start()], re.M)[-1:]
        check("ends of investigate", named == [number] if number != "1" else not place, f"{row[0]} ends with status {number}")


def help_of(*arguments):
    return subprocess.run([PROGRAM, "help", *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def check_commands():
    listed = help_of()
    names = re.findall(r"^  ([a-z-]+) ", listed[listed.index("Commands:"):], re.M)
    synopsis = section("SYNOPSIS")
    for name in names:
        text = help_of(name)
        described = section(name) + re.findall(rf"^\.Cm {name}\n.*?(?=^\.Nm|\Z)", synopsis + "\n", re.S | re.M)[0] \
            if re.search(rf"^\.Cm {name}$", synopsis, re.M) else ""
        check("commands", section(name), f"{name} has no section")
        check("commands", described, f"{name} is not in the synopsis")
        own = text.split("\nOptions:\n  --name")[0]
        for option in set(re.findall(r"--([a-z][a-z-]+)", own[:own.find("Examples:")] + "\n".join(
                re.findall(r"^  (?:-\w, )?--[a-z-]+.*$", own, re.M)))):
            check("options of commands", f"Fl -{option}" in described or f", -{option}" in described,
                  f"{name} --{option} is not in the page")


def check_format():
    if shutil.which("mandoc") is None:
        print("mandoc is not installed: the form of the pages is not looked at")
        return
    for path in sorted((SOURCE / "man").glob("*.[1-9]")):
        result = subprocess.run(["mandoc", "-Tlint", "-W", "warning", path], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
        check("pages", result.returncode == 0, result.stdout)


check_settings()
check_rules()
check_statuses()
check_diff()
check_investigate()
check_commands()
check_format()
for rule in ("settings", "rules", "exit statuses", "diff", "ends of investigate", "commands", "options of commands"):
    print(f"{rule}: {counts.get(rule, 0)} looked at")
    if counts.get(rule, 0) == 0:
        faults.append(f"{rule}: looked at nothing")
print("\n".join(faults))
sys.exit(1 if faults else 0)
