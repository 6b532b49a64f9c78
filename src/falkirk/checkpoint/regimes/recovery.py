"""What each regime answers: what a step logs, how a store is brought to its task's last step, and what may be trimmed.

    state(n) = state(v) rolled along the log from v to n        for a version v, and the log that the regime writes

A regime of a flow names a class. Each task of it has an object, which knows the task's partitions of the topics that the
class `needs`. The protocol asks that object and never which class it is: another regime is another file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from falkirk.checkpoint.ids import InputPartition, Millis, Offset, TopicPartition
from falkirk.checkpoint.planning.rates import NOTHING, Cost, Replay
from falkirk.checkpoint.ports import Clock, Log, Replayer, Stores, Writes
from falkirk.checkpoint.records import RecordedStep, StepRecord
from falkirk.checkpoint.regimes.floors import Floor
from falkirk.checkpoint.tasks import ClosedStep, Owned, ends
from falkirk.state.store import Progress, Store

RECORDED: dict[str, type[Recovery]] = {}
"""Those with steps that are defined in this process, by the names that layouts record."""


class Requires(NamedTuple):
    """What a regime asks of sources and functions."""

    same_records: bool = False
    """Of sources: a division may be read again, and must have the same records then."""
    same_outputs: bool = False
    """Of functions: a recorded step may run again, and must give the output that it published."""


class Means(NamedTuple):
    """The ports that a recovery uses."""

    log: Log
    stores: Stores
    replayer: Replayer
    clock: Clock


class LogBounds(NamedTuple):
    """Where the task's partitions of its regime's topics begin and end. The ends were asked for after the fences and before
    the ends of the step records."""

    begins: Mapping[TopicPartition, Offset]
    ends: Mapping[TopicPartition, Offset]


@dataclass(frozen=True)
class Recovery:
    """How a task continues after a crash.

    `recover` is a contract. On True, store.step is the last of `steps`, and the store is what all steps up to there made.
    On False, another store is open in place of a useless one, and the logs are read again. Between its parts it calls
    `owned.go_on`. What it writes on the way leaves the store at a step that it holds completely, or at none.

    >>> from falkirk.checkpoint.regimes import Eager, Lazy
    >>> Eager.needs, Lazy.requires
    (('changelog',), Requires(same_records=True, same_outputs=True))
    """

    name: ClassVar[str]
    """As layouts record it, and as people read it. A stage can change between regimes with the same recovery."""
    in_epochs: ClassVar[bool] = False
    """Whether it runs in epochs, on the sources alone, and not in steps."""
    needs: ClassVar[tuple[str, ...]] = ()
    """The compacted topics that each stage needs, by kind; each has a partition for every task of the stage."""
    logs_changes: ClassVar[bool] = False
    """Whether the changelog has each step's state changes by key. Later versions of the flow and people can then read the
    state there, and migrations can change it."""
    rebuilds: ClassVar[bool] = False
    """Whether the logs alone, which any host can read, lead to the last step. If not, a version is needed."""
    keeps_state: ClassVar[bool] = True
    requires: ClassVar[Requires] = Requires()
    order: ClassVar[int] = 0
    """Of tasks that are taken over together, those with the least recover first."""
    presumed: ClassVar[Cost] = Cost(0.0, 0.0)
    """What a replay takes, in seconds for each part and record of it, until one was measured."""

    log_partitions: tuple[TopicPartition, ...] = ()
    """The task's partitions of the topics that it needs, in the same order."""

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__ and not cls.in_epochs:
            RECORDED[cls.name] = cls

    def logs(self, step: ClosedStep) -> list[Writes]:
        """What the step's transaction writes besides outputs and step record."""
        return []

    def log_offset_after(self, written: Mapping[TopicPartition, Offset], before: int) -> int:
        """Where to read on in the log after a step, whose transaction has written these last offsets; it was `before`."""
        return before

    async def open(self, means: Means, owned: Owned) -> Store:
        """The store to be rolled forward."""
        return await means.stores.open(owned.task.id, owned.go_on)

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        """Bring the open store to the last of the recorded steps: see the class. Raises Revoked, StateError and
        DivergenceError."""
        raise NotImplementedError

    def outdated(self, progress: Progress, steps: Sequence[RecordedStep], now: Millis) -> bool:
        """Whether the log may have lost what a store with this progress lacks. `steps`: those from its own on."""
        return False

    def replay(self, progress: Progress, steps: Sequence[RecordedStep], bounds: LogBounds) -> Replay:
        """What `recover` replays over a store with this progress."""
        return NOTHING

    def leads(self, steps: Sequence[RecordedStep]) -> bool:
        """Whether the logs alone lead from an empty store to the last of these steps, which are all that are left."""
        return bool(steps) and steps[-1][1].base < 0 and (self.rebuilds or steps[0][1].step == 0)

    def grows(self, step: ClosedStep) -> Replay:
        """What a committed step adds to that."""
        return NOTHING

    def floor(self, last: StepRecord | None, edges: Mapping[InputPartition, TopicPartition]) -> Floor:
        """Below which offsets no store at or after the last step reads its edges again."""
        if last is None:
            return {}
        at = ends(last)
        return {place: at[partition] for partition, place in edges.items()}

    def waited(self, since: Millis, now: float) -> float:
        """Seconds that the next version has been awaited when a task is taken over, if the newest is as of `since`."""
        return 0.0
