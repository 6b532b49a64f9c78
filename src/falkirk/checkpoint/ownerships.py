"""The ownerships of a task, read from its steps partition: who owned it, and whom to fence."""

from __future__ import annotations

from collections.abc import Iterable

from falkirk.checkpoint.ids import Nonce, Offset, OwnerId
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord


def last_named(records: Iterable[tuple[Offset, TaskRecord]]) -> Nonce | None:
    """The nonce of the last name, or None if no name exists.

    >>> last_named([(Offset(0), Named(Nonce("a"), OwnerId("w0"))), (Offset(1), Named(Nonce("b"), OwnerId("w1")))])
    'b'
    """
    nonce = None
    for _, record in records:
        if isinstance(record, Named):
            nonce = record.nonce
    return nonce


def owners(records: Iterable[tuple[Offset, TaskRecord]]) -> dict[Nonce, OwnerId]:
    """Ownerships in log order, from names and from steps (an old name may have been trimmed; the last step never is)."""
    found: dict[Nonce, OwnerId] = {}
    for _, record in records:
        if isinstance(record, Named | StepRecord):
            found.setdefault(record.nonce, record.owner)
    return found


class Ownerships:
    """The ownerships of a task, from the records of its partition, one by one. It keeps no records: a task may have millions
    of steps.

    >>> a, b, seen = Named(Nonce("a"), OwnerId("w0")), Named(Nonce("b"), OwnerId("w1")), Ownerships()
    >>> for record in (a, b): seen.add(record)
    >>> sorted(seen.unclean())
    ['w0', 'w1']
    >>> seen.add(Released(Nonce("a"))); sorted(seen.unclean())
    ['w1']
    """

    def __init__(self) -> None:
        self._owners: dict[Nonce, OwnerId] = {}
        self._ended: set[Nonce] = set()
        self._stepped: set[Nonce] = set()

    def add(self, record: TaskRecord) -> None:
        """The next record."""
        if isinstance(record, Named | StepRecord):
            self._owners.setdefault(record.nonce, record.owner)
        if isinstance(record, Released):
            self._ended.add(record.nonce)
        elif isinstance(record, StepRecord):
            self._stepped.add(record.nonce)

    def unclean(self) -> set[OwnerId]:
        """The owners to fence (clause 5b): those of every ownership begun after the newest one that a `released` cites.

        An owner that wrote a step, committed or not, had fenced all before it: they are not fenced again. They can only
        have made a new producer since, and a worker that does so first asks for the last name (`transaction.renew`).
        """
        first = 0
        for i, nonce in enumerate(self._owners):
            if nonce in self._ended:
                first = i + 1
            elif nonce in self._stepped:
                first = max(first, i)
        return set(list(self._owners.values())[first:])
