"""A schema registry that refuses, is away, or does not know: no record is buried for want of it, and none is lost."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import fastavro
import orjson
import pytest
from tests.bad_input.stand import BID, KEYS, Stand, count
from tests.bad_input.test_outage import wait
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors import registry as connector
from falkirk.errors import UnreachableError
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.testing.registry import RegistryServer

pytestmark = pytest.mark.kafka

OLD = {"type": "record", "name": "Bid", "fields": [{"name": name, "type": "long"} for name in BID]}
NEW = {**OLD, "fields": [{"name": "note", "type": "string"}, *OLD["fields"]]}

FLOW = """
registry = fk.Registry({url!r}, patience="300ms")
bids = {{"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}}
flow = fk.Flow(NAME)
bids = flow.source(PREFIX + "bids", key="auction", value=fk.Avro(bids, registry=registry))
stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
stats.sink(PREFIX + "stats", key="auction", value=fk.Json())
stats.select("auction", "n").sink(PREFIX + "counts", key="auction", value=fk.Avro(registry=registry))
"""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(connector, "_SECOND_LOOK", 0.0)
    with RegistryServer() as server:
        for schema in (OLD, NEW):
            server.put("bids-value", json.dumps(schema))
        yield server


def bids(stand: Stand, number: int, how_many: int) -> None:
    """Send bids, written by a schema that has this id."""
    schema, rng = fastavro.parse_schema({1: OLD, 2: NEW}[number]), random.Random(stand.sent)
    for i in range(stand.sent, stand.sent + how_many):
        bid = {"id": i, "auction": rng.randrange(KEYS), "bidder": 1, "price": rng.randrange(1000), "note": "a"}
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, bid)
        stand.producer.produce(stand.prefix + "bids", b"\0\0\0\0%c" % number + out.getvalue(), str(bid["auction"]))
    stand.sent += how_many
    assert stand.producer.flush(PATIENCE_S) == 0


def parsed(value: bytes) -> Any:
    """A bid, as the oracle wants it; None for a record of which the schema is not known."""
    if (schema := {1: OLD, 2: NEW}.get(value[4])) is None:
        return None
    return fastavro.schemaless_reader(io.BytesIO(value[5:]), fastavro.parse_schema(schema), None)


def flow(stand: Stand, registry: fk.Registry) -> fk.Flow:
    flow = fk.Flow(stand.name)
    count(
        flow.source(f"{stand.prefix}bids", key="auction", value=fk.Avro(BID, registry=registry)), f"{stand.prefix}stats"
    )
    return flow


@pytest.mark.slow
def test_a_registry_that_goes_away_buries_nothing_and_an_id_that_it_does_not_have_does(
    stand: Stand, server: RegistryServer
) -> None:
    stand.topic()
    given = flow(stand, fk.Registry(server.url, patience="100ms"))
    bids(stand, 1, 50)
    stand.run(given)
    bids(stand, 2, 50)
    stand.put(b"3", b"\0\0\0\0\x63\x06")
    # Whoever starts now has met the registry, and knows no schema yet.
    missing = pytest.raises(UnreachableError, match="the schema registry does not answer: 503: away")
    with missing, stand.worker(flow(stand, fk.Registry(server.url, patience="100ms"))) as worker:
        server.away = True
        end = UntilEnd(worker.app, stand.settings.cluster(), worker.topics)
        try:
            worker.run(end.finished)
        finally:
            end.close()
    letters = f"falkirk.{stand.name}.dead-letters"
    assert list(stand.read(letters)) == []
    server.away = False
    stand.run(flow(stand, fk.Registry(server.url)))
    stand.assert_exact(parse=parsed)
    (letter,) = [orjson.loads(s.value or b"") for s in stand.read(letters)]
    assert letter["reason"] == "the registry has no schema 99"


@pytest.mark.slow
def test_the_command_says_what_a_registry_refuses_and_outlives_its_absence(
    stand: Stand, server: RegistryServer
) -> None:
    stand.topic()
    text = FLOW.format(url=server.url)
    server.put(f"{stand.prefix}counts-value", json.dumps(OLD | {"fields": [{"name": "n", "type": "string"}]}))
    shown = stand.cli(text)
    shown.assert_says(2, "refuses the schema as incompatible", "field 'n': the writer has string", "counts-value of")
    stand.cli(FLOW.format(url="http://127.0.0.1:9")).assert_says(3, "the schema registry does not answer")
    assert f"{stand.prefix}counts" not in stand.admin.list_topics(timeout=PATIENCE_S).topics

    text = text.replace('PREFIX + "counts"', 'PREFIX + "numbers"')
    bids(stand, 1, 50)
    going = stand.start(text)
    stand.settle()
    server.away = True
    bids(stand, 2, 50)
    wait(lambda: going.said.read_text().count("the schema registry does not answer") > 1, 30)
    server.away = False
    stand.settle()
    assert going.leave().code == 0
    stand.assert_exact(parse=parsed)
    assert list(stand.read(f"falkirk.{stand.name}.dead-letters")) == []
    (schema,) = server.subjects()[f"{stand.prefix}numbers-value"]
    numbers = [s.value for s in stand.read(f"{stand.prefix}numbers")]
    assert {value[:5] for value in numbers if value} == {b"\0\0\0\0\4"}
    assert [f["name"] for f in json.loads(schema)["fields"]] == ["auction", "n"]
