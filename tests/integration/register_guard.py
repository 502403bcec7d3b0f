"""A guard that only calls in at kldumpd's register and lets a child of its write: for tests of what the daemon does to
those whose own guard does nothing. Usage: register_guard.py REGISTER NAME FOLDER BYTES_PER_S FLOOR CLAIMED_BYTES [USER]
Prints "ok", or what the daemon said, then goes on until it is killed; its child dies with it.
With a seventh argument it is of that user while it calls in, then of root, and at USR1 of that user for good."""
import ctypes
import json
import os
import signal
import socket
import sys
import time


def write(folder, name, rate):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    block, due = bytes(256 * 1024), time.monotonic()
    with open(f"{folder}/{name}.bin", "wb", buffering=0) as out:
        while True:
            try:
                out.write(block)
            except OSError:
                pass
            due += len(block) / rate
            time.sleep(max(0, due - time.monotonic()))


def main():
    register, name, folder, rate, floor, claimed = sys.argv[1:7]
    user = int(sys.argv[7]) if len(sys.argv) > 7 else os.getuid()
    control = socket.socket(socket.AF_UNIX)
    path = f"{register}.{name}"
    control.bind(path)
    descriptors = [os.open(folder, os.O_PATH | os.O_DIRECTORY), os.open(path, os.O_PATH)]
    os.unlink(path)
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    os.setresuid(user, user, -1)
    link.connect(register)
    run = {"state": "armed", "space": {"floor_bytes": int(floor), "written_bytes": int(claimed), "rate_bytes_per_s": int(claimed)}}
    socket.send_fds(link, [json.dumps({"version": 1, "name": name, "run": run}).encode()], descriptors)
    answer = json.loads(link.recv(65536))
    if answer.get("ok") and int(rate) > 0 and os.fork() == 0:
        write(folder, name, int(rate))
    if user != os.getresuid()[2]:
        os.setresuid(0, 0, 0)
        signal.signal(signal.SIGUSR1, lambda *_: os.setresuid(user, user, user))
    print("ok" if answer.get("ok") else json.dumps(answer), flush=True)
    while True:
        link.recv(65536) or time.sleep(0.1)


if __name__ == "__main__":
    main()
