"""The log keeps its contract behind the proxy, whatever happens to its requests."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping

import pytest
from tests.checkpoint.log_contract import Harness, LogContract
from tests.connectors.kafka.test_log import RealHarness
from tests.faults.faults import Fault, Plan
from tests.faults.frames import Api, Request
from tests.faults.proxy import Proxy

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Unknown, Writes
from falkirk.connectors.kafka.transactions.log import KafkaLog

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RATES = {
    Api.END_TXN: 0.3,
    Api.ADD_OFFSETS_TO_TXN: 0.2,
    Api.ADD_PARTITIONS_TO_TXN: 0.2,
    Api.TXN_OFFSET_COMMIT: 0.2,
    Api.PRODUCE: 0.1,
}


class Sparing(Plan):
    """Spares the worker that commits behind another's open transaction, of which the contract has one ("c" of
    `test_a_committed_read_stops_at_an_open_transaction`). What became of its own transaction cannot be read while the other
    one is open. The step protocol never asks that: each task's partition has one owner, who fences those before it."""

    def fault(self, request: Request) -> Fault | None:
        return None if request.transactional_id.endswith("-c") else super().fault(request)


class DecidedLog(KafkaLog):
    """Finds out, as the step protocol does, what became of a transaction whose end is unknown: the contract is about ends
    that are known."""

    async def begin(self) -> None:
        self.before: dict[TopicPartition, Offset] = {}
        self.writes: list[Writes] = []
        try:
            await super().begin()
        except Unknown:
            await self.renew()
            await super().begin()

    async def send(self, writes: Writes) -> None:
        places = [TopicPartition(writes.topic, p) for p in writes.partitions]
        if new := [place for place in places if place not in self.before]:
            self.before |= await self.end(new)
        self.writes.append(writes)
        await super().send(writes)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """What ends so was not asked to commit: a new producer aborts it. The step protocol makes the step again then, and so
        does this. It is needed: for a moment after each reset, librdkafka asks the bootstrap servers for the group's
        coordinator, and gives up the transaction if it drops their connection before the answer."""
        try:
            await super().send_offsets(offsets)
        except Unknown:
            await self.renew()
            await super().begin()
            for writes in self.writes:
                await super().send(writes)
            try:
                await super().send_offsets(offsets)
            except Unknown as error:
                await self.renew()
                raise Aborted(error.cause.what, error.cause.why) from error

    async def commit(self) -> Mapping[TopicPartition, Offset]:
        try:
            return await super().commit()
        except Unknown:
            await self.renew()
            written = {place: offset for place in self.sent if (offset := await self.found(place)) is not None}
            if written.keys() != self.sent.keys():
                raise
            return written

    @property
    def sent(self) -> dict[TopicPartition, bytes | None]:
        """The last value in each partition."""
        return {
            TopicPartition(w.topic, p): value
            for w in self.writes
            for p, value in zip(w.partitions, w.values, strict=True)
        }

    async def abort(self) -> None:
        try:
            await super().abort()
        except Unknown:
            await self.renew()

    async def found(self, place: TopicPartition) -> Offset | None:
        """Where the last record is that this transaction sent there, if it was committed."""
        offset, position, end = None, self.before[place], (await self.end([place]))[place]
        while position < end:
            read = (await self.read_committed({place: (position, end)}))[place]
            offset = next((r.offset for r in reversed(read.records) if r.value == self.sent[place]), offset)
            if read.position == position:
                break  # another's open transaction
            position = read.position
        return offset


class TestKafkaLogBehindFaults(LogContract):
    @pytest.fixture(params=[1, 2, 3], ids=lambda seed: f"seed {seed}")
    def world(self, kafka: str, request: pytest.FixtureRequest) -> Iterator[Harness]:  # type: ignore[override]
        # Each test has faults of its own, the same each time.
        plan = Sparing(zlib.crc32(request.node.name.encode()), RATES)
        with Proxy(kafka, plan) as proxy:
            harness = RealHarness(proxy.address, DecidedLog)
            yield harness
            print(proxy.journal)  # shown where the test fails
            harness.close()
