"""How much a step takes of what is pending: rows are counted, behind an edge too, where a record holds many."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from tests.runtime.parts import domain_of, running

from falkirk.checkpoint.bundles import bundled
from falkirk.checkpoint.ids import Millis, TopicPartition
from falkirk.checkpoint.ports import Writes
from falkirk.checkpoint.tasks import ClosedStep
from falkirk.runtime.observe.traces import SILENT
from falkirk.runtime.worker.pacing import ALONG, Pacer
from falkirk.runtime.worker.reading.pending import Pending
from falkirk.stream.circuit.edges import rows_in
from falkirk.stream.dataflow.batch import TS
from falkirk.stream.dataflow.circuit import StepOutput
from falkirk.stream.dataflow.packing import Packer
from falkirk.stream.dataflow.topics import Input
from falkirk.testing.memory import Record

EDGE, SOURCE = TopicPartition("edge", 0), TopicPartition("bids", 0)


class Message(Record):
    """With a length, as a client's messages have."""

    def __len__(self) -> int:
        return len(self.the_value or b"")


def batch(rows: int) -> bytes:
    [(data, _)] = Packer(pl.DataFrame({"k": range(rows), TS: range(rows)})).pack(0, rows)
    return data


def messages(*values: bytes, start: int = 0) -> list[Any]:
    return [Message(0, offset, None, value) for offset, value in enumerate(values, start)]


@pytest.fixture
def pending() -> Pending:
    inputs: list[Any] = [
        SimpleNamespace(place=place, input=Input(place.topic, place.topic, kind))
        for place, kind in ((EDGE, "edge"), (SOURCE, "source"))
    ]
    return Pending(inputs)


def test_a_bundle_counts_for_all_rows_of_its_parts() -> None:
    parts = [batch(n) for n in (1, 7, 40)]
    made: list[Any] = [[("falkirk", b"by.k/0 7 0")]] * 3
    (one,) = bundled([Writes("edge", [0, 0, 0], [None] * 3, parts, [1, 2, 3], made, bundles=True)])
    assert [rows_in(value) for value in one.values] == [48]
    assert [rows_in(value) for value in (b"\x03\xff", b"?", None)] == [1, 1, 1]


def test_rows_behind_an_edge_are_counted_and_cut_between_records(pending: Pending) -> None:
    pending.add(EDGE, messages(batch(100), batch(20), batch(300), batch(5)))
    assert pending.rows == 425
    size = pending.bytes
    assert size == sum(len(batch(n)) for n in (100, 20, 300, 5))
    taken, rows = pending.take(120)
    assert (taken[EDGE].offsets, rows, pending.rows) == ([0, 1], 120, 305)
    assert 0 < pending.bytes < size
    taken, rows = pending.take(120)  # one record at least
    assert (taken[EDGE].offsets, rows, pending.rows) == ([2], 300, 5)
    pending.add(EDGE, messages(batch(50), start=4))
    taken, rows = pending.take(55)
    assert (taken[EDGE].offsets, rows, pending.rows, pending.bytes) == ([3, 4], 55, 0, 0)


def test_what_is_cut_is_shared_between_the_inputs_that_have_something(pending: Pending) -> None:
    pending.add(SOURCE, messages(*[b"r"] * 500))
    pending.add(EDGE, messages(*[batch(100)] * 5))
    taken, rows = pending.take(400)
    assert (len(taken[SOURCE]), len(taken[EDGE]), rows, pending.rows) == (200, 2, 400, 600)


def test_steps_of_a_task_behind_an_edge_are_bounded_in_rows_and_the_pacer_learns_in_rows() -> None:
    """A hundred records, of a thousand rows each: that is no small step."""
    task = running(0, "edge")
    domain = domain_of(task, traces=SILENT)
    (place,) = task._pending.records
    task.circuit.run = lambda step, overlay: StepOutput()  # type: ignore[method-assign]
    most = 10_000
    domain.pacer = Pacer(limit=0.1, max_rows=most, max_bytes=1 << 30)
    task.offer(place, messages(*[batch(1_000)] * 100))
    domain.arrived([task])
    assert domain.full
    steps: list[ClosedStep] = []
    while task.rows:
        domain.core.pipeline.staged.clear()
        domain.close_steps(Millis(1), drained=True)
        steps += domain.core.pipeline.staged.values()
    assert sum(step.record.rows for step in steps) == 100
    assert {step.rows for step in steps} == {most}
    assert max(step.rows for step in steps) <= most + ALONG
