#!/usr/bin/python3
"""A server with TLS: ends TLS in front of a server without, which it starts with the other arguments.

  tls_front.py --server PYTHON --port PORT --ssl-certfile FILE --ssl-keyfile FILE [ARGUMENTS OF THE SERVER]

A wrapper in kldump's words: it hands $KLDUMP_SGLANG_ARGS on.
"""
import argparse
import os
import socket
import ssl
import subprocess
import sys
import threading
import time

from ports import free_port


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def serve(raw, context, behind):
    try:
        client = context.wrap_socket(raw, server_side=True)
        server = socket.create_connection(("127.0.0.1", behind))
    except OSError:
        raw.close()
        return
    threading.Thread(target=pump, args=(client, server), daemon=True).start()
    pump(server, client)
    client.close()


def accept(listener, context, behind):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0], context, behind), daemon=True).start()


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--server", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--ssl-certfile", required=True)
    parser.add_argument("--ssl-keyfile", required=True)
    options, rest = parser.parse_known_args()
    behind = free_port()  # none of those that the kernel gives to whoever connects, such as us below
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile)
    with subprocess.Popen([options.server, "-m", "sglang.launch_server", "--port", str(behind), *rest,
                           *os.environ["KLDUMP_SGLANG_ARGS"].split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as server:
        while server.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", behind)).close()
                break
            except OSError:
                time.sleep(0.05)
        family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
        listener = socket.create_server((options.host, options.port), family=family)
        threading.Thread(target=accept, args=(listener, context, behind), daemon=True).start()
        for line in server.stdout:  # where the server behind listens is nobody's business
            if b"Uvicorn running on" not in line:
                sys.stdout.buffer.write(line)
                sys.stdout.flush()
        sys.exit(server.wait())


if __name__ == "__main__":
    main()
