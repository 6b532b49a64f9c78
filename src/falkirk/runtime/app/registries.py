"""Checks the schema registries that a flow's formats name, before anything is made for it."""

from __future__ import annotations

from collections.abc import Iterator

from falkirk.errors import ConfigError, DefinitionError, FalkirkError, UnreachableError
from falkirk.stream.formats import Format, Registering
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.stages.plan import Plan


def meet_registries(plan: Plan) -> None:
    """Register the sinks' schemas, and check that sources' registries answer.

    Raises ConfigError if a registry refuses, UnreachableError if it is away. Any process may repeat it.
    """
    asked = set()
    for value, where in _formats(plan):
        if not isinstance(value, Registering) or value.registry is None:
            continue
        if value.writes or id(value.registry) not in asked:
            asked.add(id(value.registry))
            try:
                value.begin()
            except (ConfigError, DefinitionError, UnreachableError) as error:
                raise _within(error, where) from None


def _formats(plan: Plan) -> Iterator[tuple[Format, str]]:
    """All formats of values, with where they are given; sinks' first, as they ask for more."""
    parts = plan.planned_parts
    for part in parts:
        yield from ((o.value, o.where) for o in part.operators if isinstance(o, Sink))
    for part in parts:
        yield from ((value, source.where) for source, value in part.sources.items())
    yield from ((table.value, table.source.where) for table in plan.shared)


def _within(error: FalkirkError, where: str) -> FalkirkError:
    return type(error)(error.what, where=f"{where}, {error.where}", hint=error.hint)
