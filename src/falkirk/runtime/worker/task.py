"""A running task: what it has read but not yet stepped, and the closing of its steps."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from msgspec.structs import replace

from falkirk.checkpoint.correction import close_correction
from falkirk.checkpoint.ids import InputPartition, Millis, Offset, OwnerId, TopicPartition, after, places_in
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.pipeline import Pipeline
from falkirk.checkpoint.records import Move, SelectiveCheckpoint
from falkirk.checkpoint.steps import close_step
from falkirk.checkpoint.tasks import ClosedStep, Owned, ends, next_clock
from falkirk.runtime.app.app import BoundTask
from falkirk.runtime.worker.emissions import moving_of, outputs_of
from falkirk.runtime.worker.reading.intake import Intake
from falkirk.runtime.worker.reading.pending import Pending
from falkirk.runtime.worker.reading.second_reading import SecondReading
from falkirk.runtime.worker.task_ports import Rereader, Tables
from falkirk.stream.dataflow.circuit import Cancellation, Circuit, Slice, StepInput, StepOutput
from falkirk.stream.dataflow.records import Message

AHEAD = 20
"""A task whose steps are bounded reads no more while rows for this many steps wait."""


@dataclass(slots=True)
class OpenStep:
    """A step whose input is fixed. Its circuit may run."""

    given: StepInput
    overlay: Overlay
    rows: int
    """Rows that it reads: a record of an edge holds many."""
    joining: Mapping[InputPartition, Offset]
    """The inputs that it is the first to record."""


class RunningTask:
    """One task between its take-over and its loss.

    offer ──▶ pending ──open_step──▶ OpenStep ──run_step──▶ result ──finish_step──▶ ClosedStep, to be staged
                                       an abort: rewind, and all that was not committed is read again

    `close_step` does the three at once; a step in a thread of its own is run between the two others.
    """

    def __init__(self, bound: BoundTask, owned: Owned, circuit: Circuit) -> None:
        self.bound, self.owned, self.circuit = bound, owned, circuit
        self.evolution = bound.stage.evolution(circuit)
        self.wake_at: int | None = None
        """When its next timer is due, by the clock of its steps; None: it has none."""
        self.moving = False
        """Whether there may be state of an earlier version of the flow: until it is moved, steps read nothing."""
        self.second_reading = SecondReading(bound)
        self._selective_at = 0
        """The clock when the next selective checkpoint is due."""
        tables = {i.place for i in bound.inputs if i.input.table}
        self.tables = tables if len(tables) < len(bound.inputs) else set()
        """Inputs that are still to be read to their end before the others begin."""
        self.intake = Intake.HELD if bound.shared else Intake.MOVING
        self._joining: Mapping[InputPartition, Offset] = {}
        """Topics that have joined since it was taken over, and where they begin: its next step records this."""
        self._joined: dict[TopicPartition, Offset] = {}
        """Those of them that a step has recorded, and that are not read yet: see `joined`."""
        self.under_way: tuple[OpenStep, Future[StepOutput]] | None = None
        """The step that runs in another thread."""
        self._pending = Pending(bound.inputs)
        self._ends: dict[InputPartition, Offset] = {}
        """Where its last closed step, committed or not, stopped reading; empty before step 0."""
        self.rewind()

    @property
    def begun(self) -> bool:
        """Whether a step record says where the inputs are."""
        return bool(self._ends)

    @property
    def rows(self) -> int:
        """The rows that wait for a step."""
        return self._pending.rows

    @property
    def full(self) -> bool:
        """Whether so much waits for steps of a bounded size that no more should be read."""
        bound = self.bound.stage.most_rows
        return bound is not None and self.rows >= AHEAD * bound

    @property
    def bytes(self) -> int:
        """Their size."""
        return self._pending.bytes

    @property
    def ends(self) -> Mapping[InputPartition, Offset]:
        """The ends of its last step's reading."""
        return self._ends

    def rewind(self) -> dict[TopicPartition, Offset]:
        """Forget what was read after the last committed step; return where to continue."""
        self.cancel()
        self._joined, self._selective_at = {}, 0
        self._ends = {} if self.owned.last is None else ends(self.owned.last)
        self._pending.clear()
        self.circuit.rewind()
        state = self.owned.state()
        self.wake_at, self.moving = self.circuit.wake_at(state), self.evolution.moving(state)
        if self.intake is not Intake.HELD:
            self.intake = self._following(Intake.HELD)
        return self.positions()

    def positions(self) -> dict[TopicPartition, Offset]:
        """Where reading of each input that it reads now continues, once the pending records are stepped. Joining topics are
        not read yet."""
        if self.intake < Intake.LOADING:
            return {}
        inputs = [i for i in self.bound.inputs if self.intake is Intake.OPEN or i.place in self.tables]
        return {i.place: self._ends[i.partition] for i in inputs if i.partition in self._ends}

    def advance(self) -> dict[TopicPartition, Offset]:
        """What its intake waited for has come: returns where the inputs begin that it reads from now on."""
        before = self.positions()
        if self.intake is Intake.LOADING:
            self.tables = set()
        self.intake = self._following(self.intake)
        return {place: at for place, at in self.positions().items() if place not in before}

    def _following(self, intake: Intake) -> Intake:
        """The next that applies."""
        if intake < Intake.MOVING and self.moving:
            return Intake.MOVING
        return Intake.LOADING if self.tables else Intake.OPEN

    def offer(self, place: TopicPartition, run: Sequence[Message]) -> None:
        """Take messages in, in the order of their offsets."""
        if self.bound.until is not None:
            run = [m for m in run if m.offset() < self.bound.until.ends[place]]
            if not run:
                return
        self._pending.add(place, run)

    @property
    def due_at(self) -> int | None:
        """When it needs a step even without rows: at a timer; at once (0) if a topic joins, or state is to be moved; None if
        never."""
        return 0 if self.moving or self._joins else self.wake_at

    def due(self, now: Millis) -> bool:
        """Whether it needs a step now, even without rows."""
        return (at := self.due_at) is not None and at <= now

    @property
    def _joins(self) -> bool:
        return not self._joining.keys() <= self._ends.keys()

    def join(self, begins: Mapping[InputPartition, Offset]) -> None:
        """Topics have joined since its last step. The next step records where they begin, as step 0 does for the others, and
        reads nothing of them."""
        self._joining = begins

    def joined(self) -> dict[TopicPartition, Offset]:
        """The topics that have joined since the last call, and where they begin. While tables are loading, that waits: they
        begin with the other inputs."""
        new, self._joined = self._joined, {}
        return new if self.intake is Intake.OPEN else {}

    @property
    def opening(self) -> bool:
        """Whether some of its inputs are still to be read: after the tables, after a move, or once their topic has joined."""
        return self.intake is not Intake.OPEN or bool(self._joined) or self._joins

    def first_steps(
        self, starts: Callable[[], Mapping[InputPartition, Offset]], owner: OwnerId, now: Millis
    ) -> Iterator[ClosedStep]:
        """The steps before all that it reads: step 0, whose record says where the inputs begin, unless there is a step
        already; and the correction of what recorded steps have said, if there is one. After an abort, the same again."""
        if not self.begun:
            begins = starts()
            self._ends = dict(begins)
            yield close_step(self.owned, owner, None, begins, now, [], Overlay(self.owned.opened()))
        if self.owned.correction is not None:
            yield close_correction(self.owned, owner, now)

    def close_step(
        self,
        pipeline: Pipeline,
        owner: OwnerId,
        now: Millis,
        tables: Tables,
        rereader: Rereader,
        most: int = sys.maxsize,
    ) -> ClosedStep:
        """Run the circuit over the pending rows: at most `most` of them, but at least one record of each input partition. On
        an exception nothing is staged, and the overlay is dropped."""
        if self.moving:
            return self._move(pipeline, owner, self._clock(pipeline, now), tables, rereader, most)
        step = self.open_step(pipeline, now, tables, most)
        return self.finish_step(pipeline, owner, step, partial(self.run_step, step))

    def open_step(
        self, pipeline: Pipeline, now: Millis, tables: Tables, most: int, *, in_thread: bool = False
    ) -> OpenStep:
        """Fix the input of the next step, which is then run and finished. `in_thread`: while it runs, tables go on."""
        slices = []
        bound = self.bound.stage.most_rows
        taken, rows = self._pending.take(most if bound is None else min(most, bound))
        for i in self.bound.inputs:
            if len(records := taken[i.place]):
                slices.append(Slice(i.input.id, i.place.topic, i.place.partition, records))
                self._ends[i.partition] = after(records.offsets[-1])
        new = {p: at for p, at in self._joining.items() if p not in self._ends}
        self._ends |= new | tables.positions(self.bound)
        shared, places = tables.seen(self.bound, held=in_thread), places_in(self._ends)
        given = StepInput(self._clock(pipeline, now), slices, shared, Cancellation(), places)
        return OpenStep(given, Overlay(pipeline.top(self.owned)), rows, new)

    def run_step(self, step: OpenStep) -> StepOutput:
        """Run the circuit. It has a thread of its own where it may wait for others. Raises CancelledError after `cancel`."""
        return self.circuit.run(step.given, step.overlay)

    def finish_step(
        self, pipeline: Pipeline, owner: OwnerId, step: OpenStep, ran: Callable[[], StepOutput]
    ) -> ClosedStep:
        """Close the step with what it emits. `ran` gives that, or raises what the step has raised."""
        result = ran()
        # The step before it may have committed while it ran.
        step.overlay.below = pipeline.top(self.owned)
        self.wake_at = result.wake_at
        closed = close_step(
            self.owned,
            owner,
            pipeline.last(self.owned),
            self._ends,
            Millis(step.given.clock),
            outputs_of(result.emitted),
            step.overlay,
            rows=sum(len(s.records) for s in step.given.slices),
            dead=result.dead,
            skipped=result.skipped,
            selective=self._selective(step),
        )
        closed.rows, closed.late = step.rows, result.late
        self._joined |= {i.place: step.joining[i.partition] for i in self.bound.inputs if i.partition in step.joining}
        return closed

    def cancel(self) -> None:
        """End the step that is under way in another thread, if there is one: nothing comes of it."""
        if self.under_way is not None:
            step, result = self.under_way
            assert step.given.cancellation is not None
            step.given.cancellation.cancel()
            wait([result])
            self.under_way = None

    def end(self) -> None:
        """The task leaves this worker."""
        self.cancel()
        self.circuit.close()

    def _clock(self, pipeline: Pipeline, now: Millis) -> Millis:
        # What is not due yet in the app is not due in its shadow either.
        return next_clock(
            pipeline.last(self.owned), now if self.bound.until is None else min(now, self.bound.until.clock)
        )

    def _selective(self, step: OpenStep) -> SelectiveCheckpoint | None:
        """The step's selective checkpoint, if one is due."""
        every = self.bound.stage.regime.selective
        if every is None or step.given.clock < self._selective_at:
            return None
        found = self.circuit.selective(step.overlay)
        if found is not None:
            self._selective_at = step.given.clock + every // timedelta(milliseconds=1)
        return found

    def _move(
        self, pipeline: Pipeline, owner: OwnerId, clock: Millis, tables: Tables, rereader: Rereader, most: int
    ) -> ClosedStep:
        """A step that reads nothing new."""
        state = Overlay(pipeline.top(self.owned))
        read = self.second_reading.next(self.evolution.again(state), self._ends, rereader, most)
        self._ends |= tables.positions(self.bound)
        step = StepInput(clock, read.slices, tables.seen(self.bound))
        last = pipeline.last(self.owned)
        assert last is not None
        move = Move(read.division, since=last.clock if last.move is None else last.move.since)
        result = self.evolution.move(step, state, moving_of(move, self._ends, read.taken))
        self.moving, self.wake_at = result.moving, result.wake_at
        closed = close_step(
            self.owned, owner, last, self._ends, clock, outputs_of(result.emitted), state,
            dead=result.dead, skipped=result.skipped, move=replace(move, left=result.moving),
        )  # fmt: skip
        closed.rows = sum(len(s.records) for s in read.slices)
        return closed
