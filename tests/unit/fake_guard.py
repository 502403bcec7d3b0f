#!/usr/bin/python3
"""A guard without a server, for tests of kldumpctl: one run in a runtime folder, or a kldumpd that relays to it.

It speaks the control protocol and follows a script: each answer can be replaced, delayed or broken. Threads serve the
connections; close() ends all of them and leaves the folder as a guard leaves it (lock free, record written)."""
import datetime
import fcntl
import json
import os
import socket
import threading
import time

ARMED = ["armed", "dumping", "sealing"]


class Failure(Exception):
    """An error that the protocol can name."""

    def __init__(self, name, status, message):
        super().__init__(message)
        self.name, self.status, self.message = name, status, message


def run_object(name, **changes):
    run = {
        "name": name, "owner": "tester", "uid": os.getuid(), "state": "armed", "outcome": None, "exit_status": None,
        "pid": 4711, "guard_pid": os.getpid(), "port": 30000, "url": "http://127.0.0.1:30000", "exp": None,
        "dir": "/dumps/" + name, "guarantee": "keeper alone: no writable cgroup", "started_at": "2026-11-29T21:00:00Z",
        "uptime_ms": 83500, "stage": "", "command": ["python3", "-m", "server"], "sglang_version": "0.5.23",
        "proofs": {"verdict": "proven", "text": "1 extend and 2 decode passes", "decode_graphs": "disabled",
                   "prefill_graphs": "disabled", "ranks": 1},
        "costs": {"bytes_per_prefill_token": 268435, "bytes_per_decode_pass": 1258291, "files_per_pass": 312},
        "space": {"path": "/dumps/" + name, "free_bytes": 300 << 30, "floor_bytes": 20 << 30, "act_bytes": 21 << 30,
                  "soft_bytes": None, "budget_bytes": None, "written_bytes": None, "rate_bytes_per_s": 1 << 20,
                  "seconds_to_floor": 285696.25, "tokens_to_floor": 1116000, "reading_age_ms": 10, "interval_ms": 1000},
        "seals": [], "message": "",
    }
    run.update(changes)
    return run


class Server:
    """Lines of JSON on a Unix socket."""

    def __init__(self, path):
        self.path = path
        self.connections = []
        self.broken = {}  # method -> bytes that are sent instead of an answer; b"" closes
        self.calls = []
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(16)
        self.timers = []
        self.closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        file = connection.makefile("rb")
        greeted = False
        try:
            for line in file:
                request = json.loads(line)
                method, params = request["method"], request.get("params", {})
                self.calls.append((method, params))
                if method in self.broken:
                    connection.sendall(self.broken[method])
                    return
                if not greeted and method != "hello":
                    return
                greeted = True
                answer = {"jsonrpc": "2.0", "id": request["id"]}
                try:
                    answer["result"] = {"version": 1} if method == "hello" else self.answer(method, params, connection)
                except Failure as e:
                    answer["error"] = {"code": -32000, "message": e.message,
                                       "data": {"error": e.name, "status": e.status}}
                connection.sendall(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):
            pass
        finally:
            self.gone(connection)
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            file.close()
            connection.close()

    def answer(self, method, params, connection):
        raise NotImplementedError

    def gone(self, connection):
        pass

    def abandon(self):
        """The end of a test, whatever it left."""
        for timer in self.timers:
            timer.join()
        if not self.closing:
            self.stop_serving()

    def later(self, seconds, function):
        self.timers.append(threading.Timer(seconds, function))
        self.timers[-1].start()

    def stop_serving(self):
        self.closing = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        if os.path.exists(self.path):
            os.unlink(self.path)
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Guard(Server):
    def __init__(self, runtime, name, **changes):
        self.folder = os.path.join(runtime, "runs", name)
        for folder in (runtime, os.path.join(runtime, "runs"), self.folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
        self.lock = open(os.path.join(self.folder, "lock"), "w")
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.run = run_object(name, **changes)
        self.events = []
        self.log = ""
        self.changed = threading.Condition()
        self.holder = None
        self.seal_complete = True
        self.on_stop = lambda: self.end("stopped", 0)
        super().__init__(os.path.join(self.folder, "control"))

    def set(self, state, text=None, kind="state", level="info", **changes):
        with self.changed:
            self.run["state"] = state
            self.run.update(changes)
            self._event(text or state, kind, level)

    def _event(self, text, kind="note", level="info"):
        at = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        self.events.append({"n": len(self.events) + 1, "at": at, "uptime_ms": 1000 * len(self.events), "level": level,
                            "kind": kind, "text": text})
        self.changed.notify_all()

    def event(self, text, **more):
        with self.changed:
            self._event(text, **more)

    def say(self, text):
        with self.changed:
            self.log += text
            self.changed.notify_all()

    def _wait(self, milliseconds, is_there):
        end = time.monotonic() + milliseconds / 1000
        while not is_there() and self.run["state"] != "ended":
            left = end - time.monotonic()
            if left <= 0 or self.closing:
                return False
            self.changed.wait(left)
        return True

    def _seal(self, complete=None, by="pause"):
        complete = self.seal_complete if complete is None else complete
        seal = {"experiment": self.run["exp"], "complete": complete, "sealed_by": by,
                "reasons": [] if complete else ["rank 0: dump_index 5 is missing"], "ranks": 1, "steps": 3,
                "files": 936, "bytes": 5 << 20}
        self.run["seals"].append(seal)
        self.run["exp"] = None
        self.run["state"] = "armed"
        self._event("sealed", kind="seal")
        return seal

    def seal_by(self, by):
        """The dump ends by itself."""
        with self.changed:
            if self.run["exp"] is not None:
                self._seal(by=by)

    def answer(self, method, params, connection):
        with self.changed:
            return getattr(self, "do_" + method)(params, connection)

    def do_status(self, _params, _connection):
        return {"run": self.run}

    def do_dump(self, params, connection):
        if self.run["state"] not in ARMED:
            raise Failure("state", 1, "run %s is %s; wait until it is armed" % (self.run["name"], self.run["state"]))
        self.run["state"], self.run["exp"] = "dumping", params["experiment"]
        self.holder = connection if params.get("hold") else None
        self._event("dumping", kind="dump")
        if params.get("for_ms"):
            self.later(params["for_ms"] / 1000, lambda: self.seal_by("limit"))
        return {"experiment": params["experiment"], "dir": self.run["dir"], "ranks": 1}

    def do_pause(self, params, _connection):
        wanted = params.get("experiment", self.run["exp"])
        if wanted != self.run["exp"]:
            for seal in reversed(self.run["seals"]):
                if seal["experiment"] == wanted:
                    return seal
        if self.run["exp"] is None or wanted != self.run["exp"]:
            raise Failure("state", 1, "run %s is not dumping" % self.run["name"])
        return self._seal()

    def do_stop(self, params, _connection):
        state = self.run["state"]
        if state == "ended":
            return {"state": state}
        state = self.run["state"] = "stopping"
        self._event("stopping", kind="stop")
        self.later(0.2, self.on_stop)
        return {"state": state}

    def do_wait(self, params, _connection):
        self._wait(params["timeout_ms"], lambda: self.run["state"] == params["for"])
        if self.run["state"] not in ("ended", params["for"]):
            raise Failure("timeout", 89, "run %s is still %s" % (self.run["name"], self.run["state"]))
        return {"run": self.run}

    def do_events(self, params, _connection):
        after = params.get("after", 0)
        self._wait(params.get("wait_ms", 0), lambda: len(self.events) > after)
        return {"events": self.events[after:], "next": max(after, len(self.events)),
                "ended": self.run["state"] == "ended"}

    def do_logs(self, params, _connection):
        offset = params.get("offset", 0)
        self._wait(params.get("wait_ms", 0), lambda: len(self.log) > offset)
        text = self.log[offset:offset + 4096]
        return {"offset": offset, "next_offset": offset + len(text), "text": text,
                "ended": self.run["state"] == "ended"}

    def gone(self, connection):
        with self.changed:
            if connection is self.holder:
                self.holder = None
                if self.run["exp"] is not None:
                    self._seal()

    def end(self, outcome, status, message=""):
        """The end of a run as a guard makes it: the state, answers, the record, then the socket and the lock."""
        with self.changed:
            self.run.update(state="ended", outcome=outcome, exit_status=status, message=message, pid=None)
            self._event("ended: " + outcome, kind="end")
        time.sleep(0.1)  # answers go out
        self.close()

    def abandon(self):
        super().abandon()
        self.lock.close()

    def close(self):
        """The end of the process; the record says what the run was last."""
        with self.changed:
            record = {"schema": "kldump.record/1", "run": self.run, "settings": {}, "notes": [], "events": self.events,
                      "seals": self.run["seals"], "space_history": []}
            with open(os.path.join(self.folder, "record.json"), "w") as f:
                json.dump(record, f)
            with open(os.path.join(self.folder, "server.log"), "w") as f:
                f.write(self.log)
            self.changed.notify_all()
        self.stop_serving()
        self.lock.close()


class Daemon(Server):
    """kldumpd: starts a fake guard elsewhere and relays to it."""

    def __init__(self, runtime, guards=()):
        self.runtime = runtime
        os.makedirs(runtime, mode=0o700, exist_ok=True)
        self.guards = {g.run["name"]: g for g in guards}
        self.on_start = None
        self.others = []  # run objects of runs that cannot be asked anything
        self.more = {}    # members of the answer to list
        self.refusal = None
        super().__init__(os.path.join(runtime, "control"))

    def answer(self, method, params, connection):
        if self.refusal is not None:
            raise self.refusal
        if method == "list":
            return {"runs": [g.run for g in self.guards.values()] + self.others, **self.more}
        if method == "start":
            guard = self.on_start(params)
            self.guards[guard.run["name"]] = guard
            return {"run": guard.run["name"]}
        guard = self.guards.get(params.get("run"))
        if "uid" in params:
            same = [g for g in self.guards.values() if (g.run["name"], g.run["uid"]) == (params["run"], params["uid"])]
            guard = same[0] if same else None
        if guard is None:
            raise Failure("no-run", 87, "there is no run %s" % params.get("run"))
        return guard.answer(method, {k: v for k, v in params.items() if k not in ("run", "uid")}, connection)
