"""What servers that were killed leave in /dev/shm."""
import contextlib
import re
from pathlib import Path


def found():
    """The server's own counters and the semaphores of multiprocessing."""
    return {path for pattern in ("sem.mp-*", "sglang_loads_*", "sem.loky-*") for path in Path("/dev/shm").glob(pattern)}


def is_of_a_live_standin(path):
    """A stand-in maps nothing, but its files have its number in their names: another test may be at it."""
    named = re.fullmatch(r"sglang_loads_([0-9a-f]{12})_[0-9a-f]{8}\.shm|sem\.loky-([0-9]+)-standin", path.name)
    return named is not None and Path(f"/proc/{named[2] or int(named[1], 16)}").exists()


def remove(paths):
    """Those that no living process has mapped."""
    mapped = ""
    for maps in Path("/proc").glob("[0-9]*/maps") if paths else ():
        with contextlib.suppress(OSError):
            mapped += maps.read_text(errors="replace")
    for path in paths:
        if str(path) not in mapped and not is_of_a_live_standin(path):
            with contextlib.suppress(OSError):
                path.unlink()
