"""Kafka's requests and responses, as far as the proxy must read them.

    request     size (4 bytes) · api (2) · version (2) · correlation (4) · client id · [tags] · body
    response    size (4 bytes) · correlation (4) · [tags] · body

A frame here is one of them whole, its size included. The body of a transactional request begins with the transactional id.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple


class Api(IntEnum):
    """The requests that clients send."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


NAMES = {int(api): api.name.title().replace("_", "") for api in Api}


def shown(api: int) -> str:
    """An API's name as Kafka writes it.

    >>> shown(26), shown(999)
    ('EndTxn', 'api 999')
    """
    return NAMES.get(api, f"api {api}")


def named(name: str) -> Api:
    """The API of a name. Raises ValueError.

    >>> named("TxnOffsetCommit")
    <Api.TXN_OFFSET_COMMIT: 28>
    """
    known = {name.lower(): Api(api) for api, name in NAMES.items()}
    if name.lower() not in known:
        raise ValueError(f"{name!r} is not one of {', '.join(NAMES.values())}")
    return known[name.lower()]


FLEXIBLE = {
    Api.PRODUCE: 9,
    Api.INIT_PRODUCER_ID: 2,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.ADD_OFFSETS_TO_TXN: 3,
    Api.END_TXN: 3,
    Api.TXN_OFFSET_COMMIT: 3,
}
"""Transactional requests, and from which version on their header has tags and their strings are compact."""

BY_BROKERS = 4
"""From this version on AddPartitionsToTxn is sent by brokers, and begins otherwise."""


class Request(NamedTuple):
    """What the proxy knows of a request."""

    api: int
    version: int
    correlation: int
    transactional_id: str = ""
    commits: bool = False
    """Of an EndTxn: whether it is to commit."""
    connection: int = 0
    """The number of its connection, counted from 1."""
    broker: int = 0
    """The place of its broker among those that the proxy was told of."""
    nth: int = 0
    """How many requests of this API had come when it came, itself included."""


def request_of(frame: bytes) -> Request:
    """Read a request.

    >>> body = b"\\0\\5app.0" + bytes(10) + b"\\1"
    >>> header = struct.pack(">hhih", 26, 1, 7, -1)
    >>> request = request_of(struct.pack(">i", len(header + body)) + header + body)
    >>> request.transactional_id, request.commits
    ('app.0', True)
    """
    api, version, correlation = struct.unpack_from(">hhi", frame, 4)
    since = FLEXIBLE.get(api)
    if since is None or (api == Api.ADD_PARTITIONS_TO_TXN and version >= BY_BROKERS):
        return Request(api, version, correlation)
    (length,) = struct.unpack_from(">h", frame, 12)
    at = 14 + max(length, 0)
    if version >= since:
        size, at = uvarint(frame, after_tags(frame, at))
        size -= 1
    else:
        (size,), at = struct.unpack_from(">h", frame, at), at + 2
    owner = frame[at : at + max(size, 0)].decode()
    commits = api == Api.END_TXN and frame[-2 if version >= since else -1] == 1
    return Request(api, version, correlation, owner, commits)


def correlation_of(response: bytes) -> int:
    """Which request a response answers."""
    (correlation,) = struct.unpack_from(">i", response, 4)
    return int(correlation)


def error_of(response: bytes, request: Request) -> int | None:
    """The error code in the response to an EndTxn, AddOffsetsToTxn or InitProducerId; None of other requests."""
    if request.api not in (Api.END_TXN, Api.ADD_OFFSETS_TO_TXN, Api.INIT_PRODUCER_ID):
        return None
    at = after_tags(response, 8) if request.version >= FLEXIBLE[Api(request.api)] else 8
    return int(struct.unpack_from(">h", response, at + 4)[0])


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number of variable length, and where it ends.

    >>> uvarint(b"\\xac\\x02", 0)
    (300, 2)
    """
    value = shift = 0
    while True:
        byte = data[at]
        value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
        if byte < 0x80:
            return value, at


def after_tags(data: bytes, at: int) -> int:
    """Where a header's tags end."""
    count, at = uvarint(data, at)
    for _ in range(count):
        _, at = uvarint(data, at)
        size, at = uvarint(data, at)
        at += size
    return at


class Splitter:
    """Cuts a stream of bytes into frames.

    >>> splitter = Splitter()
    >>> splitter.feed(b"\\0\\0\\0\\2ab\\0\\0"), splitter.feed(b"\\0\\1c")
    ([b'\\x00\\x00\\x00\\x02ab'], [b'\\x00\\x00\\x00\\x01c'])
    """

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are complete now."""
        if not self._rest and len(data) > 4 and 4 + int.from_bytes(data[:4]) == len(data):
            return [data]
        rest = self._rest
        rest += data
        frames, at = [], 0
        while len(rest) - at >= 4 and len(rest) >= (end := at + 4 + int.from_bytes(rest[at : at + 4])):
            frames.append(bytes(rest[at:end]))
            at = end
        del rest[:at]
        return frames


TELL_ADDRESSES = frozenset({Api.METADATA, Api.FIND_COORDINATOR, Api.DESCRIBE_CLUSTER, Api.PRODUCE, Api.FETCH})
"""Responses that name brokers. Those to Produce and Fetch do where a leader has moved, in tags at their end (KIP-951)."""

TAIL = 1024
"""How much of a response to Fetch is searched for addresses: what comes before are records."""


def readdressed(response: bytes, api: int, addresses: Mapping[bytes, bytes]) -> bytes:
    """A response with each broker's address replaced, by one of the same length."""
    if api not in TELL_ADDRESSES:
        return response
    records, rest = (response[:-TAIL], response[-TAIL:]) if api == Api.FETCH else (b"", response)
    for theirs, ours in addresses.items():
        if theirs in rest:
            rest = rest.replace(theirs, ours)
    return records + rest if records else rest


def brokerless(response: bytes) -> bytes:
    """A Metadata response of version 9 or later as a broker gives it that knows no brokers, not even itself.

    >>> broker = struct.pack(">i", 1) + b"\\5here" + struct.pack(">i", 9092) + b"\\0\\0"
    >>> brokerless(bytes(4) + b"corr\\0time\\2" + broker + b"topics")[4:]
    b'corr\\x00time\\x01topics'
    """
    begin = after_tags(response, 8) + 4
    count, at = uvarint(response, begin)
    for _ in range(count - 1):
        host, at = uvarint(response, at + 4)
        rack, at = uvarint(response, at + host - 1 + 4)
        at = after_tags(response, at + max(0, rack - 1))
    whole = response[4:begin] + b"\1" + response[at:]
    return struct.pack(">i", len(whole)) + whole


def address(host: str, port: int) -> bytes:
    """How responses spell it, whatever their version: the host, and then the port."""
    return host.encode() + struct.pack(">i", port)


def capped(response: bytes, version: int, highest: Mapping[int, int]) -> bytes:
    """A response to ApiVersions that names no version above the highest.

    size (4) · correlation (4) · error (2) · how many · for each: api (2), lowest (2), highest (2) [· tags] · …
    """
    if version >= 3:
        count, at = uvarint(response, 10)
        count, size = count - 1, 7
    else:
        (count,), at, size = struct.unpack_from(">i", response, 10), 14, 6
    answer = bytearray(response)
    for place in range(at, at + count * size, size):
        api, lowest, top = struct.unpack_from(">hhh", response, place)
        struct.pack_into(">hhh", answer, place, api, lowest, min(top, highest.get(api, top)))
    return bytes(answer)
