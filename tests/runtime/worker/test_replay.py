"""Recorded steps that are to be run again: while a cluster that they read from is away, and not in their order."""

from __future__ import annotations

import msgspec
import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, Step
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.checkpoint.records import Range, StepRecord, decode
from falkirk.checkpoint.tasks import Owned, Revoked
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client import config
from falkirk.connectors.kafka.reading import division
from falkirk.runtime.worker.reading.replay import KafkaReplayer
from falkirk.testing.cluster import Cluster

STEP = b'{"type":"step","task":"sums/0","step":3,"nonce":"n","owner":"o","clock":7,"division":[],"outputs":[],"digest":"d"}'


def test_a_replay_that_waits_for_a_cluster_ends_when_its_task_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group asks the worker to hand over, and must not wait for a cluster that is not its own."""
    flow = fk.Flow("away", regime=fk.LazyCheckpoint())
    bids = flow.source("bids", cluster="sales", key="auction", value=fk.Json({"auction": fk.Int64}))
    bids.group_by("auction", id="sums").agg(n=fk.len()).sink("sums", key="auction", value=fk.Json())
    [bound] = Cluster(flow.plan(), 1).tasks
    record = decode(STEP)
    assert isinstance(record, StepRecord)
    record = msgspec.structs.replace(record, division=(Range(bound.inputs[0].partition, Offset(0), Offset(9)),))
    monkeypatch.setattr(
        division, "fetch_metadata", lambda consumer, topic: None
    )  # it would look for brokers for a while
    others = {"sales": config.Cluster("127.0.0.1:1", name="sales")}
    owned = Owned(bound.task, revoked=True)
    replays = KafkaReplayer(config.Cluster("127.0.0.1:2", others=others), bound, None, owned)  # type: ignore[arg-type]
    with pytest.raises(Revoked):
        driver.run(replays.replay(bound.task.id, record, Overlay(EmptyReader())))
    replays.close()


@pytest.mark.kafka
def test_earlier_steps_run_again_after_later_ones(kafka: str, topic_prefix: str) -> None:
    """As when a selective rollback has failed on the way: then all steps after a version run again."""
    topic = f"{topic_prefix}bids"
    Topics(config.Cluster(kafka)).create(topic, 1, 1, {})
    producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True})
    for i in range(9):
        producer.produce(topic, b'{"auction":%d}' % i, b"%d" % i)
    producer.flush()
    flow = fk.Flow("again", regime=fk.LazyCheckpoint())
    bids = flow.source(topic, key="auction", value=fk.Json({"auction": fk.Int64}))
    bids.group_by("auction", id="sums").agg(n=fk.len()).sink("sums", key="auction", value=fk.Json())
    cluster = Cluster(flow.plan(), 1)
    [bound] = cluster.tasks
    step = decode(STEP)
    assert isinstance(step, StepRecord)
    replays = KafkaReplayer(config.Cluster(kafka), bound, bound.stage.circuit(0, cluster.layout), Owned(bound.task))
    try:
        for n, (start, end) in ((3, (4, 7)), (4, (7, 9)), (1, (0, 2)), (2, (2, 4)), (3, (4, 7))):
            division = (Range(bound.inputs[0].partition, Offset(start), Offset(end)),)
            record = msgspec.structs.replace(step, step=Step(n), division=division, rows=end - start)
            [output] = driver.run(replays.replay(bound.task.id, record, Overlay(EmptyReader())))
            assert sorted(output.writes.keys) == [b"%d" % i for i in range(start, end)]
    finally:
        replays.close()
