"""Folders that the tests make once and keep: one lock and one stamp each.

A folder is finished when its stamp says so, and the stamp is written last.  A folder that was begun and never
finished is known by its mark and is emptied before the next try; any other folder is left alone.
"""
import contextlib
import fcntl
import json
import os
import shutil
import sys
from pathlib import Path

STAMP = "kldump-finished.json"
MARK = "kldump-unfinished"
EXIT_MISSING = 3


class Missing(Exception):
    """Something that this machine does not offer; the message is one line that names it."""


class Failed(Exception):
    """An error that is not the machine's lack of something."""


def cache_root():
    """KLDUMP_TEST_CACHE, else kldump below the user's cache folder."""
    if os.environ.get("KLDUMP_TEST_CACHE"):
        return Path(os.environ["KLDUMP_TEST_CACHE"]).resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "kldump"


@contextlib.contextmanager
def locked(directory):
    """Hold DIRECTORY.lock; of several processes one works and the others then find its result."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        lock = open(f"{directory}.lock", "w", encoding="utf-8")
    except OSError as error:
        raise Missing(f"a cache folder that can be written, which KLDUMP_TEST_CACHE may name: {error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for the process that is filling {directory}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def finished(directory):
    """The stamp's content, or None where DIRECTORY is not finished."""
    try:
        return json.loads((directory / STAMP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None


def begin(directory):
    """Make DIRECTORY empty and mark it; Failed where it holds something that is not ours."""
    if directory.exists() and any(directory.iterdir()):
        if not ((directory / MARK).exists() or (directory / STAMP).exists()):
            raise Failed(f"{directory} is not empty and was not made by this program: give another folder")
        shutil.rmtree(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / MARK).touch()


def finish(directory, content):
    """Write the stamp: from here on DIRECTORY is used as it is."""
    unfinished = directory / f"{STAMP}.new"
    unfinished.write_text(json.dumps(content) + "\n", encoding="utf-8")
    unfinished.rename(directory / STAMP)
    (directory / MARK).unlink()


def require_free_space(directory, wanted_bytes):
    directory.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < wanted_bytes:
        raise Missing(f"{wanted_bytes / 2**30:.1f} GiB of free space in {directory}, which has {free_bytes / 2**30:.1f} GiB"
                      " (KLDUMP_TEST_CACHE names another folder)")


def run_as_program(main):
    """Call main and turn its errors into one line and an exit status."""
    try:
        main()
    except Missing as lack:
        print(f"missing: {lack}", file=sys.stderr)
        sys.exit(EXIT_MISSING)
    except Failed as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
