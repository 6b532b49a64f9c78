"""The checker: every record that the reader sees, held against the oracle as it comes. Memory grows with keys alone.

    checker = Checker(spec, partitions)
    checker.see(record) · checker.reach(tp, offset)      in any order between partitions, in log order within one
    checker.advance()                                    settles what has been read whole
    checker.barrier() · checker.ends_are(ends)           all that belongs to what was read before lies below these ends
    checker.finish(ends, sent)                           nothing more will come

A record that stays away shows only in time. What a transaction wrote lies below the high watermarks asked for after a
part of it was read. So once every partition has been read to them, a step that still lacks records has lost them, and a
record that still has no step record is torn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from tests.soak.check.findings import Findings, Kind
from tests.soak.check.oracle import Arrived, Whole, differs
from tests.soak.check.seen import NameSeen, Seen, StepSeen, Tp, parse_mark, parse_task_record
from tests.soak.check.spec import Output, Spec
from tests.soak.check.task import Inputs, Settled, TaskCheck

IN_FLIGHT = 1_000
"""Records that the generator's client may have sent to one partition and not seen acknowledged, at most."""


class Source:
    """The input as it is read: the generator numbers its records 0, 1, 2… over all partitions.

    Its producer is idempotent and not transactional: when a broker is killed it may give itself a new epoch, and send again
    what the broker has. Such a repeat is one more record of the input, for the flow and for the oracle; it is not counted
    among those that were sent.
    """

    def __init__(self) -> None:
        self.count = self.sum = 0
        self.recent: dict[Tp, deque[int]] = {}

    def see(self, tp: Tp, number: int) -> str | None:
        """Count one record in; what is wrong with its place in words."""
        recent = self.recent.setdefault(tp, deque([-1], maxlen=IN_FLIGHT))
        before = recent[-1]
        if number <= before and number in recent:
            return None
        recent.append(number)
        self.count, self.sum = self.count + 1, self.sum + number
        return None if number > before else f"record {number} comes after {before}"

    def fault(self, sent: int) -> str | None:
        """What is wrong with the whole, if the generator sent 0 ≤ number < `sent`."""
        if (self.count, self.sum) == (sent, sent * (sent - 1) // 2):
            return None
        return f"{self.count} records with sum {self.sum}, but the generator sent {sent}"


class Checker:
    """Takes what a read_committed reader sees of a flow, and says what is wrong with it."""

    def __init__(self, spec: Spec, partitions: Mapping[str, int]) -> None:
        self.spec, self.partitions = spec, {**partitions, **spec.partitions}
        self.found = Findings()
        self.positions: dict[Tp, int] = {}
        self.sources = {topic: Source() for topic in spec.sources}
        self.inputs = {stage.id: Inputs(self.positions) for stage in spec.stages}
        self.tasks: dict[str, TaskCheck] = {}
        self.owners: dict[Tp, str] = {}
        self.early_names: dict[Tp, list[NameSeen]] = {}
        self.wholes: dict[str, Whole] = {o.topic: o.whole() for _, o in spec.outputs.values() if o.whole}
        self.tables: dict[str, dict[bytes, Seen]] = {topic: {} for topic in self.wholes}
        self.steps = self.records = 0
        self.longest_gap = (0.0, "", 0.0)
        """Seconds without a settled step of a task, the task, and when that ended."""
        self._latest: dict[str, float] = {}
        self._stages = {stage.id: stage for stage in spec.stages}
        self._outputs = spec.outputs
        self._readers = {t: [s.id for s in spec.stages if t in s.inputs] for t in spec.topics}
        self._barrier: dict[str, tuple[int, set[int]]] | None = None
        self._ends: Mapping[Tp, int] | None = None

    def see(self, seen: Seen) -> None:
        """A record was read."""
        topic = seen.tp.topic
        if seen.offset < (read := self.positions.get(seen.tp, 0)) - 1:  # the parts of a bundle have one offset
            self.found.add(Kind.INPUT, str(seen.tp), f"it was read to {read}, and is read again from {seen.offset}")
        if topic == self.spec.steps_topic:
            self._steps(seen)
        elif topic in self.sources:
            self._source(seen)
        else:
            self._output(*self._outputs[topic], seen)
        self.positions[seen.tp] = seen.offset + 1

    def reach(self, tp: Tp, offset: int) -> None:
        """All below `offset` has been read, control records and aborted ones included."""
        self.positions[tp] = max(offset, self.positions.get(tp, 0))

    def advance(self) -> list[Settled]:
        """Settle all steps that have been read whole, and what the barrier was waiting for."""
        settled = [done for task in self.tasks.values() for done in task.advance()]
        if self._barrier is not None and self._ends is not None and self.reached(self._ends):
            for name, (step, unvouched) in self._barrier.items():
                settled += self.tasks[name].advance(upto=step)
                self.tasks[name].torn(unvouched)
            self._barrier = self._ends = None
        for done in settled:
            self._count(done)
        return settled

    def barrier(self) -> bool:
        """Note what is incomplete, before the high watermarks are asked for. False: the last barrier still waits."""
        if self._barrier is not None:
            return False
        self._barrier = {
            name: (-1 if task.last is None else task.last.step, task.unvouched()) for name, task in self.tasks.items()
        }
        return True

    def ends_are(self, ends: Mapping[Tp, int] | None) -> None:
        """The high watermarks of all topics, asked for since `barrier`; None: nobody answered, the barrier is off."""
        self._ends = ends
        if ends is None:
            self._barrier = None

    def reached(self, ends: Mapping[Tp, int]) -> bool:
        """Everything below these ends has been read."""
        return all(self.positions.get(tp, 0) >= end for tp, end in ends.items())

    def consumed(self, ends: Mapping[Tp, int]) -> bool:
        """Every stage has settled its inputs up to these ends."""
        return not self._unread(ends)

    def hungry(self) -> set[Tp]:
        """Input partitions that must be read on, whatever is held of them."""
        return {tp for task in self.tasks.values() for tp in task.lacks()}

    def backlog(self, tp: Tp) -> int:
        """How many rows of an input partition are held."""
        return max((len(inputs.rows.get(tp, ())) for inputs in self.inputs.values()), default=0)

    def finish(self, ends: Mapping[Tp, int], sent: Mapping[str, int]) -> Findings:
        """The verdict when nothing more will come, given the high watermarks and how many records each source got."""
        for tp, end in ends.items():
            if self.positions.get(tp, 0) < end:
                self.found.add(Kind.INPUT, str(tp), f"read up to {self.positions.get(tp, 0)}, and it ends at {end}")
        for task in self.tasks.values():
            for done in task.advance(upto=task.waiting[-1][0].step if task.waiting else -1):
                self._count(done)
            task.torn(task.unvouched())
        for topic, source in self.sources.items():
            if fault := source.fault(sent[topic]):
                self.found.add(Kind.INPUT, topic, fault)
        for where in self._unread(ends):
            self.found.add(Kind.LOST, where, "its input was not read to the end")
        for topic, whole in self.wholes.items():
            unpack = self._outputs[topic][1].unpack
            got = {entry.key: entry.value for seen in self.tables[topic].values() for entry in unpack(seen)}
            for words in differs(whole.table(), got):
                self.found.add(Kind.TABLE, topic, words)
        return self.found

    def _steps(self, seen: Seen) -> None:
        if seen.value is None:
            return  # it marks an end
        record = parse_task_record(seen.value)
        if isinstance(record, StepSeen):
            if (owner := self.owners.setdefault(seen.tp, record.task)) != record.task:
                self.found.add(Kind.CHAIN, str(seen.tp), f"{record.task} writes into the partition of {owner}")
            task = self._task(record.task)
            for name in self.early_names.pop(seen.tp, ()):
                task.names.named(name)
            task.step(record, seen.arrival)
        elif isinstance(record, NameSeen):
            if seen.tp in self.owners:
                self.tasks[self.owners[seen.tp]].names.named(record)
            else:
                self.early_names.setdefault(seen.tp, []).append(record)

    def _source(self, seen: Seen) -> None:
        row = self.spec.parse(seen.value or b"")
        if fault := self.sources[seen.tp.topic].see(seen.tp, row["id"]):
            self.found.add(Kind.INPUT, str(seen.tp), fault)
        for whole in self.wholes.values():
            whole.fold(row, seen.tp)
        self._feed(seen, row, seen.timestamp)

    def _output(self, stage: Any, output: Output, seen: Seen) -> None:
        if seen.mark is None:
            self.found.add(Kind.TORN, f"{seen.tp} offset {seen.offset}", "it does not say which step made it")
            return
        name, step, seq = parse_mark(seen.mark)
        if name.rpartition("/")[0] != stage.id:
            self.found.add(Kind.WRONG, f"{seen.tp} offset {seen.offset}", f"{name} writes into an output of {stage.id}")
            return
        self._task(name).emitted(output, step, seq, seen)
        if (table := self.tables.get(seen.tp.topic)) is not None and seen.key is not None:
            if seen.value is None:
                table.pop(seen.key, None)
            else:
                table[seen.key] = seen
        if self._readers[seen.tp.topic]:
            for _, row, timestamp in output.unpack(seen):
                self._feed(seen, row, timestamp)

    def _feed(self, seen: Seen, row: Any, timestamp: int) -> None:
        for stage in self._readers[seen.tp.topic]:
            self.inputs[stage].add(seen.tp, Arrived(seen.offset, timestamp, row))

    def _task(self, name: str) -> TaskCheck:
        if name not in self.tasks:
            stage = self._stages[name.rpartition("/")[0]]
            self.tasks[name] = TaskCheck(name, stage, self.inputs[stage.id], self.partitions, self.found)
        return self.tasks[name]

    def _unread(self, ends: Mapping[Tp, int]) -> list[str]:
        """Inputs of stages that are not settled to the end: rows that no step has read, or that cannot have been."""
        places = []
        for stage in self.spec.stages:
            rows = self.inputs[stage.id].rows
            for topic in stage.inputs:
                for p in range(self.partitions[topic]):
                    tp = Tp(topic, p)
                    if self.positions.get(tp, 0) < ends.get(tp, 0) or rows.get(tp):
                        places.append(f"stage {stage.id}, {tp}")
        return places

    def _count(self, done: Settled) -> None:
        self.steps, self.records = self.steps + 1, self.records + done.records
        before = self._latest.get(done.task, done.first_arrival)
        self._latest[done.task] = max(before, done.first_arrival)
        if done.first_arrival - before > self.longest_gap[0]:
            self.longest_gap = (done.first_arrival - before, done.task, done.first_arrival)
