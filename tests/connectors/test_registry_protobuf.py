"""Protobuf under a schema registry: what is registered, what is read by what was, and whose fault the rest is."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import falkirk as fk
from falkirk.connectors import registry as connector
from falkirk.errors import ConfigError, UnreachableError
from falkirk.runtime.app.registries import meet_registries
from falkirk.stream.formats import Protobuf
from falkirk.stream.formats.protobuf.schemas import schema_from
from falkirk.testing.memory import MemoryApp
from falkirk.testing.registry import RegistryServer

BID = 'syntax = "proto3"; package shop; message Bid { int64 auction = 1; int64 price = 2; }'
TOTAL = 'syntax = "proto3"; package shop; message Total { int64 auction = 1; optional int64 total = 2; }'
COLUMNS = {"auction": fk.Int64, "price": fk.Int64}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(connector, "_SECOND_LOOK", 0.0)
    with RegistryServer() as server:
        yield server


def put(server: RegistryServer, text: str, subject: str = "bids-value", **more: Any) -> int:
    return server.put(subject, text, schemaType="PROTOBUF", **more)


def record(number: int, text: str, **row: Any) -> bytes:
    """As a producer with Confluent's serializer writes it."""
    return b"\0" + number.to_bytes(4, "big") + b"\0" + bytes(schema_from(text).made(**row).SerializeToString())


def sums(registry: fk.Registry, schema: Any = TOTAL, **more: Any) -> fk.Flow:
    flow = fk.Flow("sums")
    bids = flow.source("bids", key="auction", value=fk.Protobuf(COLUMNS, registry=registry))
    total = bids.group_by("auction", id="total").agg(total=fk.sum("price"))
    total.sink("totals", key="auction", value=fk.Protobuf(schema, registry=registry, **more))
    return flow


def test_reads_by_the_writers_schema_and_writes_by_one_that_is_registered(server: RegistryServer) -> None:
    old_text, new_text = BID.replace("int64 price = 2;", ""), BID.replace("int64 price = 2;", "int32 price = 7;")
    old, new = put(server, old_text), put(server, new_text)
    flow = sums(fk.Registry(server.url))
    meet_registries(flow.plan())
    assert server.subjects()["totals-value"] == [TOTAL]
    app = MemoryApp(flow)
    app.append("bids", b"1", record(old, old_text, auction=1))
    app.append("bids", b"1", record(new, new_text, auction=1, price=5))
    app.run()
    assert [r.value() for r in app.records("totals")] == [record(3, TOTAL, auction=1, total=5)]


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("{topic}-value", "totals-value"), ("{record}", "shop.Total"), ("{topic}-{record}", "totals-shop.Total")],
)
def test_the_subject_follows_a_strategy(server: RegistryServer, subject: str, expected: str) -> None:
    meet_registries(sums(fk.Registry(server.url), subject=subject).plan())
    assert list(server.subjects()) == [expected]


def test_a_class_is_registered_as_it_was_compiled_and_read_by_that(server: RegistryServer) -> None:
    """What Confluent's serializer for Python registers: the file's descriptor, in base64."""
    text = TOTAL.replace("message", 'import "google/protobuf/timestamp.proto"; message').replace(
        "2;", "2; google.protobuf.Timestamp at = 3;"
    )
    form = Protobuf(schema_from(text).made, registry=fk.Registry(server.url)).for_sink(
        "totals", fk.Protobuf(text).schema
    )
    form.begin()
    ((told,),) = server.subjects().values()
    assert told == form._registered_as()[1] != text
    reader = fk.Protobuf({"total": fk.Int64, "at": fk.Datetime}, registry=fk.Registry(server.url))
    assert reader.decode([record(1, text, total=5, at={"seconds": 0})]).frame["total"].to_list() == [5]


def test_a_schema_that_is_refused_stops_the_flow_before_it_runs(server: RegistryServer) -> None:
    put(server, TOTAL.replace("int64 auction", "string auction"), "totals-value")
    with pytest.raises(ConfigError, match=r"incompatible: .*subject \"totals-value\": field 'auction'"):
        meet_registries(sums(fk.Registry(server.url)).plan())
    assert len(server.subjects()["totals-value"]) == 1


def test_a_schema_may_have_to_be_there_already(server: RegistryServer) -> None:
    flow = sums(fk.Registry(server.url), register=False)
    with pytest.raises(ConfigError, match="not registered, and register=False") as caught:
        meet_registries(flow.plan())
    put(server, caught.value.hint.removeprefix("register it: "), "totals-value")
    meet_registries(flow.plan())
    assert len(server.subjects()["totals-value"]) == 1


def test_an_unknown_id_is_the_records_fault_and_an_absent_registry_is_not(server: RegistryServer) -> None:
    known = put(server, BID)
    form = fk.Protobuf(COLUMNS, registry=fk.Registry(server.url, patience="100ms"))
    good = record(known, BID, auction=1, price=5)
    assert form.decode([good, b"\0\0\0\0\x63" + good[5:]]).bad == [(1, "the registry has no schema 99")]
    server.away = True
    other = pickle.loads(pickle.dumps(form))
    with pytest.raises(UnreachableError, match="the schema registry does not answer: 503"):
        other.decode([good])
    assert form.decode([good]).frame.rows() == [(1, 5)]
    server.away = False
    assert other.decode([good]).frame.rows() == [(1, 5)]


def test_files_may_be_registered_apart(server: RegistryServer) -> None:
    money = 'syntax = "proto3"; package shop; message Money { int64 cents = 1; }'
    put(server, money, "money")
    text = 'syntax = "proto3"; package shop; import "shop/money.proto"; message Bid { Money price = 1; }'
    number = put(server, text, references=[{"name": "shop/money.proto", "subject": "money", "version": 1}])
    form = fk.Protobuf({"price": fk.Struct({"cents": fk.Int64})}, registry=fk.Registry(server.url))
    assert form.decode([b"\0\0\0\0" + bytes([number, 0]) + b"\x0a\x02\x08\x05"]).frame.rows() == [({"cents": 5},)]


@pytest.mark.parametrize("name", ["Bid", "Lot", "Lot.In"])
def test_confluents_own_serializer_and_this_format_read_each_other(server: RegistryServer, name: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    at = "google.protobuf.Timestamp at = 2;"
    text = f"""
        syntax = "proto3";
        package shop;
        import "google/protobuf/timestamp.proto";
        message Lot {{ int64 n = 1; {at} message In {{ int64 n = 1; {at} }} }}
        message Bid {{ int64 n = 1; {at} }}
    """
    made = schema_from(text, name).made
    client, context = SchemaRegistryClient({"url": server.url}), SerializationContext("bids", MessageField.VALUE)
    settings = {"use.deprecated.format": False}
    theirs = ProtobufSerializer(made, client, settings)(made(n=7, at={"seconds": 5}), context)
    form = Protobuf(made, registry=fk.Registry(server.url))
    frame = form.decode([theirs]).frame
    assert frame["n"].to_list() == [7]
    ours = form.for_sink("bids", frame.schema).encode(frame)
    assert ours == [theirs]
    assert ProtobufDeserializer(made, settings, client)(ours[0], context) == made(n=7, at={"seconds": 5})


def test_a_flow_is_tested_with_rows(server: RegistryServer) -> None:
    flow = fk.Flow("sums")
    registry = fk.Registry(server.url)
    bids = flow.source("bids", key="auction", value=fk.Protobuf(BID, registry=registry))
    bids.group_by("auction", id="total").agg(total=fk.sum("price")).sink(
        "totals", key="auction", value=fk.Protobuf(TOTAL, registry=registry)
    )
    result = fk.testing.run(flow, {"bids": [{"auction": 1, "price": 5}, {"auction": 1, "price": 6}]})
    assert result.sinks["totals"].table == {1: {"auction": 1, "total": 11}}
