"""What `migrate=` says, checked: an operator, with the operators that it was.

An earlier version is held as the operator that it was: what its words are, and how its rows are laid out, is asked of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

import polars as pl

from falkirk.errors import DefinitionError
from falkirk.state.codec import check_value_type
from falkirk.stream import operators as op
from falkirk.stream.aggregates.bound import Bound, Context
from falkirk.stream.blame import did_you_mean
from falkirk.stream.earlier import From, Function, Migrate
from falkirk.stream.formats.types import schema_of
from falkirk.stream.functions import checked_function
from falkirk.stream.regimes import EagerCheckpoint
from falkirk.stream.tables import GROUPS, bounds, group_schema, multiset_bounds, state_words

Keeping = op.Group | op.Processing
_O = TypeVar("_O", bound=Keeping)


def migrated(now: _O, migrate: Migrate) -> _O:
    """The operator, with its earlier versions. Raises DefinitionError where one does not lead to the next."""
    given: list[Any] = [migrate] if isinstance(migrate, From) else list(migrate)
    if not given:
        return now
    where = f"migrate= of {now.where}"
    if wrong := [one for one in given if not isinstance(one, From)]:
        raise DefinitionError(f"{wrong[0]!r} is no earlier version", where=where, hint="migrate=fk.From(1, …, by=…)")
    if not isinstance(now.regime, EagerCheckpoint):
        raise DefinitionError(
            f"state of the {now.regime.kind} regime cannot be migrated: only an eager stage logs what becomes of it",
            where=where,
            hint="leave migrate= out, and give the flow another name: it then starts from scratch",
        )
    chain: list[Keeping] = [*(_was(now, one, f"version {one.version} in {where}") for one in given), now]
    words = [state_words(one) for one in chain]
    if twice := [one for one, said in zip(given, words, strict=False) if words.count(said) > 1]:
        raise DefinitionError(
            f"version {twice[0].version} is there twice: the same number, and the same columns",
            where=where,
            hint="raise version= with each change",
        )
    found = zip(given, pairwise(chain), strict=True)
    return replace(now, earlier=tuple(_earlier(one, *pair, f"version {one.version} in {where}") for one, pair in found))


def _earlier(one: From, was: Keeping, now: Keeping, where: str) -> op.Earlier:
    main = GROUPS if isinstance(now, op.Group) else "state"
    by: dict[str, Any] = {} if one.by is None else dict(one.by) if isinstance(one.by, Mapping) else {main: one.by}
    for function in by.values():
        checked_function(function, where)
    if isinstance(was, op.Group) and isinstance(now, op.Group):
        _check_group(was, now, by, where)
    elif isinstance(was, op.Processing) and isinstance(now, op.Processing):
        _check_process(was, now, by, where)
    return op.Earlier(was, by)


def _was(now: Keeping, one: From, where: str) -> Keeping:
    if isinstance(now, op.Group):
        if not one.agg or one.state is not None or one.tables:
            raise DefinitionError(
                "it does not say which aggregates there were", where=where, hint='agg={"n": fk.len()}'
            )
        before = now.inputs[0]
        bound = {n: a.bind(Context(n, before.schema, before.changes, where)) for n, a in one.agg.items()}
        was = replace(now, version=one.version, aggregates=bound)
        _check_types(group_schema(was), where)
        return was
    if one.agg is not None:
        raise DefinitionError("a process has no aggregates", where=where, hint='state={"seen": bool}')
    given = {**({} if one.state is None else {"state": one.state}), **one.tables}
    tables = {table: schema_of(spec) for table, spec in given.items()}
    for table, schema in tables.items():
        _check_types(schema, f"table {table!r} of {where}")
    return replace(now, version=one.version, tables=tables)


def _check_types(schema: pl.Schema, where: str) -> None:
    for column, dtype in schema.items():
        check_value_type(dtype, where=f"column {column!r} of {where}")


def _check_process(was: op.Processing, now: op.Processing, by: Mapping[str, Function], where: str) -> None:
    both = was.tables.keys() & now.tables.keys()
    if unknown := sorted(by.keys() - both):
        raise DefinitionError(
            f"`by` is for table {unknown[0]!r}, which is not in both versions",
            where=where,
            hint=did_you_mean(unknown[0], both),
        )
    if changed := sorted(t for t in both - by.keys() if was.tables[t] != now.tables[t]):
        raise DefinitionError(
            f"table {changed[0]!r} has other columns in the version after it, and nothing says how to come by them",
            where=where,
            hint=f'by={{"{changed[0]}": function}}',
        )


def _check_group(was: op.Group, now: op.Group, by: Mapping[str, Function], where: str) -> None:
    if by.keys() - {GROUPS}:
        raise DefinitionError("`by` of a group is one function", where=where, hint="by=function")
    kept = {b.name for b in kept_aggregates(was, now)}
    if (lost := next((b.name for b in multiset_bounds(now) if b.name not in kept), None)) is not None:
        raise DefinitionError(
            f"{lost!r} needs every value of a group, for rows that are taken back, and the version before it "
            "has not kept them",
            where=where,
            hint="make it in a grouping of its own, with another id=",
        )
    if not by and (other := sorted((was.aggregates.keys() & now.aggregates.keys()) - kept)):
        raise DefinitionError(
            f"{other[0]!r} is another aggregate in the version after it, and nothing says how to come by its parts",
            where=where,
            hint="by=function, from the parts of before to the new ones; or give it another name, and it begins empty",
        )


def kept_aggregates(was: op.Group, now: op.Group) -> list[Bound]:
    """Those of `now` whose parts are what they were."""
    before = {b.name: b for b in bounds(was)}
    return [
        b for b in bounds(now) if (old := before.get(b.name)) and (old.words, old.states()) == (b.words, b.states())
    ]
