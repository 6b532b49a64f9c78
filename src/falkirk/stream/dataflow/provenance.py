"""The provenance of an output record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from falkirk.checkpoint.bundles import BUNDLE
from falkirk.checkpoint.publishing import HEADER as EPOCH
from falkirk.checkpoint.steps import HEADER as STEP
from falkirk.checkpoint.steps import maker


class HasHeaders(Protocol):
    """A client's record, for example a `confluent_kafka.Message`."""

    def headers(self) -> Mapping[str, Any] | Sequence[tuple[str, Any]] | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a record: a step of a task, or an epoch of a batch part or a backfill. `fk.provenance(record)`
    reads it.

    >>> provenance([("falkirk", b"stats/0 17 3")]).step
    17
    """

    task: str | None = None
    """Stage and partition: "stats/0"."""
    step: int | None = None
    """The task's steps are numbered 0, 1, 2…"""
    sequence: int | None = None
    """The record's number among the records that the step wrote to this partition: 0, 1, 2… without gaps."""
    epoch: int | None = None
    """The epoch of a batch part or a backfill. Task, step and sequence are then None."""


def provenance(record: HasHeaders | Iterable[tuple[str, Any]] | None) -> Provenance | None:
    """The provenance in the headers of a confluent-kafka message, or in a list of headers. None: Falkirk did not write it.

    >>> provenance([("falkirk", b"stats/0 17 3")])
    Provenance(task='stats/0', step=17, sequence=3, epoch=None)
    >>> provenance([("falkirk-epoch", b"4")]).epoch
    4
    >>> provenance([("trace", b"a1")]) is None
    True
    """
    headers = _headers(record)
    if (made := maker(headers.get(STEP, b""))) is not None:
        return Provenance(task=made.task, step=made.step, sequence=made.sequence)
    if (epoch := headers.get(EPOCH, b"")).isdigit():
        return Provenance(epoch=int(epoch))
    return None


def provenances(record: HasHeaders | Iterable[tuple[str, Any]] | None) -> list[Provenance]:
    """The provenance of each part of a record. Only records of edges have several parts, one for each task that wrote.

    >>> [p.task for p in provenances([("falkirk-bundle", b"by.k/0 7 0\\nby.k/1 5 0")])]
    ['by.k/0', 'by.k/1']
    >>> [p.task for p in provenances([("falkirk", b"stats/0 17 3")])], provenances(None)
    (['stats/0'], [])
    """
    if (bundle := _headers(record).get(BUNDLE)) is not None:
        return [p for line in bundle.split(b"\n") if (p := provenance([(STEP, line)])) is not None]
    made = provenance(record)
    return [] if made is None else [made]


def _headers(record: HasHeaders | Iterable[tuple[str, Any]] | None) -> dict[str, bytes]:
    if record is None:
        return {}
    found = record.headers() if hasattr(record, "headers") else record
    pairs = found.items() if isinstance(found, Mapping) else found or ()
    return {name: value for name, value in pairs if isinstance(value, bytes)}
