"""Client quotas of a broker: Kafka's own request, which the client here has no call for."""

from __future__ import annotations

import socket
import struct

ALTER_CLIENT_QUOTAS = 49


def set_producer_quota(brokers: str, client_id: str, bytes_per_second: float | None) -> None:
    """How much clients of this id may write; None: as much as they like."""
    entity = struct.pack(">i", 1) + _string("client-id") + _string(client_id)
    change = struct.pack(">i", 1) + _string("producer_byte_rate")
    change += struct.pack(">d?", bytes_per_second or 0.0, bytes_per_second is None)
    request = struct.pack(">hhi", ALTER_CLIENT_QUOTAS, 0, 1) + _string("test") + struct.pack(">i", 1) + entity + change
    host, port = brokers.split(":")
    with socket.create_connection((host, int(port)), 10) as line:
        body = request + struct.pack(">?", False)
        line.sendall(struct.pack(">i", len(body)) + body)
        answer = line.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _, _, count, error = struct.unpack(">iiih", answer.read(size)[:14])
    assert (count, error) == (1, 0), f"the broker refuses the quota: error {error}"


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
