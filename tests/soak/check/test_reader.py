"""The same logs on a real broker, where what is invisible was written and aborted: the verdicts are the same."""

from __future__ import annotations

import random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.soak.check.findings import Findings, Kind
from tests.soak.check.world import SPOILS, Spoil, World, make
from tests.soak.reader import Reader
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


def publish(kafka: str, world: World) -> None:
    """Write the world's logs in two transactions, and abort the one that holds what is not to be seen.

    The offsets are those of the world: both transactions' markers come behind everything.
    """
    # Without end, for the world's timestamps are of 1970.
    topics = [NewTopic(t, n, 1, config={"retention.ms": "-1"}) for t, n in world.counts().items()]
    admin = AdminClient({"bootstrap.servers": kafka})
    for future in admin.create_topics(topics).values():
        future.result()
    name = world.spec.sources[0]
    writers = {
        visible: Producer({"bootstrap.servers": kafka, "transactional.id": f"{name}-{visible}", "linger.ms": 0})
        for visible in (True, False)
    }
    for writer in writers.values():
        writer.init_transactions()
        writer.begin_transaction()
    for tp, log in world.logs.items():
        before = True
        for entry in log:
            if entry.visible != before:
                writers[before].flush()
            before = entry.visible
            headers = [] if entry.mark is None else [("falkirk", entry.mark)]
            writers[before].produce(
                tp.topic, entry.value, entry.key, tp.partition, timestamp=entry.timestamp, headers=headers
            )
        writers[before].flush()
    writers[True].commit_transaction()
    writers[False].abort_transaction()


def read(kafka: str, world: World) -> Findings:
    """What the reader makes of it."""
    publish(kafka, world)
    reader = Reader(kafka, world.spec)
    reader.finish({world.spec.sources[0]: world.sent}, patience=PATIENCE_S)
    reader.close()
    assert not reader.troubles
    return reader.checker.found


def test_a_sound_log_is_passed(kafka: str, topic_prefix: str) -> None:
    world = make(random.Random(1), rows=300, partitions=3, prefix=topic_prefix)
    assert list(read(kafka, world)) == []


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_a_spoilt_log_is_found_out(spoil: Spoil, kafka: str, topic_prefix: str) -> None:
    rng = random.Random(5)
    world = make(rng, prefix=topic_prefix)
    expected = spoil(world, rng)
    assert expected is not None
    assert read(kafka, world).counts[expected] > 0


def test_a_torn_transaction_is_found_while_the_flow_runs_on(kafka: str, topic_prefix: str) -> None:
    """It does not take the end of the run to see it: the next barrier shows it."""
    rng = random.Random(5)
    world = make(rng, prefix=topic_prefix)
    (torn,) = (spoil for spoil in SPOILS if spoil.__name__ == "lose_the_record")
    torn(world, rng)
    publish(kafka, world)
    reader = Reader(kafka, world.spec)
    for _ in range(2000):
        reader.turn()
        if reader.checker.found.counts[Kind.TORN]:
            break
    reader.close()
    assert reader.checker.found.counts[Kind.TORN]
