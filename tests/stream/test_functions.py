"""Functions that no step can call are refused where they are given."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, ClassVar

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError
from falkirk.stream.flow.streams import Stream


async def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"n": 2 * row["n"]}


async def twice(row: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield row
    yield row


async def later(first: int, row: dict[str, Any]) -> dict[str, Any]:
    return {"n": first + row["n"]}


class Doubler:
    async def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return row


class Waits(fk.Process):
    async def on_row(self, row: Any, key: Any) -> Any:
        return row


class WaitsForTimers(fk.Process):
    def on_row(self, row: Any, key: Any) -> Any:
        return row

    async def on_timer(self, timer: Any, key: Any) -> Any:
        return None


class Slow(fk.Aggregate):
    state: ClassVar[Any] = {"n": int}
    returns: ClassVar[Any] = int

    async def add(self, state: Any, *columns: Any) -> Any:
        return state

    def result(self, state: Any) -> Any:
        return state["n"]


REFUSED: dict[str, Callable[[Stream], Any]] = {
    "map": lambda s: s.map(doubled),
    "flat_map": lambda s: s.flat_map(twice),
    "map_batches": lambda s: s.map_batches(doubled),
    "partial": lambda s: s.map(partial(later, 1)),
    "object": lambda s: s.map(Doubler()),
    "process": lambda s: s.key_by("n").process(doubled),
    "on_row": lambda s: s.key_by("n").process(Waits()),
    "on_timer": lambda s: s.key_by("n").process(WaitsForTimers()),
    "aggregate": lambda s: s.group_by("n").agg(x=Slow("n")),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_async_is_refused_with_a_hint(what: str) -> None:
    numbers = fk.Flow("async").source("numbers", value=fk.Json({"n": fk.Int64}))
    with pytest.raises(DefinitionError, match="is async, and a step cannot wait for a coroutine") as error:
        REFUSED[what](numbers)
    assert "write it with def" in error.value.hint
    assert "test_functions.py:" in error.value.where


def test_a_predicate_is_an_expression_and_no_function() -> None:
    numbers = fk.Flow("async").source("numbers", value=fk.Json({"n": fk.Int64}))
    with pytest.raises(DefinitionError):
        numbers.filter(doubled)  # type: ignore[arg-type]


def test_what_is_not_async_is_as_before() -> None:
    numbers = fk.Flow("sync").source("numbers", value=fk.Json({"n": fk.Int64}))
    numbers.map(lambda row: row).map(partial(dict)).sink("same", value=fk.Json())


def leave(*_: Any) -> Any:
    sys.exit("no more")


async def leave_later(row: dict[str, Any]) -> dict[str, Any]:
    sys.exit("no more")


class Leaves(fk.Aggregate):
    state: ClassVar[Any] = {"n": int}
    returns: ClassVar[Any] = int

    def add(self, state: Any, *columns: Any) -> Any:
        sys.exit("no more")

    def result(self, state: Any) -> Any:
        return state["n"]


LEAVING: dict[str, Callable[[Stream], Stream]] = {
    "map": lambda s: s.map(leave),
    "flat_map": lambda s: s.flat_map(leave),
    "map_batches": lambda s: s.map_batches(leave),
    "process": lambda s: s.key_by("n").process(leave, id="leaving"),
    "enrich": lambda s: s.enrich(leave_later, returns={"m": int}),
    "aggregate": lambda s: s.group_by("n", id="leaving").agg(x=Leaves("n")),
}


@pytest.mark.parametrize("what", LEAVING)
def test_a_function_that_exits_is_an_error_with_the_address_of_the_record(what: str) -> None:
    flow = fk.Flow("leaving")
    numbers = flow.source("numbers", key="n", value=fk.Json({"n": fk.Int64}))
    LEAVING[what](numbers).sink("out", key="n", value=fk.Json())
    with pytest.raises(UserCodeError, match="raised SystemExit: no more") as error:
        fk.testing.run(flow, {"numbers": [{"n": 7}]})
    assert "numbers" in error.value.where


def test_a_row_whose_function_exits_can_become_a_dead_letter() -> None:
    flow = fk.Flow("leaving", on_error=fk.DeadLetter())
    numbers = flow.source("numbers", key="n", value=fk.Json({"n": fk.Int64}))
    numbers.map(lambda row: row if row["n"] else leave()).sink("out", key="n", value=fk.Json())
    result = fk.testing.run(flow, {"numbers": [{"n": 0}, {"n": 7}]})
    assert [letter["reason"] for letter in result.dead_letters] == ["SystemExit: no more"]
    assert result.sinks["out"].rows == [{"n": 7}]


@pytest.mark.parametrize(("given", "words"), [(None, "not None"), ({"n": 1}, "not one dict")])
def test_a_flat_map_that_gives_no_rows_says_what_it_gives(given: Any, words: str) -> None:
    flow = fk.Flow("flow")
    numbers = flow.source("numbers", value=fk.Json({"n": int}))
    numbers.flat_map(lambda row: given).sink("out", value=fk.Json())
    with pytest.raises(UserCodeError, match=f"flat_map gives an iterable of dicts, {words}"):
        fk.testing.run(flow, {"numbers": [{"n": 1}]})
