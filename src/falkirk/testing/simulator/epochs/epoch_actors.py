"""Who acts in a run of epochs, what they publish, and what may happen to them. See `epochs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from falkirk.checkpoint import epochs as protocol
from falkirk.checkpoint.epochs import EpochRecord, Opened
from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import Writes
from falkirk.testing.simulator.cluster.log import SimLog
from falkirk.testing.simulator.host import Thread

OPENINGS = TopicPartition("epochs", 0)
PARTS = 2
EPOCHS = 3
SLICES = 2
BUDGET = 6_000
AWAY = 15
"""Turns until a driver that died is started again."""
SPECULATES = 60
"""A driver checks this many times whether a task has ended, then it starts a copy."""

Kind = Literal["crash", "nap", "sleep", "lose", "delay", "refuse", "time-out"]
KINDS: Sequence[Kind] = ("crash", "nap", "sleep", "lose", "delay", "refuse", "time-out")
"""`nap` ends while the others continue, `sleep` when they have finished."""


class Fault(NamedTuple):
    """A fault of an actor at its point of this number. The lives of a driver are one actor; each task is one."""

    actor: str
    at: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Scenario:
    """What happens, apart from faults."""

    drivers: int = 2
    abandon: int | None = None
    """The epoch that a person asks to abandon while it is open."""
    differ: bool = False
    """Every attempt computes other rows."""


@dataclass(slots=True, eq=False)
class Actor:
    """A driver's life or a publishing task."""

    name: str
    thread: Thread
    log: SimLog
    paused_until: int = 0


@dataclass(slots=True)
class Rows:
    """`publishing.Result` of one part: two rows a slice."""

    opened: Opened
    part: int
    salt: str = ""

    slices: int = SLICES

    async def slice(self, number: int) -> Sequence[Writes]:
        values: list[bytes | None] = [row(self.opened, self.part, 2 * number + i, self.salt) for i in (0, 1)]
        return [Writes("results", [self.part] * 2, [None, None], values)]


def row(opened: Opened, part: int, number: int, salt: str = "") -> bytes:
    """Names the epoch, its proposal, and the row."""
    return f"{opened.epoch} {opened.clock} {part} {number}{salt}".encode()


class SimEpochLog(SimLog):
    """`epochs.EpochLog` on the simulated cluster."""

    ended: Callable[[EpochRecord], None]

    async def append(self, partition: TopicPartition, record: EpochRecord) -> None:
        """One record, outside any transaction."""
        data = protocol.encode(record)

        def request() -> None:
            self.broker[partition].append(None, data, self.broker.now, None)
            self.ended(record)

        await self._ask(f"appends {type(record).__name__.lower()}", request)
