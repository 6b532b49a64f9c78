"""One task, replayed step by step beside the system under test.

    steps = 0, 1, 2, …      start(n+1) = end(n)      clock(n+1) ≥ clock(n)      owners in the order of their names
    records(n) = oracle(division(n) | divisions 0..n−1), numbered 0, 1, 2… in each partition of each output

A step is settled once all that it needs has been read: its inputs up to the division's ends, and as many output records
as its step record says. Where some stay away, the checker says when to settle it without them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from tests.soak.check.findings import Findings, Kind
from tests.soak.check.oracle import Arrived, Due
from tests.soak.check.seen import NameSeen, Seen, StepSeen, Tp
from tests.soak.check.spec import Output, Stage


class Settled(NamedTuple):
    """A step that was held against the oracle. `clock` is its own, in ms; `first_arrival` the reader's, in seconds."""

    task: str
    step: int
    clock: int
    nonce: str
    rows: int
    records: int
    first_arrival: float


class Inputs:
    """Rows of a stage's inputs that none of its steps has read yet, and how far the reader has read each partition."""

    def __init__(self, positions: Mapping[Tp, int]) -> None:
        self.positions = positions
        self.rows: dict[Tp, deque[Arrived]] = {}

    def add(self, tp: Tp, row: Arrived) -> None:
        self.rows.setdefault(tp, deque()).append(row)

    def reach(self, tp: Tp, end: int) -> bool:
        """All records below `end` have been read."""
        return self.positions.get(tp, 0) >= end

    def take(self, tp: Tp, end: int) -> list[Arrived]:
        """The rows below `end`, which are then gone."""
        rows, taken = self.rows.get(tp, deque()), []
        while rows and rows[0].offset < end:
            taken.append(rows.popleft())
        return taken


class Track:
    """The records of one task in one partition of one output: those of steps that are not settled yet."""

    def __init__(self) -> None:
        self.last = (-1, -1)
        self.held: dict[int, dict[int, Seen]] = {}
        self.missing: set[tuple[int, int]] = set()
        """Numbers that a settled step lacked: should one come after all, it is late and not lost."""


class Names:
    """Who owned the task: an owner writes no step once the next has begun to."""

    def __init__(self) -> None:
        self.order: dict[str, int] = {}
        self.newest = -1

    def named(self, record: NameSeen) -> None:
        self.order[record.nonce] = len(self.order)

    def fault(self, record: StepSeen) -> str | None:
        """What is wrong with this owner writing this step now."""
        place = self.order.get(record.nonce)
        if place is None:
            return "its owner never named itself"
        if place < self.newest:
            return f"its owner {record.owner} wrote after a later owner did"
        self.newest = place
        return None


class TaskCheck:
    """Holds one task's step records and output records against the oracle."""

    def __init__(self, name: str, stage: Stage, inputs: Inputs, partitions: Mapping[str, int], found: Findings) -> None:
        self.name, self.stage, self.inputs, self.partitions, self.found = name, stage, inputs, partitions, found
        self.oracle = stage.oracle()
        self.names = Names()
        self.last: StepSeen | None = None
        self.waiting: deque[tuple[StepSeen, float]] = deque()
        self.settled = -1
        self.tracks: dict[tuple[str, int], Track] = {}
        self.homes: dict[bytes, int] = {}

    def step(self, record: StepSeen, arrival: float) -> None:
        """A step record was read."""
        if self.last is not None and record.step <= self.last.step:
            self.found.add(
                Kind.DOUBLED, self._at(record.step), f"its record is there again, after step {self.last.step}"
            )
            return
        for fault in self._faults(record):
            self.found.add(Kind.CHAIN, self._at(record.step), fault)
        self.last = record
        self.waiting.append((record, arrival))

    def emitted(self, output: Output, step: int, seq: int, seen: Seen) -> None:
        """An output record was read."""
        track = self.tracks.setdefault((output.id, seen.tp.partition), Track())
        number, where = (step, seq), f"{seen.tp} offset {seen.offset}"
        if number in track.missing:
            track.missing.remove(number)
            self.found.forgive(Kind.LOST)
            self.found.add(Kind.OUT_OF_ORDER, where, f"{self._at(step)} number {seq} comes after {track.last}")
        elif step <= self.settled or seq in track.held.get(step, ()):
            self.found.add(Kind.DOUBLED, where, f"{self._at(step)} number {seq} is there again")
        else:
            if number < track.last:
                self.found.add(Kind.OUT_OF_ORDER, where, f"{self._at(step)} number {seq} comes after {track.last}")
            track.held.setdefault(step, {})[seq] = seen
        track.last = max(track.last, number)

    def advance(self, upto: int = -1) -> list[Settled]:
        """Settle every step of which all was read, and those up to number `upto` as they are."""
        done = []
        while self.waiting and (self.waiting[0][0].step <= upto or self._whole(self.waiting[0][0])):
            done.append(self._settle(*self.waiting.popleft()))
        return done

    def lacks(self) -> list[Tp]:
        """The input partitions that must be read on before the next step can be settled."""
        if not self.waiting:
            return []
        return [r.tp for r in self.waiting[0][0].division if not self.inputs.reach(r.tp, r.end)]

    def unvouched(self) -> set[int]:
        """Steps with records, but without a step record so far."""
        last = -1 if self.last is None else self.last.step
        return {step for track in self.tracks.values() for step in track.held if step > last}

    def torn(self, steps: set[int]) -> None:
        """The step records of these will not come any more."""
        for step in sorted(steps & self.unvouched()):
            for (output, partition), track in self.tracks.items():
                if held := track.held.pop(step, None):
                    words = f"{self._at(step)} has no step record"
                    self.found.add(Kind.TORN, f"{output}[{partition}]", words, len(held))

    def _faults(self, record: StepSeen) -> list[str]:
        faults = []
        if (fault := self.names.fault(record)) is not None:
            faults.append(fault)
        last = self.last
        expected = 0 if last is None else last.step + 1
        if record.step != expected:
            faults.append(f"step {expected} should be here")
        ends = {r.tp: r.end for r in last.division} if last is not None else {r.tp: r.start for r in record.division}
        for r in record.division:
            if last is None and r.start != 0:
                faults.append(f"it begins to read {r.tp} at {r.start}, not at 0")
            if r.start != ends.pop(r.tp, r.start) or r.start > r.end:
                faults.append(f"it reads {r.tp} from {r.start} to {r.end}, but step {expected - 1} ended elsewhere")
            if r.tp.topic not in self.stage.inputs:
                faults.append(f"it reads {r.tp}, which is no input of the stage")
        if ends:
            faults.append(f"its division leaves out {', '.join(map(str, ends))}")
        if last is not None and record.clock < last.clock:
            faults.append(f"its clock goes back from {last.clock} to {record.clock}")
        return faults

    def _whole(self, record: StepSeen) -> bool:
        return all(self.inputs.reach(r.tp, r.end) for r in record.division) and all(
            (track := self.tracks.get(place)) is not None and len(track.held.get(record.step, ())) >= end
            for place, end in record.outputs.items()
            if end
        )

    def _settle(self, record: StepSeen, arrival: float) -> Settled:
        rows = [row for r in sorted(record.division) for row in self.inputs.take(r.tp, r.end)]
        due = self.oracle.run(record.clock, rows)
        count, first = 0, arrival
        for output in self.stage.outputs:
            seen = self._collect(output, record)
            if seen:
                count, first = count + len(seen), min(first, *(s.arrival for s in seen))
            self._compare(output, record, due.get(output.id, {}), seen)
        if strange := {name for name, _ in record.outputs} - {output.id for output in self.stage.outputs}:
            self.found.add(Kind.WRONG, self._at(record.step), f"it writes to {sorted(strange)}, which the flow has not")
        self.settled = record.step
        for track in self.tracks.values():  # a step that the chain skips has no record that could vouch for it
            for step in [s for s in track.held if s <= record.step]:
                self.found.add(Kind.TORN, self._at(step), "no step record vouches for it", len(track.held.pop(step)))
        return Settled(self.name, record.step, record.clock, record.nonce, len(rows), count, first)

    def _collect(self, output: Output, record: StepSeen) -> list[Seen]:
        """The step's records in one output, by partition and number; what is not there is lost."""
        collected: list[Seen] = []
        for (name, partition), end in sorted(record.outputs.items()):
            if name != output.id:
                continue
            track = self.tracks.setdefault((name, partition), Track())
            held = track.held.get(record.step, {})
            absent = [seq for seq in range(end) if seq not in held]
            if absent:
                where = f"{output.topic}[{partition}]"
                self.found.add(Kind.LOST, where, f"{self._at(record.step)} lacks numbers {absent[:5]}…", len(absent))
                track.missing.update((record.step, seq) for seq in absent)
            collected += [held.pop(seq) for seq in sorted(held) if seq < end]
            if not held:
                track.held.pop(record.step, None)
        return collected

    def _compare(self, output: Output, record: StepSeen, due: Mapping[bytes, list[Due]], seen: list[Seen]) -> None:
        got: dict[bytes, list[tuple[Any, int]]] = {}
        for one in seen:
            for key, value, timestamp in output.unpack(one):
                got.setdefault(key, []).append((value, timestamp))
                self._place(output, key, one)
        counted = sum(end for (name, _), end in record.outputs.items() if name == output.id)
        where = f"{self._at(record.step)} in {output.topic}"
        for key, expected in due.items():
            values = got.pop(key, [])
            if not output.ordered:
                values, expected = sorted(values, key=repr), sorted(expected, key=repr)
            for i, (value, timestamp) in enumerate(values):
                if i >= len(expected):
                    self.found.add(Kind.WRONG, where, f"key {key!r}: {value} is not due")
                elif value != expected[i].value or timestamp != (expected[i].timestamp or timestamp):
                    self.found.add(Kind.WRONG, where, f"key {key!r}: {value} at {timestamp} instead of {expected[i]}")
            # What the step record counts and is not there has been found already.
            if len(values) < len(expected) and counted == len(seen):
                absent = expected[len(values) :]
                self.found.add(Kind.LOST, where, f"key {key!r}: {absent} is not there", len(absent))
        for key, values in got.items():
            self.found.add(Kind.WRONG, where, f"key {key!r}: {values} is not due", len(values))

    def _place(self, output: Output, key: bytes, seen: Seen) -> None:
        count = self.partitions[output.topic]
        home = output.place(key, count) if output.place else self.homes.setdefault(key, seen.tp.partition)
        if home != seen.tp.partition:
            self.found.add(Kind.WRONG, f"{seen.tp} offset {seen.offset}", f"key {key!r} belongs to partition {home}")

    def _at(self, step: int) -> str:
        return f"task {self.name} step {step}"
