"""What `migrate=` says, checked: an operator, with the operators that it was.

An earlier version is held as the operator that it was: what its words are, and how its rows are laid out, is asked of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.earlier import From, Migrate
from falkirk.stream.dataflow.operator import Earlier, Operator
from falkirk.stream.definition.functions import checked_function

_O = TypeVar("_O", bound=Operator)


def migrated(now: _O, migrate: Migrate) -> _O:
    """The operator, with its earlier versions. Raises DefinitionError where one does not lead to the next."""
    given: list[Any] = [migrate] if isinstance(migrate, From) else list(migrate)
    if not given:
        return now
    where = f"migrate= of {now.where}"
    if wrong := [one for one in given if not isinstance(one, From)]:
        raise DefinitionError(
            f"{wrong[0]!r} is not an earlier version", where=where, hint="migrate=fk.From(1, …, by=…)"
        )
    if not now.regime.recovery.logs_changes:
        raise DefinitionError(
            f"state of the {now.regime.kind} regime cannot be migrated: only an eager stage logs what becomes of it",
            where=where,
            hint="leave migrate= out, and give the flow another name: it then starts from scratch",
        )
    chain: list[Operator] = [*(now.was(one, f"version {one.version} in {where}") for one in given), now]
    words = [one.state_words() for one in chain]
    if twice := [one for one, said in zip(given, words, strict=False) if words.count(said) > 1]:
        raise DefinitionError(
            f"version {twice[0].version} is there twice: the same number, and the same columns",
            where=where,
            hint="raise version= with each change",
        )
    found = zip(given, pairwise(chain), strict=True)
    return replace(now, earlier=tuple(_earlier(one, *pair, f"version {one.version} in {where}") for one, pair in found))


def _earlier(one: From, was: Operator, now: Operator, where: str) -> Earlier:
    by: dict[str, Any] = (
        {} if one.by is None else dict(one.by) if isinstance(one.by, Mapping) else {now.main_table: one.by}
    )
    for function in by.values():
        checked_function(function, where)
    now.check_earlier(was, by, where)
    return Earlier(was, by)
