"""What the flow `daily` reads and writes: Avro under a registry, and now and then a record that is none."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from io import BytesIO
from urllib.request import Request, urlopen

import orjson
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from tests.soak.check.oracle import UNREADABLE, Row
from tests.soak.check.seen import Seen
from tests.soak.check.spec import Entry

REGISTRY = os.environ.get("SOAK_REGISTRY", "http://127.0.0.1:1")
"""Where the registry is; the soak tells its processes."""
BID = {
    "type": "record",
    "name": "Bid",
    "fields": [{"name": name, "type": "long"} for name in ("id", "auction", "bidder", "price")],
}
EVERY = 97
"""So many records have one among them that is no Avro."""

_BID = parse_schema(BID)
_NONE = b"\xff no bid "


def encode(bid: dict[str, int], schema: int) -> bytes:
    """A bid in Confluent's wire format; or the record that is none in its place.

    >>> parse(encode({"id": 1, "auction": 2, "bidder": 3, "price": 4}, schema=7))
    {'id': 1, 'auction': 2, 'bidder': 3, 'price': 4}
    >>> parse(encode({"id": 96, "auction": 2, "bidder": 3, "price": 4}, schema=7))
    {'id': 96, 'auction': 2, 'unreadable': b'\\xff no bid 96 2'}
    """
    if bid["id"] % EVERY == EVERY - 1:
        return _NONE + f"{bid['id']} {bid['auction']}".encode()
    out = BytesIO()
    schemaless_writer(out, _BID, bid)
    return b"\0" + schema.to_bytes(4, "big") + out.getvalue()


def parse(value: bytes) -> Row:
    """The row of a record; of one that is none its number, its key, and all of it."""
    if value.startswith(_NONE):
        number, auction = map(int, value[len(_NONE) :].split())
        return {"id": number, "auction": auction, UNREADABLE: value}
    row = schemaless_reader(BytesIO(value[5:]), _BID, None)
    assert isinstance(row, dict)
    return row


def avro_entry(seen: Seen) -> Iterable[Entry]:
    """A record of a sink, by the schema that it names."""
    value = seen.value or b""
    row = schemaless_reader(BytesIO(value[5:]), _schema(int.from_bytes(value[1:5], "big")), None)
    return [Entry(seen.key or b"", row, seen.timestamp)]


def letter_entry(seen: Seen) -> Iterable[Entry]:
    """A dead letter: which record it is of, and that record itself."""
    letter = orjson.loads(seen.value or b"{}")
    return [Entry(seen.key or b"", {name: letter[name] for name in ("topic", "offset", "payload")}, seen.timestamp)]


def register(subject: str) -> int:
    """The number under which the registry has the schema of bids."""
    body = orjson.dumps({"schema": orjson.dumps(BID).decode()})
    asked = Request(f"{REGISTRY}/subjects/{subject}/versions", body, {"Content-Type": "application/json"})
    with urlopen(asked) as answer:
        return int(orjson.loads(answer.read())["id"])


@cache
def _schema(number: int) -> object:
    with urlopen(f"{REGISTRY}/schemas/ids/{number}") as answer:
        return parse_schema(orjson.loads(orjson.loads(answer.read())["schema"]))
