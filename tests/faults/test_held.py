"""A request that was held reaches the broker within a later transaction: it must find another epoch there.

log ── EndTxn ──▶ proxy (kept; the connection is reset)
log ── EndTxn ──▶ broker                                   librdkafka sends it again by itself, and the call returns
log ── Produce ─▶ broker                                   the next transaction
                  proxy ── EndTxn ──▶ broker               ends that transaction, if it is of the same epoch
log ── Produce ─▶ broker
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import OFFSET_INVALID, Consumer
from confluent_kafka import TopicPartition as Partition
from tests.checkpoint.log_contract import read_all, wait_for_record, write
from tests.connectors.kafka.test_log import RealHarness
from tests.faults.faults import HOLD
from tests.faults.frames import Api
from tests.faults.proxy import Proxy

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log, Unknown, Writes

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy(kafka: str) -> Iterator[Proxy]:
    with Proxy(kafka) as one:
        yield one


@pytest.fixture
def behind(proxy: Proxy) -> Iterator[RealHarness]:
    harness = RealHarness(proxy.address)
    yield harness
    harness.close()


@pytest.fixture
def direct(kafka: str) -> Iterator[RealHarness]:
    harness = RealHarness(kafka)
    yield harness
    harness.close()


async def in_two_parts(log: Log, reader: Log, place: TopicPartition) -> bool:
    """A transaction whose first record reaches the broker before its second is sent; whether it was committed."""
    try:
        await log.begin()
    except Unknown:
        await log.renew()
        await log.begin()
    end = (await reader.end([place]))[place]
    try:
        await log.send(Writes(place.topic, [place.partition], [b"k"], [b"2"], tracked=True))
        await wait_for_record(reader, place, end + 1)
        await log.send(Writes(place.topic, [place.partition], [b"k"], [b"3"], tracked=True))
        await log.send_offsets({place: Offset(2)})
        await log.commit()
    except (Aborted, Unknown):
        return False
    return True


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("api", [Api.END_TXN, Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT], ids=lambda api: api.name)
def test_a_held_request_does_nothing_to_the_next_transaction(
    proxy: Proxy, behind: RealHarness, direct: RealHarness, api: Api, commit: bool
) -> None:
    place = TopicPartition(behind.topic(1), 0)
    log, reader = behind.log("a"), direct.log("b")

    async def work() -> tuple[bool, list[bytes | None]]:
        await log.renew()
        proxy.add(HOLD, api)
        await write(log, [place], b"1")
        with suppress(Unknown):  # it is in doubt, and yet committed: see `in_two_parts`
            await (log.commit() if commit else log.abort())
        done = await in_two_parts(log, reader, place)
        await log.renew()
        return done, await read_all(reader, place)

    before = [b"1"] if commit else []
    assert behind.run(work()) == (True, [*before, b"2", b"3"]), str(proxy.journal)
    answered = proxy.journal.wait_for("answered")
    if api is not Api.TXN_OFFSET_COMMIT:  # its errors are told partition by partition
        assert answered.error != 0, str(proxy.journal)


def test_offsets_of_an_aborted_transaction_are_not_committed_by_the_next(
    kafka: str, proxy: Proxy, behind: RealHarness, direct: RealHarness
) -> None:
    topic = behind.topic(2)
    place, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    log, reader = behind.log("a"), direct.log("b")

    async def work() -> None:
        await log.renew()
        proxy.add(HOLD, Api.TXN_OFFSET_COMMIT)
        await log.begin()
        await log.send(Writes(topic, [0], [b"k"], [b"1"]))
        await log.send_offsets({other: Offset(77)})
        with suppress(Unknown):
            await log.abort()
        assert await in_two_parts(log, reader, place)
        await log.renew()

    behind.run(work())
    proxy.journal.wait_for("answered")
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": behind.workers[id(log)].group})
    committed = consumer.committed([Partition(topic, 0), Partition(topic, 1)], timeout=20)
    consumer.close()
    assert [place.offset for place in committed] == [2, OFFSET_INVALID], str(proxy.journal)
