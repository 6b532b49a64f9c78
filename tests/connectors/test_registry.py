"""A schema registry: what it says, what it does not say, and what a flow makes of either."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import fastavro
import pytest
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors import registry as connector
from falkirk.errors import ConfigError, DefinitionError, UnreachableError
from falkirk.runtime.app.registries import meet_registries
from falkirk.stream.flow.explain import explain
from falkirk.stream.formats import Avro
from falkirk.testing.memory import MemoryApp
from falkirk.testing.registry import RegistryServer

BID = {
    "type": "record",
    "name": "shop.Bid",
    "fields": [{"name": "auction", "type": "long"}, {"name": "price", "type": "long"}],
}
COLUMNS = {"auction": fk.Int64, "price": fk.Int64}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(connector, "_SECOND_LOOK", 0.0)
    with RegistryServer() as server:
        yield server


def record(number: int, schema: Any, row: dict[str, Any]) -> bytes:
    """As a producer with Confluent's serializer writes it."""
    out = io.BytesIO(b"\0" + number.to_bytes(4, "big"))
    out.seek(5)
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return out.getvalue()


def sums(registry: fk.Registry, **more: Any) -> fk.Flow:
    flow = fk.Flow("sums")
    bids = flow.source("bids", key="auction", value=fk.Avro(COLUMNS, registry=registry))
    total = bids.group_by("auction", id="total").agg(total=fk.sum("price"))
    total.sink("totals", key="auction", value=fk.Avro(registry=registry, **more))
    return flow


def test_reads_by_the_writers_schema_and_writes_by_one_that_is_registered(server: RegistryServer) -> None:
    old = server.put("bids-value", json.dumps({**BID, "fields": BID["fields"][:1]}))
    new = server.put("bids-value", json.dumps({**BID, "fields": [{"name": "by", "type": "string"}, *BID["fields"]]}))
    flow = sums(fk.Registry(server.url))
    meet_registries(flow.plan())
    app = MemoryApp(flow)
    app.append("bids", b"1", record(old, {**BID, "fields": BID["fields"][:1]}, {"auction": 1}))
    schema = {**BID, "fields": [{"name": "by", "type": "string"}, *BID["fields"]]}
    app.append("bids", b"1", record(new, schema, {"by": "ann", "auction": 1, "price": 5}))
    app.run()
    (text,) = server.subjects()["totals-value"]
    assert json.loads(text)["fields"] == [
        {"name": name, "type": ["null", "long"], "default": None} for name in ("auction", "total")
    ]
    (told,) = [r.value() for r in app.records("totals")]
    assert told == record(3, json.loads(text), {"auction": 1, "total": 5})


def test_a_definition_asks_nothing(server: RegistryServer) -> None:
    flow = sums(fk.Registry(server.url, {"basic.auth.user.info": "ann:secret"}))
    assert "secret" not in explain(flow) + repr(flow.plan())
    assert server.answers == []


@pytest.mark.parametrize(
    ("subject", "expected"),
    [("{topic}-value", "totals-value"), ("{record}", "shop.Total"), ("{topic}-{record}", "totals-shop.Total")],
)
def test_the_subject_follows_a_strategy(server: RegistryServer, subject: str, expected: str) -> None:
    meet_registries(sums(fk.Registry(server.url), subject=subject, name="shop.Total").plan())
    assert list(server.subjects()) == [expected]


def test_a_subject_is_a_pattern_of_what_is_known() -> None:
    with pytest.raises(DefinitionError, match="is not a valid pattern"):
        Avro(registry=fk.Registry("http://localhost:1"), subject="{tpoic}")


def test_an_unknown_id_is_the_records_fault_and_asked_for_twice(server: RegistryServer) -> None:
    known = server.put("bids-value", json.dumps(BID))
    form = Avro(COLUMNS, registry=fk.Registry(server.url))
    good = record(known, BID, {"auction": 1, "price": 5})
    for _ in range(2):
        decoded = form.decode([good, b"\0\0\0\0\x63" + good[5:]])
        assert decoded.bad == [(1, "the registry has no schema 99")]
        assert decoded.frame.rows() == [(1, 5)]
    assert server.answers.count("GET /schemas/ids/99") == 2
    assert server.answers.count("GET /schemas/ids/1") == 1


def test_a_copy_that_lags_behind_buries_nothing(server: RegistryServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered a moment ago, and not yet known to the server that is asked."""
    monkeypatch.setattr(connector.time, "sleep", lambda _: server.put("bids-value", json.dumps(BID)))
    form = Avro(COLUMNS, registry=fk.Registry(server.url))
    assert form.decode([record(1, BID, {"auction": 1, "price": 5})]).bad == []


@pytest.mark.parametrize("trouble", ["away", "nowhere", "gone", "slow"])
def test_a_registry_that_is_away_buries_nothing(server: RegistryServer, trouble: str) -> None:
    number = server.put("bids-value", json.dumps(BID))
    url = "http://127.0.0.1:9" if trouble == "gone" else server.url
    form = Avro(COLUMNS, registry=fk.Registry(url, {"timeout": 0.1}, patience="200ms"))
    setattr(server, trouble, 0.5 if trouble == "slow" else True)
    with pytest.raises(UnreachableError, match="the schema registry does not answer: ") as caught:
        form.decode([record(number, BID, {"auction": 1, "price": 5})])
    assert f"schema 1 of Registry('{url}')" in caught.value.where


def test_a_step_waits_for_a_registry_that_comes_back(server: RegistryServer) -> None:
    number = server.put("bids-value", json.dumps(BID))
    server.away = True
    asked = threading.Event()
    monitor = server.answers
    threading.Thread(target=lambda: (asked.wait(PATIENCE_S), setattr(server, "away", False)), daemon=True).start()
    form = Avro(COLUMNS, registry=fk.Registry(server.url))
    waiting = threading.Timer(0.01, asked.set)
    waiting.start()
    assert form.decode([record(number, BID, {"auction": 1, "price": 5})]).bad == []
    assert monitor[-1] == "GET /schemas/ids/1"


def test_wrong_credentials_say_so_and_are_not_shown() -> None:
    with RegistryServer(user="ann", password="right") as server:
        number = server.put("bids-value", json.dumps(BID))
        wrong = fk.Registry(server.url, {"basic.auth.user.info": "ann:wrong"})
        in_url = fk.Registry(server.url.replace("//", "//ann:wrong@"))
        for registry in (wrong, in_url):
            with pytest.raises(ConfigError, match="refuses the credentials") as caught:
                meet_registries(sums(registry).plan())
            assert "sink 'totals'" in caught.value.where
            assert "wrong" not in str(caught.value) + repr(registry)
        right = fk.Registry(server.url, {"basic.auth.user.info": "ann:right"})
        value = record(number, BID, {"auction": 1, "price": 5})
        assert pickle.loads(pickle.dumps(Avro(COLUMNS, registry=right))).decode([value]).frame.rows() == [(1, 5)]


def test_an_incompatible_schema_is_refused_in_the_registrys_words(server: RegistryServer) -> None:
    server.put("totals-value", json.dumps({**BID, "fields": [{"name": "auction", "type": "string"}]}))
    with pytest.raises(ConfigError, match=r"incompatible: .*subject \"totals-value\": field 'auction'"):
        meet_registries(sums(fk.Registry(server.url)).plan())
    assert len(server.subjects()["totals-value"]) == 1


def test_a_schema_may_have_to_be_there_already(server: RegistryServer) -> None:
    flow = sums(fk.Registry(server.url), register=False)
    with pytest.raises(ConfigError, match="not registered, and register=False") as caught:
        meet_registries(flow.plan())
    server.put("totals-value", caught.value.hint.removeprefix("register it: "))
    meet_registries(flow.plan())
    assert len(server.subjects()["totals-value"]) == 1


def test_settings_that_the_client_refuses() -> None:
    with pytest.raises(ConfigError, match=r"refuses its settings: Unrecognized properties: basic\.auth"):
        fk.Registry("http://localhost:1", {"basic.auth": "x"}).check()


def test_types_may_be_registered_apart(server: RegistryServer) -> None:
    money = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    server.put("money", json.dumps(money))
    bid = {"type": "record", "name": "shop.Bid", "fields": [{"name": "price", "type": "shop.Money"}]}
    number = server.put(
        "bids-value", json.dumps(bid), references=[{"name": "shop.Money", "subject": "money", "version": 1}]
    )
    form = Avro({"price": fk.Struct({"cents": fk.Int64})}, registry=fk.Registry(server.url))
    whole = {**bid, "fields": [{"name": "price", "type": money}]}
    decoded = form.decode([record(number, whole, {"price": {"cents": 17}})])
    assert (decoded.bad, decoded.frame.rows()) == ([], [({"cents": 17},)])


def test_a_schema_of_another_language_is_the_records_fault(server: RegistryServer) -> None:
    number = server.put("bids-value", "message Bid {}", schemaType="PROTOBUF")
    assert Avro(COLUMNS, registry=fk.Registry(server.url)).decode([b"\0\0\0\0" + bytes([number])]).bad == [
        (0, "schema 1 is PROTOBUF, not Avro")
    ]


def test_confluents_own_serializer_and_this_format_read_each_other(server: RegistryServer) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = SchemaRegistryClient({"url": server.url})
    context = SerializationContext("bids", MessageField.VALUE)
    theirs = AvroSerializer(client, json.dumps(BID))({"auction": 1, "price": 5}, context)
    form = Avro(BID, registry=fk.Registry(server.url)).for_sink("bids", Avro(BID).schema)  # type: ignore[arg-type]
    frame = form.decode([theirs]).frame
    assert frame.rows() == [(1, 5)]
    assert form.encode(frame) == [theirs]
    assert AvroDeserializer(client)(form.encode(frame)[0], context) == {"auction": 1, "price": 5}


THERE = """
import pickle, sys
from falkirk.stream.batch import Piece
from falkirk.stream.dataflow.records import Records

job, value = pickle.loads(sys.stdin.buffer.read())
frames = list(job.head(Piece(0, "bids", 0, 0, 1), iter([Records([0], [b"1"], [value], [5])])))
frames = list(job.level(1, iter(frames)))
print([value.hex() for frame in frames for value in frame["value"]])
"""


def test_a_batch_part_asks_the_registry_where_its_tasks_run(server: RegistryServer) -> None:
    number = server.put("bids-value", json.dumps(BID))
    flow = fk.Flow("sums", regime=fk.Batch())
    registry = fk.Registry(server.url)
    bids = flow.source("bids", key="auction", value=fk.Avro(COLUMNS, registry=registry))
    bids.group_by("auction", id="n").agg(n=fk.len()).sink("counts", key="auction", value=fk.Avro(registry=registry))
    plan = flow.plan()
    meet_registries(plan)
    job = plan.batches[0].job(clock=0, records=1, result_partitions=1, dead_letters_from={})
    given = pickle.dumps((job, record(number, BID, {"auction": 1, "price": 5})))
    done = subprocess.run([sys.executable, "-c", THERE], input=given, capture_output=True, cwd="/", check=False)
    assert done.stdout.decode().strip() == str(["0000000002" + "0202" + "0202"]), done.stderr.decode()
    assert server.answers.count("POST /subjects/counts-value/versions") == 1


def test_a_flow_is_tested_with_rows(server: RegistryServer) -> None:
    result = fk.testing.run(sums(fk.Registry(server.url)), {"bids": [{"auction": 1, "price": 5}, {"auction": 1}]})
    assert result.sinks["totals"].table == {1: {"auction": 1, "total": 5}}
