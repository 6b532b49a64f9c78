"""Operators that are rebuilt: their state from what the inputs hold, and what that changes downstream.

    take      what a shadow has read before, beside the version that ran (`evolution.shadow`), where there is one
    read      inputs, from their beginnings to where the task has read them, once more: the operators and those before them
              run, into new tables; nothing is sent, for it was said when it was read first
    come      each group that exists now: how its row differs from the one that was said
    gone      each group of before that no longer exists; what was kept of before is deleted

    behind the last step that reads, state = what the operators make of division 0..n       n the last step before the rebuild
    what was said = the old rows, until `come` and `gone` have passed them; the new ones from then on

All of it is in steps that read nothing new, and how far it is stands in the state, as a mark: a row of the first old table
without a key. The clock of a step that reads is that of its records, so that timers which were due then are not due again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate

import msgspec

from falkirk.errors import UserCodeError
from falkirk.state import schema
from falkirk.state.codec import encode_key
from falkirk.stream import operators as op
from falkirk.stream.circuit.circuit import Flows, StageCircuit
from falkirk.stream.dataflow.batch import Updates, everywhere
from falkirk.stream.dataflow.circuit import Moving, Place, RereadInput, Slice, State, StepInput, StepOutput, Taken
from falkirk.stream.dataflow.failures import Failures
from falkirk.stream.dataflow.partitioners import EVERYTHING
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.evolution.rebuild_plan import needed, was_the_same
from falkirk.stream.stages.kept import MOVED

ROWS_A_STEP = 20_000
BYTES_A_STEP = 16 << 20
LOOKED_A_STEP = 1_000_000
"""As of a move (`falkirk.stream.evolution.moving`)."""

_PREFIX = 3
"""Bytes of a key before its columns: shard and table."""


class Part(IntEnum):
    """Of a rebuild, in their order."""

    TAKE = -1
    READ = 0
    COME = 1
    GONE = 2


class Mark(msgspec.Struct, array_like=True, frozen=True):
    """How far a rebuild is."""

    part: Part = Part.TAKE
    reached: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition, and the offset where it is read on."""
    clock: int = 0
    """Of the last step that read."""
    at: bytes = EVERYTHING[0]
    """The key where the search for rows goes on."""
    taken: int = 0
    """The offset where a shadow's changelog is read on."""


_mark = msgspec.msgpack.Decoder(Mark).decode


@dataclass(frozen=True, slots=True)
class Job:
    """One operator's rebuild."""

    operator: op.Operator
    line: schema.Line
    """What was kept of it before."""
    mark: bytes
    table: int
    """The first of its tables now: a grouping's groups."""

    @property
    def known(self) -> bool:
        """Whether rows of before are read as those of now are."""
        return was_the_same(self.line, self.operator)


class Rebuilder:
    """Of one task: all that of its operators is rebuilt, at once."""

    def __init__(self, circuit: StageCircuit, first_shard: int, only: Collection[str] | None = None) -> None:
        """`only`: of these operators, whatever else the stage has rebuilt."""
        self.circuit, stage = circuit, circuit.stage
        by_id, now = {o.id: o for o in stage.keeping}, schema.numbers(stage.state_schema)
        self.jobs = [
            Job(by_id[line.id], line, encode_key(line.numbers[0], first_shard, []), now[line.id][0])
            for line in schema.rebuilt(stage.state_schema)
            if only is None or line.id in only
        ]
        # What has failed once is buried and counted already.
        self.failures = Failures(stage.app, stage.id, stage.handled, {}, shares=False)

    def rebuilding(self, state: State) -> bool:
        """Whether anything is left to do."""
        return bool(self._left(state)[0])

    def again(self, state: State) -> RereadInput | None:
        """What is read again next."""
        left, mark = self._left(state)
        if not left or mark.part > Part.READ:
            return None
        inputs = needed(self.circuit.stage, [job.operator for job in left]).inputs
        return RereadInput(inputs, _places(mark), mark.taken if mark.part is Part.TAKE else None)

    def ahead(self, step: StepInput, state: State) -> None:
        """What a shadow does in a step: it reads on. Raises UserCodeError."""
        reached = _places(self._left(state)[1]) | {
            (s.topic, s.partition): s.records.offsets[-1] + 1 for s in step.slices
        }
        self.step(step, state, Moving(step.clock, reached, whole=False))

    def step(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """One step of it. Raises UserCodeError."""
        left, mark = self._left(state)
        after: Mark | None
        if moving.taken is not None:
            after, out = self._take(state, left, mark, moving.taken), StepOutput()
        elif mark.part <= Part.READ:
            after, out = self._read(step, state, left, mark, moving), StepOutput()
        else:
            after, out = self._tell(step, state, left, mark)
        value = MOVED if after is None else msgspec.msgpack.encode(after)
        state.put([job.mark for job in left], [value] * len(left))
        return out

    def _left(self, state: State) -> tuple[list[Job], Mark]:
        """What is not done, and how far it is: another rebuild of the stage begins when one has ended (`continuity`)."""
        found = zip(self.jobs, state.get([job.mark for job in self.jobs]), strict=True)
        left = [(job, value) for job, value in found if value != MOVED]
        return [job for job, _ in left], next((_mark(value) for _, value in left if value is not None), Mark())

    def _take(self, state: State, left: list[Job], mark: Mark, taken: Taken) -> Mark:
        """Its tables have the numbers of ours, and its marks say how far it is: the last mark counts."""
        numbers, marks = schema.numbers(self.circuit.stage.state_schema), {job.mark for job in left}
        tables = {number for job in left for number in numbers[job.operator.id]}
        rows = {key: value for key, value in taken.rows.items() if len(key) > _PREFIX and key[2] in tables}
        state.put(list(rows), list(rows.values()))
        seen = next((_mark(value) for key, value in taken.rows.items() if key in marks and value is not None), mark)
        if taken.next is None:
            return Mark(Part.READ, seen.reached, seen.clock)
        return Mark(Part.TAKE, seen.reached, seen.clock, taken=taken.next)

    def _read(self, step: StepInput, state: State, left: list[Job], mark: Mark, moving: Moving) -> Mark:
        again = needed(self.circuit.stage, [job.operator for job in left])
        timed = any(o.timed for o in again.operators)
        rounds, clock = [], mark.clock
        for latest, slices in _by_time(step.slices) if timed else [(mark.clock, step.slices)]:
            clock = min(moving.since, max(clock, latest))
            rounds.append(StepInput(clock, slices, step.shared))
        if moving.whole:  # what was due by then has been done, whether a record came behind it or not
            rounds.append(StepInput(moving.since, [], step.shared))
        for one in rounds:
            run = StepRun(one, state, self.failures)
            try:
                flowing: Flows = {reader: self.circuit.readers[reader].read(run) for reader in again.readers}
                self.circuit.flow(run, again.operators, flowing)
            except UserCodeError as error:
                where = f"{error.where}, which is read again to rebuild {', '.join(job.operator.id for job in left)}"
                raise UserCodeError(error.what, where=where, hint=error.hint) from error
        if moving.whole:
            return Mark(Part.COME)
        return Mark(Part.READ, tuple(sorted((*place, at) for place, at in moving.reached.items())), clock)

    def _tell(self, step: StepInput, state: State, left: list[Job], mark: Mark) -> tuple[Mark | None, StepOutput]:
        run = StepRun(step, state, self.circuit.failures)
        come = mark.part is Part.COME
        groups = [job for job in left if job.operator.keeps_result]
        looked = {job.table for job in groups} if come else {n for job in left for n in job.line.numbers}
        pairs, at = _found(state, mark.at, looked)
        flowing: Flows = {}
        for job in groups:
            number = job.table if come else job.line.numbers[0]
            if rows := {key: value for key, value in pairs if key[2] == number}:
                flowing[job.operator] = (self._come if come else self._gone)(run, job, rows)
        if not come:
            state.put([key for key, _ in pairs], [None] * len(pairs))
        self.circuit.flow(run, self._behind(left), flowing)
        self.circuit.send(run, flowing)
        out = StepOutput(run.emitted, 0, run.dead, run.skipped)
        if at is not None:
            return Mark(mark.part, at=at), out
        return Mark(Part.GONE) if come else None, out

    def _come(self, run: StepRun, job: Job, rows: Mapping[bytes, bytes]) -> Updates:
        """Of existing groups: from what was said of them. Where that had other columns it is not known, and they are said
        again."""
        before = [_in_table(key, job.line.numbers[0]) for key in rows]
        nothing: list[bytes | None] = [None] * len(rows)
        said = run.state.get(before) if job.known else nothing
        run.state.put(before, nothing)
        return self.circuit.result(job.operator).differences(run, list(rows), said, list(rows.values()))

    def _gone(self, run: StepRun, job: Job, rows: Mapping[bytes, bytes]) -> Updates:
        """Of groups that there are no more."""
        said: list[bytes | None] = list(rows.values()) if job.known else [None] * len(rows)
        keys = [_in_table(key, job.table) for key in rows]
        gone = self.circuit.result(job.operator).differences(run, keys, said, [None] * len(rows))
        return replace(gone, had=everywhere(True, len(rows)))

    def _behind(self, left: list[Job]) -> list[op.Operator]:
        """The operators that see what is told: each that is rebuilt tells for itself."""
        rebuilt = {job.operator for job in left}
        seen = {o for o in rebuilt if o.keeps_result}
        found = []
        for o in self.circuit.stage.operators:
            if o not in rebuilt and any(before in seen for before in o.inputs):
                seen.add(o)
                found.append(o)
        return found


def _places(mark: Mark) -> dict[Place, int]:
    return {(topic, partition): at for topic, partition, at in mark.reached}


def _in_table(key: bytes, number: int) -> bytes:
    return key[:2] + bytes([number]) + key[_PREFIX:]


def _found(state: State, start: bytes, tables: Collection[int]) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Some rows of these tables from a key on, and where to go on; None: there are no more."""
    found: list[tuple[bytes, bytes]] = []
    size = 0
    for looked, (key, value) in enumerate(state.scan(start, EVERYTHING[1])):
        if len(found) == ROWS_A_STEP or size > BYTES_A_STEP or looked == LOOKED_A_STEP:
            return found, key
        if len(key) > _PREFIX and key[2] in tables:
            found.append((key, value))
            size += len(key) + len(value)
    return found, None


def _by_time(slices: Sequence[Slice]) -> list[tuple[int, list[Slice]]]:
    """The records in rounds, each with the time of its last one: time passes between two rounds, by a second at least, and
    by a hundredth of what passes in all."""
    passed = [list(accumulate(s.records.times, max)) for s in slices]
    if not any(passed):
        return []
    now, last = min(times[0] for times in passed if times), max(times[-1] for times in passed if times)
    width, at, rounds = max(1000, (last - now) // 100), [0] * len(slices), []
    while any(a < len(times) for a, times in zip(at, passed, strict=True)):
        now = min(times[a] for a, times in zip(at, passed, strict=True) if a < len(times)) + width
        ends = [bisect_left(times, now) for times in passed]
        pieces = [
            replace(s, records=s.records.between(a, end)) for s, a, end in zip(slices, at, ends, strict=True) if a < end
        ]
        rounds.append((max(times[end - 1] for times, a, end in zip(passed, at, ends, strict=True) if a < end), pieces))
        at = ends
    return rounds
