"""Checks of what users say of a source: its cluster, its metadata columns, its start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from falkirk.blame import did_you_mean
from falkirk.checkpoint.ids import CLUSTER, address
from falkirk.durations import millis_since_1970
from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.metadata import METADATA
from falkirk.stream.definition.pattern import Pattern, Topics, check_topic


def in_cluster(cluster: str, topics: Topics, where: str) -> Topics:
    """The addresses of a source's topics. Raises DefinitionError."""
    if cluster and not CLUSTER.fullmatch(cluster):
        raise DefinitionError(
            f"{cluster!r} is not a valid cluster name",
            where=where,
            hint="use up to 50 small letters, digits and dashes. Its address is no part of the flow: the run is given that, "
            "by --cluster NAME=HOST:PORT or below [cluster.NAME] in falkirk.toml",
        )
    if isinstance(topics, Pattern):
        return topics.within(cluster)
    if wrong := next((name for name in ([topics] if isinstance(topics, str) else topics) if ":" in name), None):
        raise DefinitionError(
            f"a topic cannot be named {wrong!r}", where=where, hint='to read one of another cluster: cluster="NAME"'
        )
    for name in [topics] if isinstance(topics, str) else topics:
        check_topic(name, where)
    return address(cluster, topics) if isinstance(topics, str) else tuple(address(cluster, name) for name in topics)


def checked_metadata(wanted: Sequence[str] | Mapping[str, str], where: str) -> dict[str, str]:
    if isinstance(wanted, str):
        raise DefinitionError(f"metadata={wanted!r} is not a list", where=where, hint=f"metadata=[{wanted!r}]")
    columns = dict(wanted) if isinstance(wanted, Mapping) else {name: name for name in wanted}
    for name in columns.values():
        if name not in METADATA:
            raise DefinitionError(f"a record has no {name!r}", where=where, hint=did_you_mean(name, METADATA))
    return columns


def checked_start(start: Any, where: str) -> str | int | Mapping[int, int]:
    if start in ("earliest", "latest"):
        return str(start)
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise DefinitionError(f"start={start!r} has no zone", where=where, hint="add tzinfo=datetime.UTC")
        return millis_since_1970(start)
    if isinstance(start, Mapping) and start and all(isinstance(n, int) and n >= 0 for p in start.items() for n in p):
        return dict(start)
    raise DefinitionError(
        f"start={start!r} is not a valid start",
        where=where,
        hint='use "earliest", "latest", a datetime, or {partition: offset}',
    )
