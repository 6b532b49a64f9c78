"""Records that a broker refuses: known before they are sent, or told by the broker; and in no case tried for ever."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.bad_input.stand import Stand
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.worker import aborts
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client import errors
from falkirk.connectors.kafka.transactions.log import KafkaLog
from falkirk.errors import ClusterError, UserCodeError
from falkirk.runtime.app.until_end import UntilEnd

pytestmark = pytest.mark.kafka

ROW = {"id": fk.Int64, "k": fk.String}


def flow(stand: Stand, **options: Any) -> fk.Flow:
    flow = fk.Flow(stand.name, **options)
    flow.source(f"{stand.prefix}rows", value=fk.Json(ROW)).sink(f"{stand.prefix}out", key="k", value=fk.Json())
    return flow


def put(stand: Stand, i: int, k: str | None) -> tuple[int, int]:
    return stand.put(None, orjson.dumps({"id": i, "k": k}), "rows", 0)


def test_a_null_key_for_a_compacted_topic_stops_the_run_and_then_is_buried(stand: Stand) -> None:
    stand.topic("rows", 1)
    stand.topic("out", 1, cleanup_policy="compact")
    put(stand, 1, "a")
    _, offset = put(stand, 2, None)
    put(stand, 3, "b")
    with pytest.raises(UserCodeError, match="its key is null") as caught:
        stand.run(flow(stand))
    assert f"topic {stand.prefix}rows, partition 0, offset {offset}" in caught.value.where
    stand.run(flow(stand, on_error=fk.DeadLetter()))
    assert [row["id"] for row in stand.values("out")] == [1, 3]
    (letter,) = stand.read(f"falkirk.{stand.name}.dead-letters")
    assert orjson.loads(letter.value or b"")["offset"] == offset


def test_a_sink_without_a_key_is_refused_on_a_compacted_topic_at_the_start(stand: Stand) -> None:
    stand.topic("rows", 1)
    stand.topic("out", 1, cleanup_policy="compact")
    keyless = fk.Flow(stand.name)
    keyless.source(f"{stand.prefix}rows", value=fk.Json(ROW)).sink(f"{stand.prefix}out", value=fk.Json())
    with pytest.raises(ClusterError, match="is compacted, so it accepts no record without a key") as caught:
        stand.app(keyless)
    assert f"sink {stand.prefix}out" in caught.value.where


def test_a_topic_that_becomes_compacted_while_the_app_runs_ends_it_with_the_place(stand: Stand) -> None:
    stand.topic("rows", 1)
    stand.topic("out", 1)
    put(stand, 1, "a")
    with stand.worker(flow(stand)) as worker:
        stand.configure(f"{stand.prefix}out", cleanup_policy="compact")
        time.sleep(0.5)
        put(stand, 2, None)
        with pytest.raises(ClusterError, match="the broker refuses a record") as caught:
            worker.run(lambda: False)
    assert caught.value.where == f"topic {stand.prefix}out, partition 0"
    assert "compacted" in caught.value.hint
    # Started again, it knows.
    stand.run(flow(stand, on_error=fk.DeadLetter()))
    assert [row["id"] for row in stand.values("out")] == [1]


def test_a_refusal_that_nobody_has_words_for_ends_the_app_too(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(errors._WORDS, KafkaError.INVALID_RECORD)
    monkeypatch.setattr(aborts, "LONGEST", 0.05)
    stand.topic("rows", 1)
    stand.topic("out", 1)
    with stand.worker(flow(stand)) as worker:
        stand.configure(f"{stand.prefix}out", cleanup_policy="compact")
        time.sleep(0.5)
        put(stand, 2, None)
        with pytest.raises(ClusterError, match=f"rejected a transaction {aborts.REFUSALS} times in a row") as caught:
            worker.run(lambda: False)
    assert f"ProduceRequest for {stand.prefix}out [0]" in caught.value.what
    assert f"writes to {stand.prefix}out" in caught.value.where
    assert f"{stand.prefix}rows[0]" in caught.value.where


def test_a_record_that_its_producer_dates_far_ahead_holds_nothing_up(stand: Stand) -> None:
    stand.topic("rows", 1, message_timestamp_after_max_ms=str(2**63 - 1))
    stand.topic("out", 1)  # with the broker's bounds: an hour
    ahead = int(time.time() * 1000) + 400 * 24 * 3_600_000
    stand.producer.produce(f"{stand.prefix}rows", b'{"id":1,"k":"a"}', None, 0, timestamp=ahead)
    stand.producer.produce(f"{stand.prefix}rows", b"{", None, 0, timestamp=ahead)
    assert stand.producer.flush(PATIENCE_S) == 0
    stand.run(flow(stand))
    (record,) = stand.read(f"{stand.prefix}out")
    assert record.timestamp < time.time() * 1000 + 3_600_000
    assert len(list(stand.read(f"falkirk.{stand.name}.dead-letters"))) == 1


def test_what_a_topic_with_narrow_bounds_does_not_accept_is_buried(stand: Stand) -> None:
    stand.topic("rows", 1)
    stand.topic("out", 1, message_timestamp_before_max_ms="3600000")
    old = int(time.time() * 1000) - 7_200_000
    stand.producer.produce(f"{stand.prefix}rows", b'{"id":1,"k":"a"}', None, 0, timestamp=old)
    put(stand, 2, "b")
    stand.run(flow(stand, on_error=fk.DeadLetter()))
    assert [row["id"] for row in stand.values("out")] == [2]
    assert len(list(stand.read(f"falkirk.{stand.name}.dead-letters"))) == 1


@pytest.mark.slow
def test_topics_that_the_app_makes_accept_records_of_any_date(stand: Stand) -> None:
    stand.topic("rows", 1)
    app = stand.app(flow(stand, on_error=fk.DeadLetter()))
    out, letters = f"{stand.prefix}out", f"falkirk.{stand.name}.dead-letters"
    configs = Topics(stand.settings.cluster()).configs([out, letters])
    for config in configs.values():
        assert config["message.timestamp.after.max.ms"] == config["message.timestamp.before.max.ms"] == str(2**63 - 1)
    assert app.layout.accepts[out].after is None


@pytest.mark.slow
def test_a_rebalance_does_not_count_against_a_step(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """The group's generation has moved on under each transaction, more often than refusals are allowed for."""
    stand.topic("rows", 1)
    put(stand, 0, "a")
    stale = KafkaError(KafkaError.ILLEGAL_GENERATION, "stale", txn_requires_abort=True)
    left, send_offsets = iter(range(2 * aborts.REFUSALS)), KafkaLog.send_offsets

    async def moved_on(log: KafkaLog, offsets: Mapping[TopicPartition, Offset]) -> None:
        if next(left, None) is not None:
            raise log._failed(KafkaException(stale))
        await send_offsets(log, offsets)

    with stand.worker(flow(stand)) as worker:
        end = UntilEnd(worker.app, stand.settings.cluster(), worker.topics)
        worker.join()
        while not worker.tasks:
            worker.turn()
        monkeypatch.setattr(KafkaLog, "send_offsets", moved_on)
        while not end.finished():
            worker.turn()
        end.close()
    assert next(left, None) is None
    assert [row["id"] for row in stand.values("out")] == [0]
