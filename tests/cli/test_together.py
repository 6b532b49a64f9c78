"""Requests that meet: of several people at once, or while something else is under way."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.bad_input.stand import Stand, flow_file
from tests.cli.test_operations import desk_of, stand
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Abandoned, Completed, EpochRecord, Opened, propose
from falkirk.checkpoint.ids import Epoch, Millis
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError, FalkirkError, UserCodeError
from falkirk.runtime.inspect.drained import not_drained
from falkirk.runtime.inspect.status import read_status
from falkirk.runtime.layout.deleting import app_resources
from falkirk.runtime.layout.resetting import reset
from falkirk.runtime.messages.epochs import batch_part
from falkirk.runtime.messages.parts import StoppedPart, stop_part
from falkirk.runtime.messages.protocol import Request
from falkirk.runtime.messages.request_progress import AppRequest, CheckpointedTask, checkpoint
from falkirk.runtime.messages.requests import current_requests
from falkirk.runtime.processes.draining import Draining
from falkirk.stream.definition.names import control_topic
from falkirk.stream.flow.load import load_flow

pytestmark = pytest.mark.kafka

__all__ = ["stand"]

ERROR = UserCodeError("the function raised", hint="fix it")


def request_of(stand: Stand, *, streams: bool = True) -> AppRequest:
    return AppRequest(stand.name, stand.settings, Topics(stand.settings.cluster()), streams=streams)


def stop(stand: Stand, part: str) -> None:
    control = control_topic("falkirk", stand.name)
    stop_part(stand.settings.cluster(), control, part, StoppedPart.of(ERROR, "w"))


@pytest.mark.slow
def test_two_people_save_versions_at_once(stand: Stand) -> None:
    stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    barrier = threading.Barrier(3)

    def meet() -> None:
        barrier.wait()

    def save() -> list[CheckpointedTask]:
        app, waited = request_of(stand), iter([True])
        return checkpoint(app, PATIENCE_S, lambda _: meet() if next(waited, False) else None)

    with ThreadPoolExecutor(2) as people:
        asked = [people.submit(save) for _ in range(2)]
        meet()  # both wait for workers: one request has replaced the other
        going = stand.start(flow_file())
        for made in asked:
            assert [one.task for one in made.result()] == ["stats/0", "stats/1"]
    assert current_requests(stand.settings.cluster(), control_topic("falkirk", stand.name)).checkpoint is None
    assert going.leave().code == 0


def test_a_pause_follows_the_request_that_stands(stand: Stand) -> None:
    stand.topic()
    stand.run(stand.flow())
    asked, another = request_of(stand), request_of(stand)
    with pytest.raises(FalkirkError, match="is not paused any more: somebody has resumed it"):
        asked.pausing()
    asked.ask("pause")
    later = another.ask("pause")
    assert asked.paused() == later
    assert asked.pausing() == ""
    with pytest.raises(FalkirkError, match="is paused again, by "):
        asked.resuming()


def test_a_checkpoint_does_not_wait_for_a_part_that_has_stopped(stand: Stand) -> None:
    stand.topic()
    stand.bids(5)
    stand.run(stand.flow())
    stop(stand, "stats")
    code, said = desk_of(stand).give("checkpoint", stand.name)
    assert code == UserCodeError.exit_code, said
    assert "part stats has stopped, and has no new version: the function raised" in said


@pytest.mark.slow
def test_a_drain_waits_for_partitions_that_have_joined_since_the_run_began(stand: Stand) -> None:
    bids = stand.topic()

    def flow() -> fk.Flow:
        return stand.flow(repartition=True)

    stand.bids(5)
    before = stand.app(flow())
    stand.grow(3)
    stand.run(flow())
    ends = request_of(stand).source_ends()
    assert len(ends[bids]) == 3
    place = stand.put(b"1", b'{"id":5,"auction":1,"bidder":1,"price":1}', partition=2)
    stand.sent += 1
    asked = Request("ann", 0, "a1", {bids: (*ends[bids][:2], place[1] + 1)})
    topics = Topics(stand.settings.cluster())
    with (
        closing(Draining(before, stand.settings, topics, lambda _: None)) as draining,
        closing(draining._until(asked)) as end,
    ):
        for _ in range(20):
            assert not end.finished()
            time.sleep(0.1)
        stand.run(flow())
        while not end.finished():
            time.sleep(0.1)
    stand.assert_exact()


def test_a_part_that_has_stopped_stays_stopped_in_a_flow_that_stops_as_a_whole(stand: Stand) -> None:
    """Until the end of the rest, not forever."""
    stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    stop(stand, "stats")
    stand.bids(20)
    stand.run(stand.flow())
    assert sum(stand.counts("stats").values()) < stand.sent


@pytest.mark.slow
def test_a_drain_whose_workers_were_stopped_before_its_end_has_failed(stand: Stand) -> None:
    bids = stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    stand.bids(5)
    ends = request_of(stand).source_ends()
    stand.bids(5)
    settings, topics = stand.settings, Topics(stand.settings.cluster())

    def undone(ends: dict[str, tuple[int, ...]]) -> list[str]:
        status = read_status(stand.name, settings, topics)
        return not_drained(status, ends, settings.cluster(), topics, alone=True)

    assert undone(ends)
    stand.run(stand.flow())
    stand.bids(5)
    assert undone(ends) == []
    stand.grow(3)
    stand.put(b"1", b'{"id":5,"auction":1,"bidder":1,"price":1}', partition=2)
    assert undone({bids: (*ends[bids], 1)}) == [f"{bids}[2]"]


@pytest.mark.slow
def test_a_drain_ends_with_the_error_of_a_part_that_has_stopped(stand: Stand) -> None:
    stand.topic()
    stand.bids(20)
    going = stand.start(flow_file())
    stand.settle()
    stop(stand, "stats")
    stand.bids(5)
    code, said = desk_of(stand).give("drain", stand.name)
    assert code == UserCodeError.exit_code, said
    assert "part stats has stopped, and has not processed everything: the function raised" in said
    assert going.process.wait(PATIENCE_S) == 0


BATCH = """
flow = fk.Flow(NAME, regime=fk.Batch(every="1s"), on_failure="part")
bids = flow.source(PREFIX + "bids", value=fk.Json({"auction": fk.Int64, "price": fk.Int64}))
bids.group_by("auction", id="totals").agg(n=fk.len()).sink(PREFIX + "totals", key="auction", value=fk.Json())
"""


@pytest.mark.slow
def test_an_app_of_batch_parts_alone_fails_with_its_part_and_resumes_it(stand: Stand) -> None:
    stand.topic()
    stand.bids(5)
    stand.app(load_flow(stand.target(BATCH)))
    stop(stand, "totals")
    desk = desk_of(stand)
    for more in ([], ["--abandon"]):
        code, said = desk.give("epoch", stand.name, "totals", *more)
        desk.refused(2 if more else UserCodeError.exit_code, "no epoch of" if more else "has stopped", of=(code, said))
    ended = stand.cli(BATCH)
    assert ended.code == UserCodeError.exit_code, ended.text
    assert "part totals has stopped, and has not processed everything" in ended.text
    code, said = desk.give("resume", stand.name, "--part", "totals")
    assert (code, "part totals is resumed" in said) == (0, True), said
    assert request_of(stand, streams=False).stopped() == {}
    desk.refused(2, "has no streams", of=desk.give("pause", stand.name))


def test_an_epoch_is_followed_to_its_own_end(stand: Stand) -> None:
    """And not to that of the next, which another person has asked for."""
    stand.topic()
    [batch] = stand.app(load_flow(stand.target(BATCH))).batches
    settings, place = stand.settings, batch.openings
    with batch_part(stand.name, "totals", settings, Topics(settings.cluster())) as part:

        def record(one: EpochRecord) -> None:
            run(propose(part._log, place, part.epochs, one))

        def opened(epoch: int) -> Opened:
            return Opened(Epoch(epoch), Millis(0), (), (), "f")

        before = part.look()
        record(opened(0))
        record(Completed(Epoch(0), Millis(1), (), 7))
        record(opened(1))
        found = part.look_at(0, before)
        assert (found.epoch, found.state, found.rows) == (0, "complete", 7)
        before = part.look_at(1, found)
        assert (before.epoch, before.state) == (1, "open")
        record(Abandoned(Epoch(1), Millis(2), "asked for"))
        record(opened(2))
        found = part.look_at(1, before)
        assert (found.epoch, found.state) == (1, "abandoned")


@pytest.mark.slow
def test_a_reset_begins_again_with_all_parts(stand: Stand) -> None:
    stand.topic()
    stand.bids(20)
    stand.run(stand.flow())
    stop(stand, "stats")
    code, said = desk_of(stand).give("reset", stand.name, "--yes", stateful=True)
    assert (code, "part stats, which had stopped, is resumed" in said) == (0, True), said
    stand.delete("stats")
    stand.run(stand.flow())
    stand.assert_exact()


@pytest.mark.slow
def test_an_app_that_ran_while_its_reset_was_being_confirmed_is_not_reset(stand: Stand) -> None:
    bids = stand.topic()
    stand.bids(20)
    stand.run(stand.flow(repartition=True))
    settings, topics = stand.settings, Topics(stand.settings.cluster())
    found = app_resources(stand.name, settings, topics)
    stand.grow(3)
    stand.run(stand.flow(repartition=True))
    with pytest.raises(ConfigError, match="has changed since this command looked at it"):
        reset(found, settings, topics, {}, lambda _: None)
    stand.bids(5)
    stand.run(stand.flow(repartition=True))
    stand.assert_exact()
    answer = desk_of(stand).give("reset", stand.name, "--to", f"{bids}:0=1", "--to", f"{bids}:0=2", stateful=True)
    desk_of(stand).refused(2, f"--to is given twice for {bids}[0]", of=answer)
    answer = desk_of(stand).give("reset", stand.name, "--to", f"{bids}:0=1,0=2", stateful=True)
    desk_of(stand).refused(2, "names a partition twice", of=answer)
