"""Where a partition ends, when its leader has been paused and leads it no more."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from tests.kafka_cluster import EmbeddedCluster
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.transactions.marks import Marks
from falkirk.errors import ClusterError

pytestmark = pytest.mark.kafka

PLACE = TopicPartition("t", 0)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_mark_is_behind_what_was_written_while_the_leader_was_paused(tmp_path: Path) -> None:
    """Asked for its high watermark by a client that takes it for the leader, such a broker answers with an old one."""
    with EmbeddedCluster(tmp_path, console=Console(quiet=True)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(PLACE.topic, 1, -1)])[PLACE.topic].result(PATIENCE_S)
        cluster.whole()
        reader = BoundedReader(Cluster(cluster.bootstrap))
        marks = Marks(Cluster(cluster.bootstrap), reader)
        before = marks.write([PLACE])[PLACE]  # from now on both clients know this leader
        assert reader.watermarks([PLACE], end=True)[PLACE] == before + 1
        leader = admin.list_topics(PLACE.topic, timeout=PATIENCE_S).topics[PLACE.topic].partitions[0].leader
        node = next(node for node in cluster.nodes if node.number == leader)
        running = node.running()
        assert running is not None
        running.signal(signal.SIGSTOP)
        try:
            cluster.given_up(node)
            producer = Producer({"bootstrap.servers": cluster.bootstrap})
            for value in (b"1", b"2"):
                producer.produce(PLACE.topic, value, partition=0)
            assert producer.flush(PATIENCE_S) == 0
            found: list[Offset] = []
            asking = threading.Thread(target=lambda: found.append(marks.write([PLACE])[PLACE]))
            asking.start()
            time.sleep(0.3)  # the request waits at the paused broker
        finally:
            running.signal(signal.SIGCONT)
        asking.join(PATIENCE_S)
        assert found[0] > before + 2, "the two records are below it"
        reader.close()


@pytest.mark.slow
def test_a_mark_in_a_topic_that_is_missing_is_an_error(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("falkirk.connectors.kafka.reading.reader.GONE", 1.0)
    reader = BoundedReader(Cluster(kafka))
    with pytest.raises(ClusterError, match="no-such-topic"):
        Marks(Cluster(kafka), reader).write([TopicPartition("no-such-topic", 0)])
    reader.close()
