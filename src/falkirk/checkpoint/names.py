"""Who owned a task, read from its steps partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from falkirk.checkpoint.ids import Nonce, Offset, OwnerId
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord


def last_named(records: Iterable[tuple[Offset, TaskRecord]]) -> Nonce | None:
    """The nonce of the last name, or None if nobody is named.

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


def unclean(records: Sequence[tuple[Offset, TaskRecord]]) -> set[OwnerId]:
    """The owners to fence (clause 5b): those of every ownership begun after the newest one that a `released` cites.

    One that wrote a step had fenced all those before it, committed or not: they are not fenced again. They could only have
    made themselves a new producer since, and whoever does that asks for the last name first (`transaction.renew`).

    >>> a, b = Named(Nonce("a"), OwnerId("w0")), Named(Nonce("b"), OwnerId("w1"))
    >>> sorted(unclean([(Offset(0), a), (Offset(1), b)])), unclean([(Offset(0), a), (Offset(1), Released(Nonce("a")))])
    (['w0', 'w1'], set())
    """
    ownerships = list(owners(records).items())
    released = {record.nonce for _, record in records if isinstance(record, Released)}
    stepped = {record.nonce for _, record in records if isinstance(record, StepRecord)}
    first = 0
    for i, (nonce, _) in enumerate(ownerships):
        if nonce in released:
            first = i + 1
        elif nonce in stepped:
            first = max(first, i)
    return {owner for _, owner in ownerships[first:]}
