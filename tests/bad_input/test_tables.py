"""Broadcast tables whose topics are not there, forget, or are there twice; and records of theirs that do not decode."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from confluent_kafka import Producer

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ClusterError, SourceError
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.worker.reading.broadcast import open_tables
from falkirk.state.engine import Memory

pytestmark = pytest.mark.kafka


class Stand:
    """A flow that looks up in as many tables as there are names, and its cluster."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        self.brokers, self.prefix, self.folder = brokers, prefix, folder
        self.topics = Topics(Cluster(brokers))
        self.topics.create(f"{prefix}bids", 2, 1, {})

    def prepare(self, *names: str) -> App:
        flow = fk.Flow(f"{self.prefix}app")
        stream = flow.source(f"{self.prefix}bids", key="k", value=fk.Json({"k": fk.String}))
        for name in names:
            topic = f"{self.prefix}{name.rstrip('2')}"
            table = flow.table(name, topic=topic, key="k", value=fk.Json({"x": fk.Int64}), broadcast=True)
            stream = stream.lookup(table, columns={"x": name})
        stream.sink(f"{self.prefix}out", key="k", value=fk.Json())
        return prepare(flow.plan(), Settings(self.brokers, str(self.folder)), self.topics)


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path) -> Stand:
    return Stand(kafka, topic_prefix, tmp_path)


def test_a_table_that_is_not_there_and_then_forgets_and_then_does_not(stand: Stand) -> None:
    with pytest.raises(ClusterError, match="table' does not exist"):
        stand.prepare("table")
    stand.topics.create(f"{stand.prefix}table", 3, 1, {"cleanup.policy": "delete"})
    with pytest.raises(SourceError, match="deletes older records") as error:
        stand.prepare("table")
    assert "cleanup.policy=delete" in error.value.where
    stand.topics.create(f"{stand.prefix}kept", 3, 1, {"cleanup.policy": "compact"})
    with pytest.raises(SourceError, match="two broadcast tables read topic"):
        stand.prepare("kept", "kept2")
    (task, _) = stand.prepare("kept").tasks
    assert [i.place.partition for i in task.shared] == [0, 1, 2]


def test_a_record_that_does_not_decode_is_told_and_changes_nothing(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    stand.topics.create(f"{stand.prefix}table", 1, 1, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": stand.brokers, "enable.idempotence": True})
    for value in (b'{"x":1}', b"{", b'{"x":"?"}'):
        producer.produce(f"{stand.prefix}table", value, b"a")
    producer.flush()
    app = stand.prepare("table")
    (task, _) = app.tasks
    with caplog.at_level(logging.WARNING):
        tables = open_tables(app, Cluster(stand.brokers), stand.topics, stand.folder, Memory())
        while not tables.ready(task, {}):
            tables.tick()
    assert [record.getMessage().count("does not decode") for record in caplog.records] == [1, 1]
    assert '"offset":1' in caplog.records[0].getMessage()
    rows, (place,) = tables.seen(task)["table"].find([b"a"])
    assert rows["x"][place] == 1
    at = tables.positions(task)
    tables.close()
    again = open_tables(app, Cluster(stand.brokers), stand.topics, stand.folder, Memory())
    assert again.positions(task) == at, "what is kept is not read again"
    again.close()
