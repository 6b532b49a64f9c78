"""Kafka's errors in words: what cannot be fixed by trying again is a FalkirkError with a hint; the rest is not one."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, Uuid
from tests.waiting import PATIENCE_S

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, OwnerId, TopicPartition
from falkirk.checkpoint.ports import Fenced, Unknown, Why, Writes
from falkirk.connectors.kafka.admin.described import described
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.clients import client
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.connections import watched
from falkirk.connectors.kafka.client.errors import translate
from falkirk.connectors.kafka.reading import source
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.connectors.kafka.transactions import delivery
from falkirk.connectors.kafka.transactions.log import KafkaLog, Transaction
from falkirk.connectors.kafka.transactions.marks import Marks
from falkirk.errors import ClusterError, ConfigError, UnreachableError


@pytest.mark.parametrize(
    ("code", "kind", "says", "hint"),
    [
        (KafkaError.UNSUPPORTED_VERSION, ClusterError, "the broker is too old", "Kafka 2.8 or later"),
        (KafkaError._UNSUPPORTED_FEATURE, ClusterError, "the broker is too old", "Kafka 2.8 or later"),
        (KafkaError.INVALID_SESSION_TIMEOUT, ConfigError, "session time-out", "--session-timeout"),
        (KafkaError.INVALID_REPLICATION_FACTOR, ConfigError, "too few brokers", "--replication"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, ClusterError, "refused the credentials", "password"),
        (KafkaError._SSL, ClusterError, "no secure connection", "security.protocol"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, ClusterError, "not authorised for a topic", "--acls"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, ClusterError, "other programs are members", "another name"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, ClusterError, "a topic is missing", "deleted"),
    ],
)
def test_what_no_retry_mends_is_told_with_what_to_do(code: int, kind: type[ClusterError], says: str, hint: str) -> None:
    error = translate(KafkaError(code), "topic bids")
    assert type(error) is kind
    assert says in error.what
    assert hint in error.hint
    assert error.where == "topic bids"


@pytest.mark.parametrize(("cluster", "given"), [("", "(--set, or [kafka])"), ("sales", "([cluster.sales.kafka])")])
def test_wrong_credentials_are_said_with_the_place_where_they_are_given(cluster: str, given: str) -> None:
    error = translate(KafkaError(KafkaError._AUTHENTICATION), "brokers", cluster)
    assert error is not None
    assert given in error.hint
    assert error.exit_code


@pytest.mark.parametrize("code", [KafkaError.NOT_COORDINATOR, KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT])
def test_what_a_retry_mends_is_no_error(code: int) -> None:
    assert translate(KafkaError(code)) is None


def test_a_broker_whose_topics_have_no_ids_is_too_old() -> None:
    class Topic:
        topic_id = Uuid(0, 0)
        partitions = ()

    future: Future[Topic] = Future()
    future.set_result(Topic())
    with pytest.raises(ClusterError, match="the broker is too old") as caught:
        described({"bids": future})
    assert caught.value.where == "topic bids"


@pytest.mark.parametrize(
    "settings", [{"securty.protocol": "SSL"}, {"security.protocol": "SSLL"}, {"session.timeout.ms": 36_000_000}]
)
def test_settings_that_the_client_refuses_are_told_as_such(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="refuses its settings") as caught:
        client(Consumer, {"group.id": "x", **settings})
    assert next(iter(settings)) in caught.value.what
    assert "--set" in caught.value.hint


def test_where_nobody_listens_is_said_in_time_and_why() -> None:
    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no broker answers at .*: .*Connection refused"):
        Topics(Cluster("127.0.0.1:1")).check_reachable(1.0)
    assert time.monotonic() - began < 5


def test_a_call_that_does_not_keep_its_time_out_leaves_its_outcome_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "STUCK", 0.05)
    kafka = KafkaLog(Cluster("127.0.0.1:1"), OwnerId("me"), lambda: None)
    kafka._producer, kafka._state = client(Producer, {"bootstrap.servers": "127.0.0.1:1"}), Transaction.OPEN
    kafka._in_time(lambda: None)
    with pytest.raises(Unknown, match="nothing was acknowledged"):
        kafka._in_time(lambda: time.sleep(1))
    with pytest.raises(Unknown, match="renew"):
        kafka._live()
    kafka.close()


def test_log_lines_of_a_producer_that_is_left_behind_are_taken_until_its_call_returns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "STUCK", 0.05)
    kafka, returns = KafkaLog(Cluster("127.0.0.1:1"), OwnerId("me"), lambda: None), threading.Event()
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    class Log:
        def log(self, level: int, form: str, *args: str) -> None:
            lines.put(args[0])

    settings = watched({**Cluster("127.0.0.1:1").settings(), "reconnect.backoff.max.ms": 20})
    kafka._producer, kafka._state = client(Producer, settings, Log()), Transaction.OPEN
    before = threading.enumerate()
    with pytest.raises(Unknown):
        kafka._in_time(returns.wait)
    kafka.close()
    [serving] = [t for t in threading.enumerate() if t.name == "falkirk-left-behind" and t not in before]
    for _ in range(20):  # it tries to connect, and says so, again and again
        lines.get(timeout=10)
    returns.set()
    serving.join(10)
    assert not serving.is_alive(), "it is kept although its call has returned"


@pytest.mark.parametrize("in_a_log_line", [False, True])
def test_a_fence_that_is_met_while_events_are_served_is_one(in_a_log_line: bool) -> None:
    fence = KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))

    class Fencing:
        def flush(self, timeout: float) -> int:
            if in_a_log_line:
                raise SystemError("a log callback returned a result with an exception set") from fence
            raise fence

    kafka = KafkaLog(Cluster("127.0.0.1:1"), OwnerId("me"), lambda: None)
    kafka._producer, kafka._state = Fencing(), Transaction.OPEN  # type: ignore[assignment]
    with pytest.raises(Fenced):
        driver.run(kafka.commit())
    kafka.close()


@pytest.mark.kafka
def test_a_refusal_that_comes_while_records_are_still_being_sent_is_told(kafka: str, topic_prefix: str) -> None:
    """By then, the producer says only that it takes no more records."""
    topic = f"{topic_prefix}small"
    Topics(Cluster(kafka)).create(topic, 1, 1, {"max.message.bytes": "2000"})
    log = KafkaLog(Cluster(kafka), OwnerId(f"{topic_prefix}me"), lambda: None)
    driver.run(log.renew())
    driver.run(log.begin())
    driver.run(log.send(Writes(topic, [0], [b"k"], [random.randbytes(5000)])))
    with pytest.raises(ClusterError, match="larger than the broker or its topic accepts"):
        send_until_refused(log, topic)
    log.close()


@pytest.mark.kafka
def test_a_fence_that_comes_while_records_are_still_being_sent_is_one(kafka: str, topic_prefix: str) -> None:
    topic, owner = f"{topic_prefix}out", OwnerId(f"{topic_prefix}me")
    Topics(Cluster(kafka)).create(topic, 1, 1, {})
    sleeping, awake = (KafkaLog(Cluster(kafka), owner, lambda: None) for _ in range(2))
    driver.run(sleeping.renew())
    driver.run(sleeping.begin())
    driver.run(awake.renew())
    with pytest.raises(Fenced) as raised:
        send_until_refused(sleeping, topic)
    assert raised.value.cause.why is Why.TRANSIENT
    sleeping.close()
    awake.close()


def send_until_refused(log: KafkaLog, topic: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        driver.run(log.send(Writes(topic, [0], [b"k"], [b"v"])))
        time.sleep(0.01)


def test_records_that_are_gone_are_told_though_no_broker_answers_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ANSWER", 0.1)
    reader = source.SourceReader(Cluster("127.0.0.1:1"))
    message: Any = SimpleNamespace(topic=lambda: "bids", partition=lambda: 0, offset=lambda: 7)
    error = reader._out_of_range(message, "bids[0]")
    assert str(error).startswith("the topic has no offset 7, up to which the app has read it, and no broker tells")
    reader.close()


UNPLACED: Any = SimpleNamespace(topic=lambda: "steps", partition=lambda: 0, offset=lambda: None)
"""A record that was sent again: the broker says that it has it already, and not where."""


def test_a_record_that_is_acknowledged_without_its_offset_leaves_the_outcome_to_the_log() -> None:
    kafka = KafkaLog(Cluster("127.0.0.1:1"), OwnerId("me"), lambda: None)
    kafka._delivered(None, UNPLACED)
    kafka._producer, kafka._state = client(Producer, {"bootstrap.servers": "127.0.0.1:1"}), Transaction.OPEN
    with pytest.raises(Unknown, match="a call was repeated"):
        kafka._ended()
    assert kafka._written == {}
    kafka.close()


def test_a_mark_that_is_acknowledged_without_its_offset_is_written_again() -> None:
    """Taken for offset 0, it would be the end of an empty log."""

    class Acknowledging:
        def produce(self, *of: object, on_delivery: Callable[[None, Any], None]) -> None:
            self.report = partial(on_delivery, None, UNPLACED)

        def poll(self, timeout: float) -> None:
            self.report()

    marks = Marks(Cluster("127.0.0.1:1"), BoundedReader(Cluster("127.0.0.1:1"), ()))
    found: dict[TopicPartition, Offset] = {}
    assert marks._try(Acknowledging(), [TopicPartition("steps", 0)], found, 1.0) is not None  # type: ignore[arg-type]
    assert found == {}


def test_records_that_no_queue_has_room_for_are_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PATIENCE", 0.1)
    kafka = KafkaLog(Cluster("127.0.0.1:1"), OwnerId("me"), lambda: None)
    settings = {"bootstrap.servers": "127.0.0.1:1", "queue.buffering.max.messages": 2}
    kafka._producer, kafka._state = client(Producer, settings), Transaction.OPEN
    kafka.delivery.begin()
    with pytest.raises(Unknown, match="2 of 2 records to be acknowledged, and nothing was acknowledged") as raised:
        driver.run(kafka.send(Writes("out", [0] * 5, [b"k"] * 5, [b"v"] * 5)))
    assert raised.value.cause.why is Why.SLOW  # the next attempt has fewer
    kafka.close()
