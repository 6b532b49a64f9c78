"""The same against a real registry: FALKIRK_TEST_REGISTRY, or one that is started here (docs/internals/development.md)."""

from __future__ import annotations

import io
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import fastavro
import pytest
from tests.connectors.apicurio import registry as started

import falkirk as fk
from falkirk.connectors import registry as connector
from falkirk.errors import ConfigError
from falkirk.runtime.app.registries import meet_registries
from falkirk.stream.formats.protobuf.schemas import schema_from
from falkirk.testing.memory import MemoryApp

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the registry is."""
    given = os.environ.get("FALKIRK_TEST_REGISTRY", "")
    with nullcontext(given) if given else started(tmp_path_factory.mktemp("registry") / "log") as one:
        yield one


@pytest.fixture
def registry(url: str, monkeypatch: pytest.MonkeyPatch) -> fk.Registry:
    monkeypatch.setattr(connector, "_SECOND_LOOK", 0.0)
    return fk.Registry(url)


@pytest.fixture
def topic() -> str:
    return f"totals-{uuid.uuid4().hex[:8]}"


def flow_to(topic: str, registry: fk.Registry, kind: Any, **more: Any) -> fk.Flow:
    flow = fk.Flow("sums")
    value = fk.Avro({"auction": fk.Int64, "price": kind}, registry=registry)
    flow.source("bids", key="auction", value=value).sink(topic, key="auction", value=fk.Avro(registry=registry, **more))
    return flow


def test_what_one_flow_writes_another_reads(registry: fk.Registry, topic: str) -> None:
    first = flow_to(topic, registry, fk.Decimal(9, 2))
    meet_registries(first.plan())
    schema = {
        "type": "record",
        "name": "Bid",
        "fields": [{"name": "auction", "type": "int"}, {"name": "note", "type": "string"}],
    }
    number = registry.register(f"{topic}-in-value", json.dumps(schema), "AVRO")
    assert registry.register(f"{topic}-in-value", json.dumps(schema), "AVRO") == number
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"auction": 1, "note": "x"})
    app = MemoryApp(first)
    app.append("bids", b"1", b"\0" + number.to_bytes(4, "big") + out.getvalue())
    app.append("bids", b"1", b"\0\x7f\xff\xff\xff" + out.getvalue())
    app.run()
    (written,) = [r.value() for r in app.records(topic)]
    read = fk.Avro({"price": fk.Decimal(9, 2), "auction": fk.Int64}, registry=fk.Registry(registry.url)).decode(
        [written]
    )
    assert (read.bad, read.frame.rows()) == ([], [(None, 1)])
    (letter,) = [json.loads(r.value() or b"") for r in app.records("falkirk.sums.dead-letters")]
    assert letter["reason"] == f"the registry has no schema {0x7FFFFFFF}"


def test_an_incompatible_schema_is_refused(registry: fk.Registry, topic: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    meet_registries(flow_to(topic, registry, fk.Int64).plan())
    SchemaRegistryClient({"url": registry.url}).set_compatibility(f"{topic}-value", "BACKWARD")
    meet_registries(flow_to(topic, registry, fk.Int64).plan())
    with pytest.raises(ConfigError, match="refuses the schema as incompatible: "):
        meet_registries(flow_to(topic, registry, fk.String).plan())


def test_what_must_be_there_already(registry: fk.Registry, topic: str) -> None:
    flow = flow_to(topic, registry, fk.Int64, register=False)
    with pytest.raises(ConfigError, match="not registered, and register=False") as caught:
        meet_registries(flow.plan())
    registry.register(f"{topic}-value", caught.value.hint.removeprefix("register it: "), "AVRO")
    meet_registries(flow.plan())


def test_confluents_serializer_writes_what_is_read(registry: fk.Registry, topic: str) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": registry.url})
    name = f"Money{topic[-8:]}"
    money = {"type": "record", "name": name, "fields": [{"name": "cents", "type": "long"}]}
    client.register_schema(f"{topic}-money", Schema(json.dumps(money), "AVRO"))
    bid = {"type": "record", "name": "Bid", "fields": [{"name": "price", "type": name}]}
    references = [SchemaReference(name, f"{topic}-money", 1)]
    serializer = AvroSerializer(client, Schema(json.dumps(bid), "AVRO", references))
    value = serializer({"price": {"cents": 17}}, SerializationContext(topic, MessageField.VALUE))
    read = fk.Avro({"price": fk.Struct({"cents": fk.Int64})}, registry=registry).decode([value])
    assert (read.bad, read.frame.rows()) == ([], [({"cents": 17},)])


BID = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Lot { int64 n = 1; }
message Bid { int64 auction = 1; optional int64 price = 2; google.protobuf.Timestamp at = 3; }
"""


def proto_flow(topic: str, registry: fk.Registry, schema: Any, **more: Any) -> fk.Flow:
    flow = fk.Flow("sums")
    bids = flow.source("bids", key="auction", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
    bids.sink(topic, key="auction", value=fk.Protobuf(schema, message="Bid", registry=registry, **more))
    return flow


def test_protobuf_that_one_flow_writes_another_reads(registry: fk.Registry, topic: str) -> None:
    flow = proto_flow(topic, registry, BID)
    for _ in range(2):
        meet_registries(flow.plan())
    app = MemoryApp(flow)
    app.append("bids", b"1", b'{"auction":1,"price":5}')
    app.run()
    (written,) = [r.value() for r in app.records(topic)]
    columns = fk.Protobuf({"price": fk.Int64, "at": fk.Datetime}, registry=fk.Registry(registry.url))
    assert columns.decode([written]).frame.rows() == [(5, None)]
    lots = (written or b"")[:5] + b"\0\x08\x07"
    assert fk.Protobuf({"n": fk.Int64}, registry=registry).decode([lots]).frame.rows() == [(7,)]


def test_protobuf_that_is_incompatible_is_refused(registry: fk.Registry, topic: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    meet_registries(proto_flow(topic, registry, BID).plan())
    SchemaRegistryClient({"url": registry.url}).set_compatibility(f"{topic}-value", "BACKWARD")
    with pytest.raises(ConfigError, match="refuses the schema as incompatible: "):
        meet_registries(proto_flow(topic, registry, BID.replace("optional int64 price = 2", "double price = 2")).plan())


def test_protobuf_that_must_be_there_already(registry: fk.Registry, topic: str) -> None:
    flow = proto_flow(topic, registry, BID, register=False)
    with pytest.raises(ConfigError, match="not registered, and register=False") as caught:
        meet_registries(flow.plan())
    registry.register(f"{topic}-value", caught.value.hint.removeprefix("register it: "), "PROTOBUF")
    meet_registries(flow.plan())


def test_confluents_protobuf_serializer_writes_what_is_read(registry: fk.Registry, topic: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    made = schema_from(BID, "Bid").made
    serializer = ProtobufSerializer(made, SchemaRegistryClient({"url": registry.url}), {"use.deprecated.format": False})
    value = serializer(made(auction=7, price=5), SerializationContext(topic, MessageField.VALUE))
    for given in ({"auction": fk.Int64, "price": fk.Int64}, made):
        decoded = fk.Protobuf(given, registry=fk.Registry(registry.url)).decode([value])
        assert (decoded.bad, decoded.frame.row(0)[:2]) == ([], (7, 5))
    ours = fk.Protobuf(made, registry=registry).for_sink(topic, decoded.frame.schema)
    assert ours.encode(decoded.frame) == [value]
