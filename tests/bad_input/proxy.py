"""A TCP proxy before a broker. It can be down while the broker is up, lose requests, and pass for an older broker.

client ──▶ proxy ──▶ broker       requests as they are
client ◀── proxy ◀── broker       the broker's port is replaced by the proxy's, and what it says of its versions is cut
"""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress

API_VERSIONS, METADATA, LIST_OFFSETS, SASL_HANDSHAKE = 18, 3, 2, 17
KAFKA_2_7 = {METADATA: 9}
"""The highest version of requests, where it matters here: topics have ids from version 10 on."""


class Proxy:
    """Listens once it is told to, on a port that it has from the beginning."""

    def __init__(self, brokers: str) -> None:
        host, _, port = brokers.partition(":")
        self.upstream = host, int(port)
        self.highest: dict[int, int] = {}
        self.lost: set[int] = set()
        """What is asked of the broker, and never answered."""
        self.cuts: set[int] = set()
        """What ends the connection."""
        self.address = f"{host}:{free_port(host)}"
        self._ours = struct.pack(">i", int(self.address.partition(":")[2]))
        self._socket: socket.socket | None = None

    def listen(self) -> None:
        """Be up."""
        host, _, port = self.address.partition(":")
        self._socket = socket.create_server((host, int(port)))
        threading.Thread(target=self._accept, args=(self._socket,), daemon=True).start()

    def close(self) -> None:
        """Be down for those who come."""
        if self._socket is not None:
            self._socket.close()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                broker = socket.create_connection(self.upstream)
                asked: dict[int, int] = {}
                for pump in (self._requests, self._answers):
                    threading.Thread(target=pump, args=(client, broker, asked), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        with suppress(OSError), client, broker:
            while frame := read_frame(client):
                api, version, correlation = struct.unpack_from(">hhi", frame)
                if api in self.cuts:
                    return
                if api == API_VERSIONS:
                    asked[correlation] = version
                if api not in self.lost:
                    broker.sendall(struct.pack(">i", len(frame)) + frame)

    def _answers(self, client: socket.socket, broker: socket.socket, asked: dict[int, int]) -> None:
        host, port = self.upstream
        theirs = host.encode() + struct.pack(">i", port)
        with suppress(OSError), client, broker:
            while frame := read_frame(broker):
                (correlation,) = struct.unpack_from(">i", frame)
                if (version := asked.pop(correlation, None)) is not None:
                    frame = cut(frame, version, self.highest)
                frame = frame.replace(theirs, host.encode() + self._ours)
                client.sendall(struct.pack(">i", len(frame)) + frame)


def free_port(host: str) -> int:
    """A port that stays free: it is below those that systems hand to outgoing connections."""
    for port in random.sample(range(20_000, 32_000), 100):
        with suppress(OSError), socket.create_server((host, port)):
            return port
    raise OSError("no port is free")


def read_frame(connection: socket.socket) -> bytes:
    """The next request or answer, without its length; nothing at the end."""
    size = read_exactly(connection, 4)
    return read_exactly(connection, struct.unpack(">i", size)[0]) if size else b""


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        if not (more := connection.recv(size - len(data))):
            return b""
        data += more
    return data


def cut(frame: bytes, version: int, highest: dict[int, int]) -> bytes:
    """An answer to ApiVersions that names no version above the highest.

    correlation (4 bytes) · error (2) · how many · for each: api (2), lowest (2), highest (2) [· tags] · …
    """
    flexible = version >= 3
    if flexible:
        at, count, shift = 6, 0, 0
        while True:
            byte = frame[at]
            at, count, shift = at + 1, count | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                break
        count -= 1
    else:
        (count,), at = struct.unpack_from(">i", frame, 6), 10
    answer = bytearray(frame)
    for place in range(at, at + count * (7 if flexible else 6), 7 if flexible else 6):
        api, lowest, top = struct.unpack_from(">hhh", frame, place)
        struct.pack_into(">hhh", answer, place, api, lowest, min(top, highest.get(api, top)))
    return bytes(answer)
