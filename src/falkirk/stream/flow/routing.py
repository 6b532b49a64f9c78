"""A sink of several topics: one operator that knows all topics, then a filter and an ordinary sink for each topic.

    rows ──▶ route ──┬─▶ filter by == "a" ─▶ sink a
                     └─▶ filter by == "b" ─▶ sink b
               └─▶ a row that names another topic fails here

So each topic is a separate output in a step record. When a row of a table changes its topic, the old topic gets a tombstone
and the new topic gets a record.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import polars as pl

from falkirk.blame import did_you_mean
from falkirk.errors import DefinitionError
from falkirk.stream import operators as op
from falkirk.stream.definition.expressions import expressions
from falkirk.stream.definition.on_error import OnError, checked_on_error
from falkirk.stream.definition.pattern import checked_topics


def routed(
    graph: op.Graph, before: op.Operator, name: str, topics: Any, by: str, on_error: OnError | None, line: str
) -> list[tuple[str, op.Operator]]:
    """The rows of each topic, added to the graph. Raises DefinitionError."""
    where = f"sink {name!r} ({line})"
    several = checked_topics(topics, where) if topics is not None else None
    if not isinstance(several, tuple):
        raise DefinitionError(
            f"the sink has topic_by={by!r}, and does not list the topics that it may name",
            where=where,
            hint='list them all, for they are made and accounted for when the app starts: topic=["sold-eu", "sold-us"]',
        )
    if before.schema.get(by) != pl.String():
        has = f"is {before.schema[by]}" if by in before.schema else "is not there"
        raise DefinitionError(
            f"column {by!r} is to name topics, and {has}", where=where, hint=did_you_mean(by, before.schema)
        )
    same: dict[str, Any] = {
        "line": line, "schema": before.schema, "changes": before.changes, "partitioned": before.partitioned,
        "root": before.root, "regime": before.regime,
    }  # fmt: skip
    # Within one topic, the column with the topic's name has the same value in all rows. It cannot identify a row.
    unique = None if before.unique is None else before.unique - {by}
    chosen = checked_on_error(on_error, where)
    route = op.Route(id=name, inputs=(before,), unique=before.unique, by=by, topics=several, on_error=chosen, **same)
    graph.add(route)
    found: list[tuple[str, op.Operator]] = []
    for topic in several:
        named = expressions([nw.col(by) == topic], {}, where)
        kept = op.Filter(id=op.Filter.kind, inputs=(route,), unique=unique, predicates=named, **same)
        found.append((topic, graph.add(kept)))
    return found
