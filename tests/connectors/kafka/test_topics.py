"""Asking the cluster for topics and offsets, across its restarts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.faults.faults import LOSE
from tests.faults.frames import Api
from tests.faults.proxy import Proxy

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.embedded import EmbeddedKafka
from falkirk.connectors.kafka.admin.members import Group
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import UnreachableError


@pytest.mark.slow
def test_offsets_are_told_again_by_a_broker_that_was_restarted(embedded: Callable[..., EmbeddedKafka]) -> None:
    broker = embedded()
    broker.start()
    topics = Topics(Cluster(broker.bootstrap))
    topics.create("bids", 2, 1, {})
    places = [TopicPartition("bids", p) for p in range(2)]
    assert topics.offsets(places, "latest") == dict.fromkeys(places, 0)
    broker.stop()
    broker.start()
    assert topics.offsets(places, "earliest") == dict.fromkeys(places, 0)


@pytest.mark.kafka
def test_a_connection_that_is_cut_off_has_refused_no_credentials(kafka: str, caplog: pytest.LogCaptureFixture) -> None:
    """A run that is told of wrong credentials ends; one that finds no broker waits for it."""
    proxy = Proxy(kafka)
    proxy.add(LOSE, Api.SASL_HANDSHAKE, times=None)
    proxy.listen()
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
    }
    topics = Topics(Cluster(proxy.address, given))
    try:
        with pytest.raises(UnreachableError):
            topics.check_reachable(timeout=1)
        assert "handshake" not in caplog.text
    finally:
        proxy.close()


@pytest.mark.kafka
def test_a_coordinator_that_only_begins_is_asked_again(kafka: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As brokers answer for seconds after they were started, where many offsets are to be read."""
    topics, told = Topics(Cluster(kafka)), [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR]
    ask = topics._admin.list_groups

    def begins(*asked: Any) -> Any:
        if told:
            raise KafkaException(KafkaError(told.pop()))
        return ask(*asked)

    monkeypatch.setattr(topics, "_admin", SimpleNamespace(list_groups=begins))
    assert topics.group("nobody's") == Group(False, {})
    assert not told
    told += [KafkaError.COORDINATOR_LOAD_IN_PROGRESS] * 100
    with pytest.raises(UnreachableError, match="consumer group nobody's"):
        topics.group("nobody's", timeout=0.2)
