#!/usr/bin/python3
"""Stands for kldump-run beside a copy of kldumpd: says and does what the plan's last argument, JSON, tells.

say: the line on standard output; exit: status to end with after it; late: seconds until the socket is there, or the file
in the plan's folder that it waits for; hello: false
keeps silent on connections; state, record: what the record says; answers: result or error by method, null closes the
connection, "silence" never answers, "end" ends the run (and its process `going` seconds, or as for late, after its lock is free), "long" is more than a frame. What it sees goes to NAME.seen in the folder of the plan.
"""
import fcntl
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path


def main():
    plan = json.load(sys.stdin)
    orders = json.loads(plan["arguments"][-1])
    name = orders["name"]
    seen_path = Path(plan["directory"]) / f"{name}.seen"
    seen_lock = threading.Lock()

    def see(**what):
        with seen_lock, open(seen_path, "a") as file:
            file.write(json.dumps(what) + "\n")

    see(event="start", pid=os.getpid(), environment=dict(os.environ), arguments=sys.argv[1:], session=os.getsid(0),
        descriptors={fd: os.readlink(f"/proc/self/fd/{fd}") for fd in sorted(os.listdir("/proc/self/fd"), key=int)
                     if os.path.exists(f"/proc/self/fd/{fd}") or int(fd) < 3},
        plan_environment=plan["environment"])
    def pause(until):
        while isinstance(until, str) and not (Path(plan["directory"]) / until).exists():
            time.sleep(0.01)
        time.sleep(0 if isinstance(until, str) else until)

    folder = Path(os.environ["KLDUMP_RUNTIME_DIR"]) / "runs" / name
    if "exit" not in orders:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = open(folder / "lock", "w")
        fcntl.flock(lock, fcntl.LOCK_EX)  # kldumpd looks at it now and then

    def record(state, **more):
        run = {"name": name, "owner": "me", "uid": os.getuid(), "state": state, "outcome": None, "exit_status": None,
               "pid": None, "guard_pid": os.getpid(), **more}
        text = json.dumps({"schema": "kldump.record/1", "run": run, "events": orders.get("events", [])})
        (folder / "record.new").write_text(orders.get("record", text))
        (folder / "record.new").rename(folder / "record.json")

    if "exit" not in orders:
        record(orders.get("state", "armed"))
    if "say" in orders:
        print(orders["say"], flush=True)
    if "exit" in orders:
        sys.exit(orders["exit"])
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    pause(orders.get("late", 0))

    def end():
        time.sleep(0.3)
        record("ended", outcome="stopped", exit_status=0)
        lock.close()
        see(event="unlocked")
        pause(orders.get("going", 0))
        os._exit(0)

    def serve(connection, number):
        stream = connection.makefile("rwb")
        see(event="connected", connection=number)
        for line in stream:
            request = json.loads(line)
            see(event="request", connection=number, method=request["method"], params=request["params"])
            answer = {"result": {"version": 1, "program": "fake"}}
            if request["method"] != "hello":
                answer = orders.get("answers", {}).get(request["method"], {"result": {"run": {"name": name}}})
            if answer == "silence" or orders.get("hello") is False:
                continue
            if answer == "end":
                threading.Thread(target=end).start()
                answer = None
            if answer is None:
                break
            if answer == "long":
                answer = "x" * (1024 * 1024 + 10)
            text = answer if isinstance(answer, str) else json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer})
            stream.write(text.encode() + b"\n")
            stream.flush()
        see(event="closed", connection=number)
        stream.close()
        connection.close()

    listener = socket.socket(socket.AF_UNIX)
    (folder / "control").unlink(missing_ok=True)  # of an older guard
    listener.bind(str(folder / "control"))
    listener.listen()
    number = 0
    while True:
        connection = listener.accept()[0]
        number += 1
        threading.Thread(target=serve, args=(connection, number), daemon=True).start()


main()
