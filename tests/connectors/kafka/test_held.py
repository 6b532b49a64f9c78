"""Transactions of others that are open in a source: who waits for its end says so, and so does `status`."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from tests.bad_input.stand import Stand
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.cli.main import falkirk
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading import held as held_module
from falkirk.connectors.kafka.reading.held import SAY_AFTER, SAY_EVERY, Held, Waits, held
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.inspect import status as status_module

pytestmark = pytest.mark.kafka


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: object) -> Iterator[Stand]:
    one = Stand(kafka, topic_prefix, tmp_path)  # type: ignore[arg-type]
    yield one
    one.close()


@pytest.fixture
def stranger(stand: Stand) -> Iterator[Producer]:
    """Somebody else's producer, with a transaction of one bid open behind the two of the only partition."""
    stand.topic(partitions=1)
    stand.bids(2)
    producer = Producer({"bootstrap.servers": stand.brokers, "transactional.id": f"{stand.prefix}stranger"})
    producer.init_transactions()
    producer.begin_transaction()
    bid = b'{"id":2,"auction":1,"bidder":1,"price":1}'
    producer.produce(f"{stand.prefix}bids", bid, "1", timestamp=1_700_000_000_000)
    assert producer.flush(PATIENCE_S) == 0
    yield producer
    with suppress(KafkaException):  # there may be none any more
        producer.abort_transaction()


def test_an_open_transaction_is_found_with_the_date_of_its_first_record(stand: Stand, stranger: Producer) -> None:
    place = TopicPartition(f"{stand.prefix}bids", 0)
    (one,) = held(Cluster(stand.brokers), [place])
    assert one == Held(place, Offset(2), Offset(3), one.since)
    assert one.since == 1_700_000_000_000
    command = f"--bootstrap-server b:1 describe-producers --topic {place.topic} --partition 0"
    assert command in one.words("b:1")
    assert "up to offset 2 of 3" in one.words("b:1")
    stranger.abort_transaction()
    while held(Cluster(stand.brokers), [place]):  # the markers follow
        time.sleep(0.05)


def test_a_broker_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_module, "PATIENCE", 0.2)
    assert held(Cluster("127.0.0.1:1"), [TopicPartition("bids", 0)]) == []


@pytest.mark.slow
def test_a_run_to_the_end_says_which_open_transaction_it_waits_for(
    stand: Stand, stranger: Producer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_module, "SAY_AFTER", 0.5)
    deadline = time.monotonic() + PATIENCE_S
    with caplog.at_level(logging.WARNING, "falkirk"), stand.worker(stand.flow()) as worker:
        end = UntilEnd(worker.app, stand.settings.cluster(), worker.topics)
        committed = False

        def finished() -> bool:
            nonlocal committed
            assert time.monotonic() < deadline, caplog.text
            done = end.finished()
            assert committed or not done
            if not committed and "the end of the input is waited for" in caplog.text:
                monkeypatch.setattr(status_module, "SAY_AFTER", 0.0)
                shown = CliRunner().invoke(falkirk, ["status", stand.name, "--brokers", stand.brokers])
                as_json = CliRunner().invoke(falkirk, ["status", stand.name, "--brokers", stand.brokers, "--json"])
                assert f"a transaction is open in {stand.prefix}bids[0] since " in shown.output.replace("\n", " ")
                (one,) = msgspec.json.decode(as_json.output)["held"]
                assert (one["partition"], one["stable"], one["end"]) == (0, 2, 3)
                stranger.commit_transaction()
                committed = True
            return done

        worker.run(finished)
        end.close()
    (said,) = [r.getMessage() for r in caplog.records if "is waited for" in r.getMessage()]
    assert "up to offset 2 of 3" in said
    stand.sent = 3
    stand.assert_exact()


def test_what_is_waited_for_is_said_after_a_while_and_then_now_and_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now, asked = 100.0, list[float]()

    class Clock:
        monotonic = staticmethod(lambda: now)
        strftime, localtime, time = time.strftime, time.localtime, time.time

    def found(_: Cluster, places: dict[TopicPartition, object]) -> list[Held]:
        asked.extend(now for _ in places)
        return [Held(place, Offset(2), Offset(3), None) for place in places]

    monkeypatch.setattr(held_module, "time", Clock)
    monkeypatch.setattr(held_module, "held", found)
    waits, place = Waits(Cluster("b:1")), TopicPartition("bids", 0)
    with caplog.at_level(logging.WARNING, "falkirk"):
        for second in range(int(SAY_AFTER + SAY_EVERY) + 1):
            now = 100.0 + second
            waits.note({place: Offset(2)})
        assert asked == [100 + SAY_AFTER, 100 + SAY_AFTER + SAY_EVERY]
        assert len(caplog.records) == 2
        asked.clear()
        for second in range(200, 300):  # one that gets on, and one that is done in between, are not stuck
            now = float(second)
            waits.note({place: Offset(second)} if second % 3 else {})
    assert asked == []
