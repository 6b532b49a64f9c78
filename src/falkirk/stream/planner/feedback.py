"""A flow that reads what it writes: its rows would come round without end."""

from __future__ import annotations

from collections.abc import Iterable

from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.pattern import Pattern


def check_feedback(graph: op.Graph) -> None:
    """Raises DefinitionError where rows of a sink come back to it, over any number of topics, and no sink on the way has
    feedback=True. (Tables are no such way: a change of a table gives no row.)"""
    sinks = [o for o in graph.operators if isinstance(o, op.Sink) and not o.feedback]
    sources = {sink: [o for o in graph.upstream([sink]) if type(o) is op.Source] for sink in sinks}
    for sink in sinks:
        topics, size = {sink.topic}, 0
        while size < len(topics):
            size = len(topics)
            topics |= {other.topic for other in sinks if topics & read_by(sources[other])}
        if source := next((s for s in sources[sink] if topics & read_by([s])), None):
            (topic, *_) = sorted(topics & read_by([source]))
            way = "" if topic == sink.topic else f", and what follows of it comes to topic {topic!r}"
            raise DefinitionError(
                f"the flow would read its own output without end: sink {sink.id!r} writes topic {sink.topic!r}{way}, which "
                f"source {source.id!r} reads",
                where=f"{sink.where}, {source.where}",
                hint="write to another topic; or, if fewer and fewer rows come round, say so: .sink(…, feedback=True)",
            )


def read_by(sources: Iterable[op.Source]) -> set[str]:
    """The topics that they name. (Patterns that match a sink are refused by themselves.)"""
    found: set[str] = set()
    for source in sources:
        if not isinstance(source.topics, Pattern):
            found |= {source.topics} if isinstance(source.topics, str) else set(source.topics)
    return found
