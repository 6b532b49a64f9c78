"""Sources in other clusters than the app's: what a flow may say, what steps record, and topics of one name told apart."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

import falkirk as fk
from falkirk.checkpoint.epochs import Opened
from falkirk.checkpoint.ids import Epoch, InputPartition, Millis, Offset, TaskId
from falkirk.checkpoint.records import Range, StepRecord, decode, encode
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import ConfigError, DefinitionError
from falkirk.runtime.app.batch_part import bind
from falkirk.runtime.app.sources import with_stand_ins
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.preflight import others
from falkirk.stream.batch import Piece
from falkirk.stream.flow.explain import explain

BID = fk.Json({"auction": fk.Int64, "price": fk.Int64})
EAGER, LAZY = fk.EagerCheckpoint(), fk.LazyCheckpoint()


def two_clusters(regime: fk.EagerCheckpoint | fk.LazyCheckpoint = EAGER) -> fk.Flow:
    """Bids of two clusters that call their topics the same, counted together; and those of one alone, before an exchange."""
    flow = fk.Flow("two", regime=regime)
    here = flow.source("here", topic="bids", key="auction", value=BID)
    there = flow.source("there", topic="bids", cluster="sales", key="auction", value=BID)
    both = here.concat(there)
    both.group_by("auction", id="both").agg(n=fk.len(), sum=fk.sum("price")).sink(
        "both", key="auction", value=fk.Json()
    )
    there.group_by("price", id="prices").agg(n=fk.len()).sink("prices", key="price", value=fk.Json())
    return flow


def bids(count: int, times: int) -> list[dict[str, int]]:
    return [{"auction": i % 5, "price": times * i} for i in range(count)]


@pytest.mark.parametrize("regime", [EAGER, LAZY])
def test_two_topics_of_one_name_are_told_apart_through_crashes(regime: fk.EagerCheckpoint | fk.LazyCheckpoint) -> None:
    here, there = bids(20, 1), bids(30, 100)
    result = fk.testing.run(
        two_clusters(regime), {"here": here, "there": there}, partitions=2, step_rows=4, crash_at="everywhere"
    )
    wanted: dict[int, list[int]] = {}
    for bid in [*here, *there]:
        wanted.setdefault(bid["auction"], []).append(bid["price"])
    assert {row["auction"]: (row["n"], row["sum"]) for row in result.sinks["both"].table.values()} == {
        auction: (len(prices), sum(prices)) for auction, prices in wanted.items()
    }
    assert {row["price"]: row["n"] for row in result.sinks["prices"].table.values()} == {100 * i: 1 for i in range(30)}


def test_steps_record_the_cluster_and_the_group_is_told_of_the_apps_own_alone() -> None:
    app = fk.testing.App(two_clusters(), partitions=2)
    app.send("here", bids(20, 1))
    app.send("there", bids(20, 100))
    app.run()
    both = next(b for b in app._cluster.tasks if b.task.id == TaskId("both", 1))
    steps = [decode(value) for m in app._cluster.read(both.task.steps, 0) if (value := m.value()) is not None]
    last = next(step for step in reversed(steps) if isinstance(step, StepRecord))
    read = [
        (r.partition.cluster, r.partition.topic, r.partition.partition, r.partition.place.topic) for r in last.division
    ]
    assert read == [("", "bids", 1, "bids"), ("sales", "bids", 1, "sales:bids")]
    committed = {place.topic for place in app._cluster.broker.committed_offsets}
    assert committed == {"bids", "falkirk.two.steps", "falkirk.two.edge.prices"}


def test_a_record_of_before_is_read_and_one_of_now_reads_the_same() -> None:
    """The cluster always had a place in step records, and was empty."""
    old = (
        b'{"type":"step","task":"both/1","step":3,"nonce":"n","owner":"o","clock":7,'
        b'"division":[[["","bids","id",1],4,9]],"outputs":[],"digest":"d"}'
    )
    record = decode(old)
    assert isinstance(record, StepRecord)
    assert encode(record) == old
    there = msgspec.structs.replace(
        record.division[0], partition=record.division[0].partition._replace(cluster="sales")
    )
    now = msgspec.structs.replace(record, division=(*record.division, there))
    assert decode(encode(now)) == now


def test_an_epoch_records_the_cluster_and_its_tasks_read_there() -> None:
    flow = fk.Flow("epochs")
    sold = flow.source("sold", cluster="sales", key="auction", value=BID).with_regime(fk.Batch())
    sold.group_by("auction", id="daily").agg(n=fk.len()).sink("daily", key="auction", value=fk.Json())
    counts = {"sales:sold": 2, "daily": 1, "falkirk.epochs.dead-letters": 1, "epochs": 2}
    infos = {topic: TopicInfo(topic, f"id of {topic}", count) for topic, count in counts.items()}
    [part] = bind(flow.plan().batches, {"daily": "epochs"}, infos)
    division = tuple(Range(partition, Offset(3), Offset(9)) for partition in sorted(part.places))
    opened = Opened(Epoch(0), Millis(0), division, (), "")
    assert [r.partition for r in division] == [InputPartition("sales", "sold", "id of sales:sold", p) for p in (0, 1)]
    pieces = [piece for piece in part.pieces(opened) if isinstance(piece, Piece)]
    assert [(p.topic, p.partition, p.start, p.end) for p in pieces] == [("sales:sold", p, 3, 9) for p in (0, 1)]


def test_what_does_not_decode_is_buried_with_its_clusters_name() -> None:
    flow = fk.Flow("bad")
    flow.source("there", topic="bids", cluster="sales", value=BID).sink("good", value=fk.Json())
    [letter] = fk.testing.run(flow, {"there": [("7", b"no JSON")]}).dead_letters
    assert {name: letter[name] for name in ("source", "topic", "partition", "offset")} == {
        "source": "there", "topic": "sales:bids", "partition": 0, "offset": 0,
    }  # fmt: skip


def test_tables_and_batch_parts_read_another_cluster_too() -> None:
    flow = fk.Flow("more")
    names = flow.table("names", cluster="hr", key="id", value=fk.Json({"name": str}), broadcast=True)
    sellers = flow.table("sellers", cluster="sales", key="id", value=fk.Json({"seller": str}))
    bids = flow.source("bids", key="id", value=fk.Json({"id": str, "price": int}))
    bids.lookup(names).lookup(sellers).sink("named", value=fk.Json())
    sold = flow.source("sold", cluster="sales", key="id", value=fk.Json({"id": str, "price": int}))
    daily = sold.with_regime(fk.Batch()).group_by("id", id="daily").agg(sum=fk.sum("price"))
    daily.sink("daily", key="id", value=fk.Json())
    rows = [{"id": "a", "price": 1}, {"id": "b", "price": 2}, {"id": "a", "price": 3}]
    app = fk.testing.App(flow)
    app.send("names", [{"id": "a", "name": "Ann"}])
    app.send("sellers", [{"id": "a", "seller": "Sam"}])
    app.run()
    app.send("bids", rows[:1])
    app.send("sold", rows)
    app.run()
    assert app.sinks["named"].rows == [{"id": "a", "price": 1, "name": "Ann", "seller": "Sam"}]
    assert app.sinks["daily"].table == {"a": {"id": "a", "sum": 4}, "b": {"id": "b", "sum": 2}}


def test_listed_topics_are_all_in_the_cluster_and_a_pattern_matches_none_of_them() -> None:
    flow = fk.Flow("listed")
    value = fk.Json({"id": fk.Int64})
    there = flow.source("there", topic=["a", "b"], cluster="sales", value=value, metadata=["topic"])
    here = flow.source("here", topic=fk.Pattern("[abs:]*|c"), value=value, metadata=["topic"])
    there.sink("there", value=fk.Json())
    here.sink("here", value=fk.Json())
    rows = {"sales:a": [{"id": 1}], "sales:b": [{"id": 2}], "c": [{"id": 3}]}
    sinks = fk.testing.run(flow, rows).sinks
    assert sorted((row["topic"], row["id"]) for row in sinks["there"].rows) == [("a", 1), ("b", 2)]
    assert [(row["topic"], row["id"]) for row in sinks["here"].rows] == [("c", 3)]


def test_a_pattern_matches_topics_of_its_sources_cluster_alone() -> None:
    flow = fk.Flow("matched")
    value = fk.Json({"id": fk.Int64})
    for name, cluster in (("there", "sales"), ("here", "")):
        rows = flow.source(name, topic=fk.Pattern("[ab]"), cluster=cluster, value=value, metadata=["topic"])
        rows.sink(f"{name}-seen", value=fk.Json())
    app = fk.testing.App(flow, topics=["sales:a", "b"])
    app.send("sales:a", [{"id": 1}])
    app.send("b", [{"id": 2}])
    app.run()
    app.join("sales:b")
    app.send("sales:b", [{"id": 3}])
    app.run()
    assert [(row["topic"], row["id"]) for row in app.sinks["there-seen"].rows] == [("a", 1), ("b", 3)]
    assert [(row["topic"], row["id"]) for row in app.sinks["here-seen"].rows] == [("b", 2)]


def test_a_pattern_that_matches_nothing_yet_names_no_cluster_though_it_has_colons() -> None:
    flow = fk.Flow("colons")
    value = fk.Json({"id": fk.Int64})
    flow.source("asked", topic=fk.Pattern("(?:a|b)"), value=value).sink("out", value=fk.Json())
    flow.source("there", cluster="sales", value=value).sink("out-too", value=fk.Json())
    assert others(flow.plan()) == ["sales"]


def test_explain_says_which_cluster_a_source_is_in() -> None:
    told = explain(two_clusters())
    assert "read    source there: topic sales:bids, from earliest" in told
    assert "read    source here: topic bids, from earliest" in told


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cluster": "sales-1:9092"}, "'sales-1:9092' is not a valid cluster name"),
        ({"cluster": "Sales"}, "small letters"),
        ({"topic": ["a", "sales:bids"]}, "a topic cannot be named 'sales:bids'"),
        ({"topic": "sales:bids"}, 'to read one of another cluster: cluster="NAME"'),
    ],
)
def test_what_cannot_be_a_cluster_or_a_topic_is_refused_where_it_is_written(given: dict[str, Any], said: str) -> None:
    flow = fk.Flow("wrong")
    with pytest.raises(DefinitionError, match=re.escape(said)) as caught:
        flow.source("bids", value=BID, **given)
    assert "test_clusters.py" in caught.value.where


def test_one_kafka_stands_for_all_clusters_unless_two_topics_would_be_one() -> None:
    flow = fk.Flow("dev")
    flow.source("bids", cluster="sales", value=BID).sink("good", value=fk.Json())
    settings = with_stand_ins(flow.plan(), Settings("127.0.0.1:1", "", client={"client.id": "me"}))
    there = settings.cluster().of("sales")
    assert (there.brokers, there.name, there.client) == ("127.0.0.1:1", "sales", {"client.id": "me"})
    with pytest.raises(ConfigError, match=r"'bids' and 'sales:bids' would be one|'sales:bids' and 'bids' would be one"):
        with_stand_ins(two_clusters().plan(), Settings("127.0.0.1:1", ""))
