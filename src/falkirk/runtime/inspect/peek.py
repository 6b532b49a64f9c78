"""Shows the records of a topic in the flow's formats, without asking the app's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Literal

from confluent_kafka import Message

from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.peek import ALL, TopicPeek
from falkirk.errors import ConfigError
from falkirk.runtime.host.settings import Settings
from falkirk.stream.access.endpoints import Row, View
from falkirk.stream.definition.names import epochs_topic

Start = int | Literal["earliest", "latest"]


def peek(
    view: View, settings: Settings, topics: Topics, start: Start, count: int, *, follow: bool
) -> Iterator[list[Row]]:
    """The last `count` records (for edges: rows), or the first from a start on; 0: all that exist.

    With `follow`, new records follow without an end, with an empty list whenever none comes; from a start on, that is
    everything. Raises ClusterError.
    """
    with closing(TopicPeek(settings.cluster(), topics, _topic(view, topics))) as glance:
        offset = start if isinstance(start, int) else 0
        if follow and start != "latest":
            glance.begin(offset)
        else:
            most = count or ALL
            rows = enough_rows(view, most, glance.last if start == "latest" else lambda n: glance.first(n, offset))
            yield rows[max(0, len(rows) - most) :] if start == "latest" else rows[:most]
        if follow:
            yield from (_rows(view, messages) for messages in glance.coming())


def peek_complete(view: View, app: str, settings: Settings, topics: Topics) -> tuple[int, list[Row]]:
    """The newest complete epoch of a batch part's sink, and all of its rows. Raises ConfigError, SourceError and
    ClusterError."""
    from falkirk.connectors.spark.complete import complete_epoch, of_epoch

    if not view.stage:
        raise ConfigError(
            f"{view.kind} {view.name!r} has no epochs: no batch part writes it", hint="leave out --complete"
        )
    topic = _topic(view, topics)
    epochs = epochs_topic(settings.prefix, app, view.stage)
    number, found = complete_epoch(settings.cluster(), topics, epochs, "latest", view.topic)
    with closing(TopicPeek(settings.cluster(), topics, topic)) as glance:
        return number, _rows(view, of_epoch(number, glance.between(found.ranges)))


def enough_rows(view: View, count: int, read: Callable[[int], list[Message]]) -> list[Row]:
    """So many rows or more, if there are. Of a topic of two sinks, more records must be read than are shown."""
    most = count
    while True:
        messages = read(most)
        rows = _rows(view, messages)
        if len(rows) >= count or len(messages) < most or not view.mark:
            return rows
        most *= 4


def _rows(view: View, messages: Sequence[Message]) -> list[Row]:
    rows = view.rows(messages)  # type: ignore[arg-type]  # the client's types allow for what no record is
    return [row for row in rows if view.shows(row)]


def _topic(view: View, topics: Topics) -> TopicInfo:
    hint = "is its name right?" if view.kind == "topic" else "has the app run here, under this --prefix?"
    return topics.there(view.topic, hint)
