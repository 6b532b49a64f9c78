"""Each record of an output once, to a reader whose place in it may go back.

    offset(r) ≤ last offset of the partition      ⇔  r was seen        of a topic that Falkirk wrote
    (step, sequence)(r) ≤ last of task and partition  ⇔  r was seen    of that, and of any copy of it

In the topic itself both hold, and where they contradict each other something was recreated: that is an error, for no machine
can say whether its records come in addition. A copy made at least once has its duplicates at offsets of their own, so there
the second counts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from falkirk.errors import ConfigError, SourceError, StateError
from falkirk.stream.dataflow.provenance import HasHeaders, Provenance, provenance


class Delivered(HasHeaders, Protocol):
    """A record as a consumer hands it over: `confluent_kafka.Message` is one."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...


M = TypeVar("M", bound=Delivered)


class _Last(msgspec.Struct, array_like=True):
    """The last record of one task in one partition."""

    step: int
    sequence: int
    since: int = 0
    """Where the task began again, if it did: what lies before is of an earlier app."""


class _Partition(msgspec.Struct):
    offset: int = -1
    tasks: dict[str, _Last] = {}


class _State(msgspec.Struct):
    copied: bool
    topics: dict[str, dict[int, _Partition]]


class Once:
    """Tells new records from those that were seen, and gives that knowledge as bytes.

    Store `state()` in the same transaction of your database as your results. After a crash, begin with it again, and
    read on from anywhere at or before `positions()`. Read with `isolation.level=read_committed`.

    >>> from confluent_kafka import Message
    >>> first, second = (Message("stats", 0, offset=i, headers=[("falkirk", b"stats/0 17 %d" % i)]) for i in (0, 1))
    >>> once = Once()
    >>> once.new(first), once.new(second), once.new(first)
    (True, True, False)
    >>> again = Once(once.state())
    >>> again.new(second), again.positions()
    (False, {('stats', 0): 2})
    """

    def __init__(self, state: bytes | None = None, *, copied: bool = False) -> None:
        """`copied=True` is for topics that are copies of a flow's, which may have repeats (as MirrorMaker makes them).

        Raises StateError if `state` is not what `state()` gave, and ConfigError if `copied` was another.
        """
        self._state = _State(copied, {})
        if state is not None:
            try:
                self._state = msgspec.json.decode(state, type=_State)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise StateError(
                    f"this is not the state of a reader: {error}", hint="give what Once.state() gave"
                ) from error
            if self._state.copied != copied:
                raise ConfigError(
                    f"the state is of a reader with copied={self._state.copied}", hint="begin with the same"
                )

    def new(self, record: Delivered) -> bool:
        """True if the record was not seen before; from now on it is seen. Raises SourceError where that cannot be
        known.

        >>> from confluent_kafka import Message
        >>> record = Message("stats", 0, offset=0, headers=[("falkirk", b"stats/0 17 0")])
        >>> once = Once()
        >>> once.new(record), once.new(record)
        (True, False)
        """
        topic, number, offset = record.topic() or "", record.partition() or 0, record.offset() or 0
        partition = self._state.topics.setdefault(topic, {}).setdefault(number, _Partition())
        origin = provenance(record)
        seen = self._seen(record, partition, origin, offset)
        if not seen:
            self._note(partition, origin, offset)
        return not seen

    def only_new(self, records: Iterable[M]) -> Iterator[M]:
        """The new ones among some records. Raises SourceError as `new` does.

        >>> from confluent_kafka import Message
        >>> record = Message("stats", 0, offset=0, headers=[("falkirk", b"stats/0 17 0")])
        >>> len(list(Once().only_new([record, record])))
        1
        """
        return (record for record in records if self.new(record))

    def state(self) -> bytes:
        """Which records were seen, as JSON: some hundred bytes for each partition and task.

        >>> Once().state()
        b'{"copied":false,"topics":{}}'
        """
        return msgspec.json.encode(self._state)

    def positions(self) -> Mapping[tuple[str, int], int]:
        """The offset to read on from, by topic and partition.

        >>> from confluent_kafka import Message
        >>> once = Once()
        >>> once.new(Message("stats", 0, offset=41, headers=[("falkirk", b"stats/0 17 0")]))
        True
        >>> once.positions()
        {('stats', 0): 42}
        """
        return {(t, p): at.offset + 1 for t, parts in self._state.topics.items() for p, at in parts.items()}

    def begin_again(self, record: Delivered) -> None:
        """Accept a record for which `new` raised SourceError as the first of an app that was created again under its
        name.

        The task's steps are numbered from there; `new` then says True for the record. Raises ConfigError for any other
        record.

        >>> from confluent_kafka import Message
        >>> last = Message("stats", 0, offset=7, headers=[("falkirk", b"stats/0 9 0")])
        >>> first = Message("stats", 0, offset=8, headers=[("falkirk", b"stats/0 0 0")])
        >>> once = Once()
        >>> once.new(last)
        True
        >>> once.begin_again(first)
        >>> once.new(first)
        True
        """
        topic, number, offset = record.topic() or "", record.partition() or 0, record.offset() or 0
        partition, origin = self._state.topics[topic][number], provenance(record)
        if origin is None or origin.task is None or origin.step is None or offset <= partition.offset:
            raise ConfigError(f"no task begins again at {topic}:{number}:{offset}", hint="ask `new` first")
        partition.tasks[origin.task] = _Last(-1, -1, offset)

    def _seen(self, record: Delivered, partition: _Partition, origin: Provenance | None, offset: int) -> bool:
        by_offset = offset <= partition.offset
        if origin is None or origin.task is None or origin.step is None or origin.sequence is None:
            if self._state.copied:
                raise SourceError(
                    "a copied record cannot be told from its repeats: no step of a stream wrote it",
                    where=_place(record),
                    hint="of a batch part read complete epochs; of anything else, read the topic itself",
                )
            return by_offset
        last = partition.tasks.get(origin.task)
        if last is not None and by_offset and offset < last.since:
            return True
        by_step = last is not None and (origin.step, origin.sequence) <= (last.step, last.sequence)
        if self._state.copied or by_offset == by_step:
            return by_step
        if by_step:
            assert last is not None
            raise SourceError(
                f"task {origin.task} began again: step {origin.step} follows on step {last.step}",
                where=_place(record),
                hint="the app was recreated under its name, or the topic is a copy with repeats. Of a new app, "
                "begin_again(record) takes the records in addition; a copy is read with Once(copied=True)",
            )
        raise SourceError(
            f"{_place(record)} was read already, but step {origin.step} of task {origin.task} was not",
            where=f"the topic was read up to offset {partition.offset}",
            hint="was the topic deleted and recreated? Then begin without a state; what was read of the old one is counted",
        )

    @staticmethod
    def _note(partition: _Partition, origin: Provenance | None, offset: int) -> None:
        partition.offset = max(partition.offset, offset)
        if origin is not None and origin.task is not None and origin.step is not None and origin.sequence is not None:
            last = partition.tasks.setdefault(origin.task, _Last(-1, -1))
            last.step, last.sequence = origin.step, origin.sequence


def _place(record: Any) -> str:
    return f"{record.topic()}:{record.partition()}:{record.offset()}"
