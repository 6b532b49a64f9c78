"""The transaction coordinator: transactional ids, their epochs, and the life of their transactions.

              register            end                       every marker written
    EMPTY ───────────────▶ OPEN ───────▶ COMMITTING/ABORTING ───────────────────▶ EMPTY

It speaks the protocol of a client without KIP-890, such as librdkafka: the end of a transaction names only the producer's
epoch. So a delayed end ends any transaction of that epoch that is open when it arrives. The epoch changes when a producer is
initialised and when a transaction times out; every older producer is then fenced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from falkirk.checkpoint.ids import TopicPartition
from falkirk.testing.simulator.cluster.partition import Fate, Txn


class Fenced(Exception):
    """The producer's epoch is not the transactional id's (PRODUCER_FENCED, INVALID_PRODUCER_EPOCH)."""


class Concurrent(Exception):
    """A decided transaction still lacks markers (CONCURRENT_TRANSACTIONS): try again."""


class Moving(Concurrent):
    """The coordinator has moved, and the new one does not answer yet (NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS): try
    again. A request whose sender no longer waits is lost."""


class InvalidState(Exception):
    """The transaction is decided, and otherwise (INVALID_TXN_STATE)."""


class Phase(Enum):
    """The state of a transactional id in the life of a transaction."""

    EMPTY = "empty"
    OPEN = "open"
    COMMITTING = "committing"
    ABORTING = "aborting"


@dataclass(slots=True)
class _Producer:
    epoch: int = -1
    number: int = 0
    phase: Phase = Phase.EMPTY
    txn: Txn | None = None
    partitions: set[TopicPartition] = field(default_factory=set)
    since: int = 0
    """When the transaction was opened."""
    committed: bool | None = None
    """The fate of the last transaction of this epoch; None while it is open."""


class Coordinator:
    """All transactional ids of a cluster.

    >>> c = Coordinator(); w = c.init("w"); t = c.register("w", w, [TopicPartition("a", 0)])
    >>> c.end("w", w, commit=True); c.unmarked()
    [('w', TopicPartition(topic='a', partition=0))]
    """

    def __init__(self) -> None:
        self._producers: dict[str, _Producer] = {}
        self._deciding: set[str] = set()
        """Those whose transaction is decided and lacks markers."""
        self.away = False
        """It has moved, and does not answer yet."""
        self.now = 0

    def init(self, owner: str) -> int:
        """A new producer for an id: its epoch. Older ones are fenced from here on, even when it raises.

        Raises Concurrent while a transaction lacks markers; one that is open is aborted first, under a new epoch. Raises
        Moving.
        """
        if self.away:
            raise Moving(owner)
        p = self._producers.setdefault(owner, _Producer())
        if p.phase is Phase.OPEN:
            self.time_out(owner)
        if p.phase is not Phase.EMPTY:
            raise Concurrent(owner)
        p.epoch += 1
        p.committed = None
        return p.epoch

    def register(self, owner: str, epoch: int, partitions: Iterable[TopicPartition]) -> Txn:
        """Take partitions into the producer's transaction, and open it if necessary. Raises Fenced or Concurrent."""
        p = self._checked(owner, epoch)
        if p.phase in (Phase.COMMITTING, Phase.ABORTING):
            raise Concurrent(owner)
        if p.phase is Phase.EMPTY:
            p.phase, p.number = Phase.OPEN, p.number + 1
            p.txn, p.committed, p.since = Txn(owner, epoch, p.number), None, self.now
        assert p.txn is not None
        p.partitions |= set(partitions)
        return p.txn

    def end(self, owner: str, epoch: int, *, commit: bool) -> None:
        """Decide the open transaction of this epoch, whichever it is. Does nothing if it is decided so already.

        Raises Fenced, Concurrent if it is being ended, InvalidState if it is decided otherwise, Moving.
        """
        p = self._checked(owner, epoch)
        if p.phase is Phase.OPEN:
            p.phase, p.committed = (Phase.COMMITTING if commit else Phase.ABORTING), commit
            self._deciding.add(owner)
        elif p.committed not in (None, commit):
            raise InvalidState(owner)
        elif p.phase is not Phase.EMPTY:
            raise Concurrent(owner)

    def time_out(self, owner: str) -> None:
        """Abort an open transaction and fence its producer."""
        p = self._producers[owner]
        if p.phase is Phase.OPEN and not self.away:
            p.epoch += 1
            p.phase = Phase.ABORTING
            self._deciding.add(owner)

    def open_since(self) -> dict[str, int]:
        """The owners of open transactions, and when they were opened."""
        return {owner: p.since for owner, p in self._producers.items() if p.phase is Phase.OPEN}

    def _checked(self, owner: str, epoch: int) -> _Producer:
        if self.away:
            raise Moving(owner)
        p = self._producers.get(owner)
        if p is None or p.epoch != epoch:
            raise Fenced(owner)
        return p

    def phase(self, owner: str) -> Phase:
        """The state of the id in the life of a transaction."""
        p = self._producers.get(owner)
        return p.phase if p else Phase.EMPTY

    def commits(self, owner: str) -> bool:
        """Is the id's decided transaction a committed one?"""
        return self.phase(owner) is Phase.COMMITTING

    def committing(self) -> set[Txn]:
        """The transactions that are decided to commit and lack markers."""
        return {p.txn for p in self._producers.values() if p.txn is not None and p.phase is Phase.COMMITTING}

    def unmarked(self) -> list[tuple[str, TopicPartition]]:
        """The markers still to be written, in order."""
        return sorted((o, tp) for o in self._deciding for tp in self._producers[o].partitions)

    def marked(self, owner: str, partition: TopicPartition) -> tuple[Txn, Fate]:
        """Take one marker off the list: returns the transaction that it ends there, and how."""
        p = self._producers[owner]
        assert p.txn is not None
        p.partitions.remove(partition)
        fate = Fate.COMMITTED if p.phase is Phase.COMMITTING else Fate.ABORTED
        if not p.partitions:
            p.phase = Phase.EMPTY
            self._deciding.remove(owner)
        return p.txn, fate
