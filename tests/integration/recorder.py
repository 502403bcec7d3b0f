"""A proxy in front of a server that keeps what clients send to it, in their order."""
import contextlib
import http.client
import http.server
import json
import threading

LIMIT_S = 300


class Recorder(http.server.ThreadingHTTPServer):
    """Hands every request on to PORT, and keeps those that change something."""
    daemon_threads = True

    def __init__(self, port):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.kept = port, []
        self.look = lambda path, body: None  # called for each that is kept
        self.missing = set()  # paths that this server does not have

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def pass_on(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.command == "POST" and self.path.split("?")[0] in ("/generate", "/flush_cache"):
            self.server.kept.append((self.path, json.loads(body) if body else None))
            self.server.look(*self.server.kept[-1])
        if self.path.split("?")[0] in self.server.missing:
            self.send_error(404)
            return
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=LIMIT_S)
        connection.request(self.command, self.path, body, {"Content-Type": self.headers.get("Content-Type") or "application/json"})
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        connection.close()

    do_GET = do_POST = pass_on

    def log_message(self, *_ignored):
        pass


@contextlib.contextmanager
def recording(port):
    recorder = Recorder(port)
    thread = threading.Thread(target=recorder.serve_forever, daemon=True)
    thread.start()
    try:
        yield recorder
    finally:
        recorder.shutdown()
        recorder.server_close()
        thread.join()
