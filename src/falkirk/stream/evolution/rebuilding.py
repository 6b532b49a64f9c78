"""Rebuilds the state of operators from their inputs, and sends the resulting changes downstream. It has four phases:

    copy      copy the rows that a shadow has made beside the running version (`evolution.shadow`), if there is one
    read      read the inputs again, from their beginnings to the task's position. The operators, and those before them,
              write to new tables. They send nothing: the output of these records was published before
    delete    for each old group that no longer exists: retract its row; delete the old tables, except of groups that exist
    insert    for each group that exists now: send the difference between its new and its published row

Deletes come first: a window of another size may have the key of an old one in a sink, which then ends with its row.

    after the phase read, state = fold of the operators over division 0..n        n: the last step before the rebuild
    published rows = the old rows, until `delete` and `insert` have passed them; then the new rows

All phases run in steps that read no new input. The state holds the progress, as a mark: a row of the first old table without
a key. The clock of a step that reads is the time of its records, so that timers that were due then are not due again.

Windows leave the state when the watermark w is past them (`evolution.times_again`):

    complete  ⇔  its end ≤ w, for the w of the task
    a result of a complete window without an old row was final and is told: its new row goes, and nothing is sent
    an old row of a complete window is not final yet: the last steps were not done with it. The phase `read` completes no
    window from the first of these on, so that the new row is there and becomes final in the steps behind the rebuild
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from itertools import accumulate

import msgspec

from falkirk.checkpoint.ids import after
from falkirk.errors import StateError, UserCodeError
from falkirk.state import schema
from falkirk.state.codec import encode_key, prefix_end
from falkirk.state.shards import SHARDS
from falkirk.state.store import State
from falkirk.stream import operators as op
from falkirk.stream.circuit.circuit import Flows, StageCircuit
from falkirk.stream.dataflow.batch import Updates, everywhere
from falkirk.stream.dataflow.circuit import Moving, Place, RereadInput, ShadowChunk, Slice, StepInput, StepOutput
from falkirk.stream.dataflow.failures import Failures
from falkirk.stream.dataflow.partitioners import EVERYTHING
from falkirk.stream.dataflow.step import StepRun
from falkirk.stream.evolution.rebuild_plan import RebuildPlan, cannot_be_sent_again, plan_rebuild, was_the_same
from falkirk.stream.evolution.times_again import KeptTimes, TimesAgain, inputs_of, watermarks_in
from falkirk.stream.stages.kept import MOVED
from falkirk.stream.stages.stage import Edge

ROWS_A_STEP = 20_000
BYTES_A_STEP = 16 << 20
LOOKED_A_STEP = 1_000_000
"""As of a move (`falkirk.stream.evolution.moving`)."""

_PREFIX = 3
"""Bytes of a key before its columns: shard and table."""


class RebuildPhase(IntEnum):
    """The phases of a rebuild, in their order. 1 and 2 were these two in the other order."""

    COPY = -1
    READ = 0
    DELETE = 3
    INSERT = 4


class RebuildProgress(msgspec.Struct, array_like=True, frozen=True):
    """How far a rebuild is."""

    phase: RebuildPhase = RebuildPhase.COPY
    reached: tuple[tuple[str, int, int], ...] = ()
    """Topic, partition, and the next offset to read."""
    clock: int = 0
    """The clock of the last step that read."""
    at: bytes = EVERYTHING[0]
    """The key where the search for rows continues."""
    taken: int = 0
    """The next offset to read of the shadow's changelog."""
    times: KeptTimes = ()
    """The event time of what is read again."""


_decode = msgspec.msgpack.Decoder(RebuildProgress).decode


def _decode_progress(value: bytes) -> RebuildProgress:
    """A mark. Raises StateError for one of phases in their former order."""
    try:
        return _decode(value)
    except msgspec.ValidationError as error:
        raise StateError(
            "a rebuild is half done that an earlier Falkirk began, which told of groups in another order",
            where=f"{error}",
            hint="run that version of Falkirk until it is done, and then this one",
        ) from error


@dataclass(frozen=True, slots=True)
class OperatorRebuild:
    """One operator's rebuild."""

    operator: op.Operator
    line: schema.Line
    """The recorded schema of its old state."""
    mark: bytes
    table: int
    """The number of its first new table: for a grouping, the groups."""

    @property
    def known(self) -> bool:
        """Whether old rows have the same columns as new rows."""
        return was_the_same(self.line, self.operator)


class Rebuilder:
    """Rebuilds all operators of one task that are due, together."""

    def __init__(self, circuit: StageCircuit, first_shard: int, only: Collection[str] | None = None) -> None:
        """`only`: rebuild only these operators of the stage."""
        self.circuit, stage = circuit, circuit.stage
        by_id, now = {o.id: o for o in stage.keeping}, schema.numbers(stage.state_schema)
        self.rebuilds = [
            OperatorRebuild(by_id[line.id], line, encode_key(line.numbers[0], first_shard, []), now[line.id][0])
            for line in schema.rebuilt(stage.state_schema)
            if only is None or line.id in only
        ]
        self._bounds: dict[str, int] | None = None
        self._shadow = only is not None
        # Records that failed at first have dead letters already, and are counted.
        self.failures = Failures(stage.app, stage.id, stage.handled, {}, shares=False)

    def rebuilding(self, state: State) -> bool:
        """Whether work is left."""
        return bool(self._left(state)[0])

    def reread_input(self, state: State) -> RereadInput | None:
        """The input to read again next; None: no input."""
        left, mark = self._left(state)
        if not left or mark.phase > RebuildPhase.READ:
            return None
        inputs = plan_rebuild(self.circuit.stage, [rebuild.operator for rebuild in left]).inputs
        return RereadInput(inputs, _places(mark), mark.taken if mark.phase is RebuildPhase.COPY else None)

    def ahead(self, step: StepInput, state: State) -> None:
        """One step of a shadow: process the records read so far. Raises UserCodeError."""
        reached = _places(self._left(state)[1]) | {
            (s.topic, s.partition): after(s.records.offsets[-1]) for s in step.slices
        }
        self.step(step, state, Moving(step.clock, reached, whole=False))

    def step(self, step: StepInput, state: State, moving: Moving) -> StepOutput:
        """One step of the rebuild. Raises UserCodeError."""
        left, mark = self._left(state)
        after: RebuildProgress | None
        if moving.taken is not None:
            after, out = self._copy(state, left, mark, moving.taken), StepOutput()
        elif mark.phase <= RebuildPhase.READ:
            after, out = self._read(step, state, left, mark, moving), StepOutput()
        else:
            after, out = self._emit(step, state, left, mark)
        value = MOVED if after is None else msgspec.msgpack.encode(after)
        state.put([rebuild.mark for rebuild in left], [value] * len(left))
        return out

    def _left(self, state: State) -> tuple[list[OperatorRebuild], RebuildProgress]:
        """The operators that are not done, and their progress. They share it: a stage begins its next rebuild after the
        previous one has ended (`compatibility`)."""
        found = zip(self.rebuilds, state.get([rebuild.mark for rebuild in self.rebuilds]), strict=True)
        left = [(rebuild, value) for rebuild, value in found if value != MOVED]
        return [rebuild for rebuild, _ in left], next(
            (_decode_progress(value) for _, value in left if value is not None), RebuildProgress()
        )

    def _copy(
        self, state: State, left: list[OperatorRebuild], mark: RebuildProgress, taken: ShadowChunk
    ) -> RebuildProgress:
        """Copy a chunk of the shadow's changelog. Its tables have our numbers. Its last mark holds its progress."""
        numbers, marks = schema.numbers(self.circuit.stage.state_schema), {rebuild.mark for rebuild in left}
        tables = {number for rebuild in left for number in numbers[rebuild.operator.id]}
        rows = {key: value for key, value in taken.rows.items() if len(key) > _PREFIX and key[2] in tables}
        state.put(list(rows), list(rows.values()))
        seen = next(
            (_decode_progress(value) for key, value in taken.rows.items() if key in marks and value is not None), mark
        )
        if taken.next is None:
            return RebuildProgress(RebuildPhase.READ, seen.reached, seen.clock, times=seen.times)
        return RebuildProgress(RebuildPhase.COPY, seen.reached, seen.clock, taken=taken.next, times=seen.times)

    def _read(
        self, step: StepInput, state: State, left: list[OperatorRebuild], mark: RebuildProgress, moving: Moving
    ) -> RebuildProgress:
        plan = plan_rebuild(self.circuit.stage, [rebuild.operator for rebuild in left])
        timed = any(o.timed for o in plan.operators)
        rounds, clock, kept = list[StepInput](), mark.clock, mark.times
        for latest, slices in _by_time(step.slices) if timed else [(mark.clock, step.slices)]:
            clock = min(moving.since, max(clock, latest))
            rounds.append(StepInput(clock, slices, step.shared))
        if moving.whole:  # run the timers that were due by then, even if no record came after them
            rounds.append(StepInput(moving.since, [], step.shared))
        for number, one in enumerate(rounds, 1):
            # A time of a row is checked as it was when it was first read, at the latest.
            run = StepRun(replace(one, clock=moving.since), state, self.failures)
            times = run.event_time = self._times(state, left, plan, kept, moving.since)
            try:
                flowing = self._sent(run, plan.readers, left)
                run.step = one
                if times is not None and self.circuit.times is not None:
                    times.whole = moving.whole and number == len(rounds)
                    self.circuit.times.read(run)
                self.circuit.flow(run, plan.operators, flowing)
                kept = kept if times is None else times.end()
            except UserCodeError as error:
                ids = ", ".join(rebuild.operator.id for rebuild in left)
                where = f"{error.where}, which is read again to rebuild {ids}"
                raise UserCodeError(error.what, where=where, hint=error.hint) from error
        if moving.whole:
            return RebuildProgress(RebuildPhase.DELETE)
        reached = tuple(sorted((*place, at) for place, at in moving.reached.items()))
        return RebuildProgress(RebuildPhase.READ, reached, clock, times=kept)

    def _sent(self, run: StepRun, readers: Sequence[op.Source | Edge], left: Sequence[OperatorRebuild]) -> Flows:
        try:
            return {reader: self.circuit.readers[reader].read(run) for reader in readers}
        except StateError as error:  # of an edge: another version of the flow sent the rows
            raise cannot_be_sent_again([rebuild.operator for rebuild in left], error) from error

    def _times(
        self, state: State, left: list[OperatorRebuild], plan: RebuildPlan, kept: KeptTimes, clock: int
    ) -> TimesAgain | None:
        """The event time of a step that reads again; None: nothing has a watermark."""
        if self.circuit.times is None:
            return None
        inputs = inputs_of(self.circuit.times, plan.readers)
        if self._shadow:
            return TimesAgain(inputs, kept, clock, None)
        if self._bounds is None:
            # Neither these times nor the old rows change before all is read.
            first = min((at for rebuild in left for at in self._open(state, rebuild)), default=None)
            known = watermarks_in(inputs, state)
            self._bounds = {name: at if first is None else min(at, first - 1) for name, at in known.items()}
        return TimesAgain(inputs, kept, clock, self._bounds)

    def _open(self, state: State, rebuild: OperatorRebuild) -> list[int]:
        """In each shard, when the first of the old results is complete. Only where it is read by more than sinks with its key
        are old rows as the new ones, and else nothing waits for them."""
        if not (rebuild.operator.completes and rebuild.known):
            return []
        number = rebuild.line.numbers[0]
        ranges = (encode_key(number, shard, []) for shard in range(SHARDS))
        first = [next((key for key, _ in state.scan(at + b"\0", prefix_end(at))), None) for at in ranges]
        keys = [_in_table(key, rebuild.table) for key in first if key is not None]
        return list(self.circuit.result(rebuild.operator).complete_at(keys) or ()) if keys else []

    def _watermark(self, state: State, operator: op.Operator) -> int | None:
        """How far an operator that completes results was before the rebuild; None: it never does."""
        if not operator.completes or self.circuit.times is None:
            return None
        inputs = inputs_of(self.circuit.times, plan_rebuild(self.circuit.stage, [operator]).readers)
        return min(watermarks_in(inputs, state).values())

    def _emit(
        self, step: StepInput, state: State, left: list[OperatorRebuild], mark: RebuildProgress
    ) -> tuple[RebuildProgress | None, StepOutput]:
        run = StepRun(step, state, self.circuit.failures)
        inserting = mark.phase is RebuildPhase.INSERT
        groups = [rebuild for rebuild in left if rebuild.operator.compared]
        looked = (
            {rebuild.table for rebuild in groups}
            if inserting
            else {n for rebuild in left for n in rebuild.line.numbers}
        )
        pairs, at = _found(state, mark.at, looked)
        flowing: Flows = {}
        kept = set[bytes]()
        for rebuild in groups:
            number = rebuild.table if inserting else rebuild.line.numbers[0]
            rows = {key: value for key, value in pairs if key[2] == number}
            if inserting:
                rows = self._not_told(state, rebuild, rows) if rows else rows
            else:
                kept |= (lasting := self._lasting(state, rebuild, rows))
                rows = {key: value for key, value in rows.items() if key not in lasting}
            if rows:
                flowing[rebuild.operator] = (self._inserts if inserting else self._deletes)(run, rebuild, rows)
        if not inserting:
            gone = [key for key, _ in pairs if key not in kept]
            state.put(gone, [None] * len(gone))
        self.circuit.flow(run, self._behind(left), flowing)
        self.circuit.send(run, flowing)
        out = StepOutput(run.emitted, 0, run.dead, run.skipped)
        if at is not None:
            return RebuildProgress(mark.phase, at=at), out
        return None if inserting else RebuildProgress(RebuildPhase.INSERT), out

    def _lasting(self, state: State, rebuild: OperatorRebuild, rows: Mapping[bytes, bytes]) -> set[bytes]:
        """The old rows of groups that exist now."""
        found = state.get([_in_table(key, rebuild.table) for key in rows])
        return {key for key, new in zip(rows, found, strict=True) if new is not None}

    def _not_told(self, state: State, rebuild: OperatorRebuild, rows: dict[bytes, bytes]) -> dict[bytes, bytes]:
        """The new rows without those that were final and are told: these go."""
        at = self._watermark(state, rebuild.operator)
        if at is None:
            return rows
        ends = self.circuit.result(rebuild.operator).complete_at(list(rows))
        assert ends is not None
        complete = [key for key, end in zip(rows, ends, strict=True) if end <= at]
        found = state.get([_in_table(key, rebuild.line.numbers[0]) for key in complete])
        told = [key for key, was in zip(complete, found, strict=True) if was is None]
        state.put(told, [None] * len(told))
        gone = set(told)
        return {key: value for key, value in rows.items() if key not in gone}

    def _inserts(self, run: StepRun, rebuild: OperatorRebuild, rows: Mapping[bytes, bytes]) -> Updates:
        """The changes of groups that exist now. If the old rows had other columns, the published rows are unknown: then send
        the new rows again."""
        before = [_in_table(key, rebuild.line.numbers[0]) for key in rows]
        nothing: list[bytes | None] = [None] * len(rows)
        previous = run.state.get(before) if rebuild.known else nothing
        run.state.put(before, nothing)
        return self.circuit.result(rebuild.operator).differences(run, list(rows), previous, list(rows.values()))

    def _deletes(self, run: StepRun, rebuild: OperatorRebuild, rows: Mapping[bytes, bytes]) -> Updates:
        """The retractions of groups that no longer exist."""
        previous: list[bytes | None] = list(rows.values()) if rebuild.known else [None] * len(rows)
        keys = [_in_table(key, rebuild.table) for key in rows]
        gone = self.circuit.result(rebuild.operator).differences(run, keys, previous, [None] * len(rows))
        return replace(gone, had=everywhere(True, len(rows)))

    def _behind(self, left: list[OperatorRebuild]) -> list[op.Operator]:
        """The operators that receive these changes. A rebuilt operator sends its own changes."""
        rebuilt = {rebuild.operator for rebuild in left}
        seen = {o for o in rebuilt if o.compared}
        found = []
        for o in self.circuit.stage.operators:
            if o not in rebuilt and any(before in seen for before in o.inputs):
                seen.add(o)
                found.append(o)
        return found


def _places(mark: RebuildProgress) -> dict[Place, int]:
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
