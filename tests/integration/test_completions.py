"""Completions as the shells ask for them: commands, options, states and the names of runs."""
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from kldump_programs import BUILD, Place

COMPLETIONS = Path(__file__).resolve().parents[2] / "completions"
COMMANDS = {"run", "start", "list", "status", "dump", "pause", "stop", "wait", "logs", "events", "doctor", "metrics", "check", "show", "diff", "kl", "capture"}
BASH = """source %(file)s
COMP_WORDS=(%(words)s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="${COMP_WORDS[*]}"; COMP_POINT=${#COMP_LINE}
_kldumpctl
printf '%%s\\n' "${COMPREPLY[@]}"
"""
# zsh completes only on a terminal, and only while nobody types on: one is lent to it, and what it shows is read until
# its own widget says that it is done. LISTMAX: all, without a question.
ZSH = """
zmodload zsh/zpty
zpty z env PS1= zsh -f -i
zpty -w z 'autoload -Uz compinit; fpath=(%(folder)s $fpath); compinit -u -D; LISTMAX=1000; COLUMNS=200; LINES=200'
zpty -w z 'show() { zle expand-or-complete; zle -R; print -r -- " SHO""WN $BUFFER END"; }; zle -N show; bindkey "^I" show'
zpty -w z 'print REA"DY"'
while zpty -r z line; do [[ $line == *READY* ]] && break; done
zpty -w -n z '%(line)s'$'\\t'
while zpty -r z line; do print -r -- "$line"; [[ $line == *SHOWN* ]] && break; done
"""


@pytest.fixture(scope="module")
def place():
    with Place() as made:
        made.start_daemon()
        for name in ("alive", "over"):
            made.ctl("start", "--name", name, "--dir", made.folder / name, "--floor", "64M", "--", *made.command())
        made.ctl("stop", "over")
        made.environment["PATH"] = f"{BUILD}:{os.environ['PATH']}"
        yield made


def need(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def ask(place, *words):
    return subprocess.run(words, env={**place.environment, "TERM": "xterm"}, cwd=place.folder, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)


def bash(place, *words):
    quoted = " ".join(f"'{word}'" for word in words)
    done = ask(place, "bash", "--norc", "-c", BASH % {"file": COMPLETIONS / "kldumpctl.bash", "words": quoted})
    assert done.stderr == "", done.stderr
    return set(done.stdout.split())


def zsh(place, *words):
    done = ask(place, "zsh", "-f", "-c", ZSH % {"folder": COMPLETIONS, "line": " ".join(words)})
    assert "SHOWN" in done.stdout, done
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\x07]", "\n", done.stdout)
    return {word for line in shown.splitlines() for word in line.split(" -- ")[0].split()}


def fish(place, *words):
    done = ask(place, "fish", "--no-config", "-c",
               f"source {COMPLETIONS / 'kldumpctl.fish'}; complete -C '{' '.join(words)}'")
    assert done.stderr == "", done.stderr
    return {line.split("\t")[0] for line in done.stdout.splitlines()}


@pytest.mark.parametrize("complete", [bash, zsh, fish], ids=lambda shell: shell.__name__)
def test_what_a_shell_offers(place, complete):
    need(complete.__name__)
    assert COMMANDS <= complete(place, "kldumpctl", "")
    assert {"--name", "--dir", "--floor", "--no-wait", "--help"} <= complete(place, "kldumpctl", "start", "--")
    assert {"--now", "--all"} <= complete(place, "kldumpctl", "stop", "--")
    live = complete(place, "kldumpctl", "stop", "")
    assert "alive" in live and "over" not in live
    assert {"alive", "over"} <= complete(place, "kldumpctl", "logs", "")
    assert {"armed", "ended"} <= complete(place, "kldumpctl", "wait", "alive", "--for", "")
    assert COMMANDS <= complete(place, "kldumpctl", "help", "")
    (place.folder / "some-folder").mkdir(exist_ok=True)
    assert {"some-folder", "some-folder/"} & complete(place, "kldumpctl", "run", "--dir", "some-f")


def test_what_follows_the_dashes_is_a_command(place):
    need("fish")
    assert "kldumpctl" in fish(place, "kldumpctl", "run", "--", "kldumpc")
    (place.folder / "client.py").touch()
    assert "client.py" in bash(place, "kldumpctl", "dump", "alive", "x", "--", "./client", "clie")
