"""`on_failure="part"`: a part that fails stops alone, and goes on exactly where it was when it is resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.bad_input.stand import BID, Stand, count
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.errors import DefinitionError, SourceError, UserCodeError
from falkirk.runtime.messages.parts import StoppedPart, resume_part
from falkirk.runtime.messages.requests import current_requests
from falkirk.runtime.worker.worker import Worker

pytestmark = pytest.mark.kafka

POISON = 7_000_000


class Flow:
    """Counts the bids of each auction twice: in an eager part, and in a lazy one that fails at POISON until it is cured."""

    def __init__(self, stand: Stand, on_failure: Any = "part") -> None:
        self.cured = False
        self.part = f"{stand.prefix}bids.lazy"
        self.flow = fk.Flow(stand.name, regime=fk.EagerCheckpoint(step="50ms"), on_failure=on_failure)
        bids = self.flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID))
        count(bids, f"{stand.prefix}stats")
        taken = bids.with_regime(fk.LazyCheckpoint(step="100ms", every="1s")).map(self.takes)
        stats = taken.group_by("auction", id="lazy").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
        stats.sink(f"{stand.prefix}lazy", key="auction", value=fk.Json())

    def takes(self, row: Any) -> Any:
        if row["price"] == POISON and not self.cured:
            raise ValueError("poison")
        return row


def poison(stand: Stand) -> None:
    stand.put(b"3", b'{"id":%d,"auction":3,"bidder":1,"price":%d}' % (stand.sent, POISON))
    stand.sent += 1


def turns(worker: Worker, until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        worker.turn()
        assert time.monotonic() < deadline, worker.stopped()


def counted(stand: Stand, sink: str) -> Callable[[], bool]:
    """Whether a sink has all bids that are sent. Looks now and then."""
    looked = 0.0

    def look() -> bool:
        nonlocal looked
        if time.monotonic() - looked < 0.3:
            return False
        looked = time.monotonic()
        return sum(stand.counts(sink).values()) == stand.sent

    return look


def stopped(stand: Stand, worker: Worker, part: str) -> StoppedPart | None:
    """Why a part has stopped, as all workers hear it."""
    return current_requests(stand.settings.cluster(), worker.app.control).stopped().get(part)


def test_a_part_that_fails_stops_alone_and_goes_on_where_it_was(stand: Stand) -> None:
    stand.topic()
    flow = Flow(stand)
    stand.bids(60)
    with stand.worker(flow.flow) as worker:
        cluster, control = stand.settings.cluster(), worker.app.control
        worker.join()
        turns(worker, counted(stand, "lazy"))
        poison(stand)
        stand.bids(40)
        turns(worker, lambda: bool(worker.stopped()))
        assert worker.stopped() == (flow.part,)
        turns(worker, counted(stand, "stats"))  # the other part goes on
        turns(worker, lambda: stopped(stand, worker, flow.part) is not None)
        why = stopped(stand, worker, flow.part)
        assert why is not None
        assert isinstance(why.error, UserCodeError)
        assert "poison" in why.what
        assert why.by == worker.name
        assert sum(stand.counts("lazy").values()) < stand.sent
        assert {task.stage for task in worker.parts.waiting()} == {flow.part}

        flow.cured = True
        resume_part(cluster, control, flow.part)
        turns(worker, counted(stand, "lazy"))
        assert worker.stopped() == ()
        worker.leave()
    stand.assert_exact("stats")
    stand.assert_exact("lazy")


@pytest.mark.slow
def test_a_part_that_is_resumed_without_a_cure_stops_again(stand: Stand) -> None:
    stand.topic()
    flow = Flow(stand)
    stand.bids(20)
    poison(stand)
    with stand.worker(flow.flow) as worker:
        cluster, control = stand.settings.cluster(), worker.app.control
        worker.join()
        turns(worker, lambda: stopped(stand, worker, flow.part) is not None)
        first = stopped(stand, worker, flow.part)
        resume_part(cluster, control, flow.part)
        turns(worker, lambda: stopped(stand, worker, flow.part) not in (None, first))
        turns(worker, counted(stand, "stats"))
        worker.leave()
    stand.assert_exact("stats")


def test_a_stopped_part_stays_stopped_for_workers_that_start_later(stand: Stand) -> None:
    stand.topic()
    flow = Flow(stand)
    stand.bids(20)
    poison(stand)
    with stand.worker(flow.flow) as worker:
        worker.join()
        turns(worker, lambda: stopped(stand, worker, flow.part) is not None)
        worker.leave()
    flow.cured = True
    stand.bids(20)
    stand.run(flow.flow)
    stand.assert_exact("stats")
    assert sum(stand.counts("lazy").values()) < stand.sent


@pytest.mark.slow
def test_a_part_whose_records_retention_has_deleted_stops_alone(stand: Stand) -> None:
    source = stand.topic(partitions=1)
    flow = Flow(stand)
    stand.bids(20)
    poison(stand)
    with stand.worker(flow.flow) as worker:
        cluster, control = stand.settings.cluster(), worker.app.control
        worker.join()
        turns(worker, lambda: stopped(stand, worker, flow.part) is not None)
        first = stopped(stand, worker, flow.part)
        stand.bids(20)
        turns(worker, counted(stand, "stats"))
        stand.trim(stand.sent)
        flow.cured = True
        resume_part(cluster, control, flow.part)
        turns(worker, lambda: stopped(stand, worker, flow.part) not in (None, first))
        why = stopped(stand, worker, flow.part)
        assert why is not None
        assert isinstance(why.error, SourceError)
        assert "deleted before they were read" in why.what
        assert source in why.where
        stand.bids(20)
        turns(worker, counted(stand, "stats"))
        worker.leave()


def test_without_it_the_worker_ends(stand: Stand) -> None:
    stand.topic()
    flow = Flow(stand, "app")
    stand.bids(20)
    poison(stand)
    with pytest.raises(UserCodeError, match="poison"):
        stand.run(flow.flow)


def test_another_word_is_refused() -> None:
    with pytest.raises(DefinitionError, match="on_failure='stage' is neither 'app' nor 'part'"):
        fk.Flow("stats", on_failure="stage")  # type: ignore[arg-type]
