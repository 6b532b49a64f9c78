"""Ports for servers of tests."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

import pytest

HOST = "127.0.0.1"
RANGE = range(10_000, 20_000)
"""Below the ports that systems hand to outgoing connections: one of those could take a port before the server has it. The
embedded broker's ports are others, too."""


def free_ports(count: int, host: str = HOST) -> list[int]:
    """Ports side by side that nobody has, and that stay free."""
    for first in random.sample(RANGE[:-count], 200):
        ports = [first + i for i in range(count)]
        try:
            with ExitStack() as stack:
                for port in ports:
                    stack.enter_context(socket.create_server((host, port)))
        except OSError:
            continue
        return ports
    raise OSError("no port is free")


def free_port() -> int:
    """A port that nobody has, and that stays free."""
    return free_ports(1)[0]


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


needs_ipv6 = pytest.mark.skipif(not _has_ipv6(), reason="this host has no IPv6")
