"""A task as its owner sees it, and the step that the owner wants to commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from falkirk.checkpoint.ids import InputPartition, Millis, Nonce, Offset, Step, TaskId, TopicPartition
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.planning.rates import NOTHING, Replay
from falkirk.checkpoint.ports import Cause, Output, Writes
from falkirk.checkpoint.records import Division, Range, StepRecord
from falkirk.errors import FalkirkError
from falkirk.state.store import Store

if TYPE_CHECKING:
    from falkirk.checkpoint.regimes.recovery import Recovery


class Phase(Enum):
    """The phase of a task at its owner.

        assigned     name committed    older owners fenced     log rolled       last name ours
    IDLE ──────▶ NAMING ─────────▶ FENCING ─────────────▶ ROLLING ─────▶ ROLLED ─────────────▶ RUNNING
     ▲              │                 │                      │             │                     │ revoked
     │              ▼                 ▼                      ▼             ▼                     ▼
     └── lost: another name is the last, or the group took the task away ◀─┴──────────────── RELEASING
    """

    IDLE = "idle"
    NAMING = "naming"
    FENCING = "fencing"
    ROLLING = "rolling"
    ROLLED = "rolled"
    RUNNING = "running"
    RELEASING = "releasing"


NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.IDLE: frozenset({Phase.NAMING}),
    Phase.NAMING: frozenset({Phase.FENCING, Phase.IDLE}),
    Phase.FENCING: frozenset({Phase.ROLLING, Phase.IDLE}),
    Phase.ROLLING: frozenset({Phase.ROLLED, Phase.IDLE}),
    Phase.ROLLED: frozenset({Phase.RUNNING, Phase.IDLE}),
    Phase.RUNNING: frozenset({Phase.RELEASING, Phase.IDLE}),
    Phase.RELEASING: frozenset({Phase.IDLE}),
}


class Revoked(Exception):
    """It is useless to go on: the group took the task away, or another worker was named in it."""


class InvariantError(FalkirkError):
    """The protocol reached a state that it forbids. Nothing was committed from it."""

    exit_code = 10


@dataclass(frozen=True, slots=True)
class Task:
    """A task's constants while its app runs."""

    id: TaskId
    steps: TopicPartition
    """Its partition of the steps topic: who owns this partition owns the task."""
    recovery: Recovery
    """What its steps log, and how its store is rolled forward."""
    layout: int = 0
    """The number of the app's layout that its owner runs."""


@dataclass(frozen=True, slots=True)
class Correction:
    """What a task commits before any new step, because its recorded steps gave another output when run again."""

    first: Step
    """The first corrected step; the last one is the task's last."""
    outputs: Sequence[Output]
    """The difference between what they should have said and what they have said."""
    digest: str
    """Of what they should have said."""
    changes: Mapping[bytes, bytes | None]
    """Of all these steps: until the correction is committed, the store is where it was before them."""


@dataclass(slots=True, eq=False)
class Owned:
    """One ownership of one task: from its name to its release or loss."""

    task: Task
    phase: Phase = Phase.IDLE
    nonce: Nonce = Nonce("")
    """Given when it is named."""
    store: Store | None = None
    """Open from the beginning of its recovery until `takeover.abandon`."""

    # What is known of the steps: set by the recovery, and by each step that commits.
    last: StepRecord | None = None
    """The last committed step; None before the first."""
    read_on: Offset = Offset(0)
    """The steps partition is known up to here."""

    # What ends it, or makes it look again.
    failed: Cause | None = None
    """Why its name did not commit."""
    revoked: bool = False
    """The group took the task away: the take-over ends at its next call of `go_on`."""
    renewed: bool = False
    """This worker has a new producer since the names were read: read again whether the last is ours (clause 5d)."""
    lost: bool = False
    """Another was named while this ownership ran: no step of it may follow."""

    # What the recovery does. Once the task runs, only reports and rates ask for it.
    replay: Replay = NOTHING
    """All that rolls the store forward."""
    rolled: tuple[int, int] = (0, 0)
    """How much of it is done, and how much there is: in records of its regime's log, or steps."""
    steps_saved: int = 0
    """Recorded steps that a selective rollback need not run again."""
    rollback_failed: str = ""
    """Why a selective rollback has failed: then all recorded steps after a version run again; "" if none has."""
    store_below: Step | None = None
    """The store was replaced by one from before this step (`lazy.reopen`); None: it was not."""

    # What the recovery leaves for the first steps.
    backfilled: Division = ()
    """For a task without a step: what the backfill, if any, has read."""
    correction: Correction | None = None
    """What must be committed before any new step."""

    def enter(self, phase: Phase) -> None:
        """Change to `phase`. Raises InvariantError if the life cycle has no such arrow."""
        if phase not in NEXT[self.phase]:
            raise InvariantError(f"task {self.task.id} cannot go from {self.phase.value} to {phase.value}")
        self.phase = phase

    def rolls(self, replay: Replay) -> None:
        """Its roll-forward begins, along so much."""
        self.replay = replay

    def go_on(self) -> None:
        """Raises Revoked if it is useless to continue. Called between the parts of a long recovery."""
        if self.revoked:
            raise Revoked

    def opened(self) -> Store:
        """The store; raises InvariantError before it is open."""
        if self.store is None:
            raise InvariantError(f"task {self.task.id} has no open store in phase {self.phase.value}")
        return self.store

    def state(self) -> Overlay:
        """The state after its last step: the store, with the changes of an uncommitted correction over it."""
        state = Overlay(self.opened())
        if self.correction is not None:
            state.changes.update(self.correction.changes)
        return state


@dataclass(slots=True)
class ClosedStep:
    """A step that has run and waits to be committed: its record, its output, and its overlay over the store."""

    owned: Owned
    record: StepRecord
    writes: Sequence[Writes]
    overlay: Overlay
    source_offsets: Mapping[TopicPartition, Offset] = field(default_factory=dict)
    """Ends of the division in topics of the app's own cluster, for people's tools; never read by Falkirk."""
    rows: int = 0
    """Rows that it read; they bound a step, since a record of an edge holds many."""
    late: int = 0
    """Rows that came too late."""
    failed: Cause | None = None
    """Why its transaction failed, if it did."""


def next_step(last: StepRecord | None) -> Step:
    """The number of the step after `last`."""
    return Step(0 if last is None else last.step + 1)


def next_clock(last: StepRecord | None, now: Millis) -> Millis:
    """clock(n+1) ≥ clock(n), for any clocks of the hosts."""
    return now if last is None else max(now, last.clock)


def next_division(last: StepRecord | None, ends: Mapping[InputPartition, Offset]) -> Division:
    """division(n+1).start = division(n).end for every partition that step n listed.

    >>> from falkirk.checkpoint.ids import InputPartition, OwnerId
    >>> bids = InputPartition("", "bids", "id", 0)
    >>> next_division(None, {bids: Offset(7)})[0].start      # a first step reads nothing: it records where to begin
    7
    """
    begins = {} if last is None else {r.partition: r.end for r in last.division}
    return tuple(Range(p, begins.get(p, end), end) for p, end in sorted(ends.items()))


def ends(record: StepRecord) -> dict[InputPartition, Offset]:
    """Where the step stopped reading, for every input partition."""
    return {r.partition: r.end for r in record.division}
