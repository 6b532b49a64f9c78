"""What every implementation of the port `Log` must do, seen from outside: the clauses that the step protocol leans on.

A module that has an implementation makes a `Harness` for it and inherits `LogContract`:

    class TestMyLog(LogContract):
        @pytest.fixture
        def world(self) -> Harness: ...
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import pytest

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Aborted, Log, Unknown, Writes

T = TypeVar("T")


class Harness(Protocol):
    """A cluster, and workers in it."""

    def log(self, name: str) -> Log:
        """A worker that has joined the group. The same name twice: the same transactional id in another process."""
        ...

    def topic(self, partitions: int) -> str:
        """A new topic's name."""
        ...

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end."""
        ...

    def expel(self, log: Log) -> None:
        """The group goes on to a generation without this worker, which does not learn of it yet."""
        ...

    def rejoin(self, log: Log) -> None:
        """The worker becomes a member again under its instance id, but the log still speaks for the member it was."""
        ...


async def read_all(log: Log, tp: TopicPartition, start: int = 0) -> list[bytes | None]:
    """Everything committed, read as the protocol reads: to the high watermark, waiting for markers."""
    end = (await log.end([tp]))[tp]
    position, values = Offset(start), []
    while position < end:
        read = (await log.read_committed({tp: (position, end)}))[tp]
        values += [r.value for r in read.records]
        position = read.position
    assert position == end
    return values


async def write(log: Log, tps: Sequence[TopicPartition], value: bytes) -> None:
    """Begin a transaction, send one record to each partition, and offsets."""
    await log.begin()
    for tp in tps:
        await log.send(Writes(tp.topic, [tp.partition], [b"k"], [value], tracked=True))
    await log.send_offsets({tps[0]: Offset(0)})


async def wait_for_record(log: Log, tp: TopicPartition, end: int) -> None:
    """Until the records of an open transaction have reached the broker."""
    while (await log.end([tp]))[tp] < end:
        pass


class LogContract:
    """The clauses, each a test."""

    @pytest.fixture
    def world(self) -> Harness:
        raise NotImplementedError

    @pytest.fixture
    def tp(self, world: Harness) -> TopicPartition:
        return TopicPartition(world.topic(2), 0)

    def test_a_committed_transaction_is_visible_whole(self, world: Harness, tp: TopicPartition) -> None:
        log, other = world.log("a"), TopicPartition(tp.topic, 1)

        async def work() -> Any:
            await log.renew()
            await log.begin()
            await log.send(Writes(tp.topic, [0, 1], [b"x", None], [b"1", b"2"]))
            await log.send(Writes(tp.topic, [0], [b"z"], [None], tracked=True))
            await log.send_offsets({tp: Offset(0)})
            written = await log.commit()
            return written[tp], await read_all(log, tp), await read_all(log, other)

        assert world.run(work()) == (1, [b"1", None], [b"2"])

    def test_records_keep_key_value_and_offset(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await write(log, [tp], b"1")
            await log.commit()
            await write(log, [tp], b"2")
            await log.commit()
            end = (await log.end([tp]))[tp]
            position, records = Offset(0), []
            while position < end:
                read = (await log.read_committed({tp: (position, end)}))[tp]
                records, position = records + read.records, read.position
            return [tuple(r) for r in records]

        # The marker of the first transaction takes offset 1.
        assert world.run(work()) == [(0, b"k", b"1"), (2, b"k", b"2")]

    def test_an_aborted_transaction_is_invisible(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await write(log, [tp], b"no")
            await wait_for_record(log, tp, 1)
            await log.abort()
            await write(log, [tp], b"yes")
            await log.commit()
            return await read_all(log, tp)

        assert world.run(work()) == [b"yes"]

    def test_an_aborted_record_is_seen_by_an_uncommitted_read(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await write(log, [tp], b"no")
            await wait_for_record(log, tp, 1)
            await log.abort()
            end = (await log.end([tp]))[tp]
            read = (await log.read_uncommitted({tp: (Offset(0), end)}))[tp]
            return [r.value for r in read.records]

        assert world.run(work()) == [b"no"]

    def test_a_committed_read_stops_at_an_open_transaction(self, world: Harness, tp: TopicPartition) -> None:
        reader, early, late = world.log("a"), world.log("b"), world.log("c")

        async def work() -> Any:
            await reader.renew()
            await early.renew()
            await late.renew()
            await write(early, [tp], b"open")
            await wait_for_record(reader, tp, 1)
            await write(late, [tp], b"committed behind it")
            await late.commit()
            end = (await reader.end([tp]))[tp]
            read = (await reader.read_committed({tp: (Offset(0), end)}))[tp]
            stopped = ([r.value for r in read.records], read.position)
            await early.commit()
            return end, stopped, await read_all(reader, tp)

        end, stopped, values = world.run(work())
        assert end >= 2
        assert stopped == ([], 0)
        assert values == [b"open", b"committed behind it"]

    def test_the_end_is_past_every_commit_that_returned(self, world: Harness, tp: TopicPartition) -> None:
        log, reader = world.log("a"), world.log("b")

        async def work() -> None:
            await log.renew()
            for i in range(20):
                await write(log, [tp], b"%d" % i)
                last = (await log.commit())[tp]
                assert (await reader.end([tp]))[tp] > last
                assert (await read_all(reader, tp, last))[0] == b"%d" % i

        world.run(work())

    def test_positions_count_markers(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await write(log, [tp], b"1")
            await log.commit()
            await read_all(log, tp)
            await log.renew()  # waits for the marker
            end = (await log.end([tp]))[tp]
            past_record = (await log.read_committed({tp: (Offset(1), end)}))[tp]
            return end, past_record.records, past_record.position

        assert world.run(work()) == (2, [], 2)

    def test_a_bounded_read_ends_at_its_bound(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await log.begin()
            await log.send(Writes(tp.topic, [0] * 5, [None] * 5, [b"%d" % i for i in range(5)]))
            await log.send_offsets({tp: Offset(0)})
            await log.commit()
            await log.renew()
            values, position = [], Offset(1)
            while position < 3:
                read = (await log.read_committed({tp: (position, Offset(3))}))[tp]
                values, position = values + [r.value for r in read.records], read.position
            return values, position

        assert world.run(work()) == ([b"1", b"2"], 3)

    def test_a_new_producer_decides_what_the_old_one_left_open(self, world: Harness, tp: TopicPartition) -> None:
        crashed = world.log("a")

        async def crash() -> None:
            await crashed.renew()
            await write(crashed, [tp], b"left open")
            await wait_for_record(crashed, tp, 1)

        world.run(crash())
        restarted = world.log("a")

        async def work() -> Any:
            await restarted.renew()
            end = (await restarted.end([tp]))[tp]
            read = (await restarted.read_committed({tp: (Offset(0), end)}))[tp]
            return end, read.position, read.records

        end, position, records = world.run(work())
        assert (position, records) == (end, [])
        assert end >= 2  # the record, and its abort marker

    def test_a_fence_ends_the_transaction_and_its_writer_cannot_commit(
        self, world: Harness, tp: TopicPartition
    ) -> None:
        sleeper, successor = world.log("a"), world.log("b")

        async def work() -> Any:
            await sleeper.renew()
            await successor.renew()
            await write(sleeper, [tp], b"zombie")
            await wait_for_record(successor, tp, 1)
            await successor.fence(sleeper.owner)
            end = (await successor.end([tp]))[tp]
            assert (await successor.read_committed({tp: (Offset(0), end)}))[tp].position == end
            with pytest.raises((Aborted, Unknown)):
                await sleeper.commit()
            return await read_all(successor, tp)

        assert world.run(work()) == []

    def test_a_fenced_worker_that_renews_can_write_again(self, world: Harness, tp: TopicPartition) -> None:
        """The fence by id is not for ever: this is why names, and not fences, decide who owns a task."""
        sleeper, successor = world.log("a"), world.log("b")

        async def work() -> Any:
            await sleeper.renew()
            await successor.renew()
            await write(sleeper, [tp], b"zombie")
            await successor.fence(sleeper.owner)
            with pytest.raises((Aborted, Unknown)):
                await sleeper.commit()
            await sleeper.renew()
            await write(sleeper, [tp], b"back")
            await sleeper.commit()
            return await read_all(successor, tp)

        assert world.run(work()) == [b"back"]

    @pytest.mark.parametrize("how", ["expel", "rejoin"])
    def test_a_stale_member_is_refused_and_the_producer_goes_on(
        self, world: Harness, tp: TopicPartition, how: str
    ) -> None:
        log, reader = world.log("a"), world.log("b")

        async def work() -> None:
            with pytest.raises(Aborted):
                await transact(b"stale")
            await log.begin()
            await log.abort()

        async def transact(value: bytes) -> None:
            await write(log, [tp], value)
            await log.commit()

        world.run(log.renew())
        world.run(transact(b"fresh"))
        getattr(world, how)(log)
        world.run(work())
        assert world.run(read_all(reader, tp)) == [b"fresh"]

    def test_the_start_is_the_first_offset_kept(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            empty = await log.start([tp]), await log.end([tp])
            await log.renew()
            await write(log, [tp], b"1")
            await log.commit()
            return empty, await log.start([tp])

        assert world.run(work()) == (({tp: 0}, {tp: 0}), {tp: 0})

    def test_a_mark_is_behind_all_that_was_acknowledged_and_no_change(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            await write(log, [tp], b"1")
            before = (await log.commit())[tp]
            mark = (await log.mark([tp]))[tp]
            await write(log, [tp], b"2")
            after = (await log.commit())[tp]
            end = (await log.end([tp]))[tp]
            position, changes, records = Offset(0), dict[bytes, bytes | None](), dict[int, bytes | None]()
            while position < end:
                read = (await log.read_committed({tp: (position, end)}))[tp]
                records |= {r.offset: r.value for r in read.records}
                more, position = await log.read_changes(tp, position, end)
                changes |= more
            return before < mark < after, records == {before: b"1", mark: None, after: b"2"}, changes

        assert world.run(work()) == (True, True, {b"k": b"2"})

    def test_changes_are_the_last_of_each_key(self, world: Harness, tp: TopicPartition) -> None:
        log = world.log("a")

        async def work() -> Any:
            await log.renew()
            for values, commit in (([b"1", b"2", b"3"], True), ([b"4", None, b"6"], True), ([b"7"] * 3, False)):
                await log.begin()
                await log.send(Writes(tp.topic, [0, 0, 0], [b"x", b"y", b"z"], values))
                await log.send_offsets({tp: Offset(0)})
                await (log.commit() if commit else log.abort())
            end = (await log.end([tp]))[tp]
            changes: dict[bytes, bytes | None] = {}
            position = Offset(1)
            while position < end:
                more, position = await log.read_changes(tp, position, end)
                changes |= more
            return changes, position - end

        assert world.run(work()) == ({b"x": b"4", b"y": None, b"z": b"6"}, 0)
