"""Ports for servers that are started a moment later."""
import contextlib
import random
import socket
from pathlib import Path


def free_port():
    """Below those that the kernel gives away by itself: one of these could be somebody's before our server binds it, which
    for a real one is a minute later."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    while True:
        port = random.randrange(10240, lowest) if lowest > 16384 else 0
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return probe.getsockname()[1]
