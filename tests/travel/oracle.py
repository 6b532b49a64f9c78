"""The example of travel, loaded as it is, and what it must answer: by a search in plain Python, and by Polars."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import polars as pl

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOW = f"{EXAMPLES / 'travel' / 'app.py'}:flow"
FEW = 3
"""The most flights, one after the other, that an answer counts."""

COLUMNS = ("origin", "dest", "flights", "delay", "legs")
Pair = tuple[str, str]
"""Origin and destination."""
Told = dict[str, Any]
"""What somebody was told: a value for each of the columns."""


def module(path: str) -> ModuleType:
    """A file of the examples, which imports nothing that lies beside it."""
    name = path.replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{path}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


client, data = module("travel/ask"), module("flights/data")


@cache
def flights() -> pl.DataFrame:
    """All flights, in their order."""
    return data.flights().select("carrier", "origin", "dest", "delay")


class Usual(NamedTuple):
    """Of a route."""

    flights: int | None = None
    delay: float | None = None


def usual(frame: pl.DataFrame) -> dict[Pair, Usual]:
    """What is usual on each route. A sum of whole minutes is exact, so there is one right mean to the last bit."""
    delay = pl.col("delay")
    found = frame.group_by("origin", "dest").agg(flights=pl.len(), sum=delay.sum(), flown=delay.count())
    return {(o, d): Usual(n, total / flown if flown else None) for o, d, n, total, flown in found.iter_rows()}


def routes(frame: pl.DataFrame) -> set[Pair]:
    """The routes that were flown: a cancelled flight has no delay."""
    return set(frame.filter(pl.col("delay").is_not_null()).select("origin", "dest").iter_rows())


def legs(flown: Iterable[Pair]) -> dict[Pair, int]:
    """The fewest flights from one airport to another, up to `FEW`, if each route is flown in both directions."""
    ways: dict[str, set[str]] = {}
    for a, b in flown:
        ways.setdefault(a, set()).add(b)
        ways.setdefault(b, set()).add(a)
    found: dict[Pair, int] = {}
    for start in ways:
        seen, here = {start}, {start}
        for count in range(1, FEW + 1):
            here = {there for airport in here for there in ways[airport]} - seen
            seen |= here
            found |= {(start, there): count for there in here}
    return found


def airports(frame: pl.DataFrame) -> list[str]:
    """All of them, cancelled flights' too."""
    return sorted({*frame["origin"], *frame["dest"]})


def answer(pair: Pair, known: dict[Pair, Usual], near: dict[Pair, int]) -> Told:
    """What somebody must be told who asks for this pair."""
    flights_, delay = known.get(pair, Usual())
    return {"origin": pair[0], "dest": pair[1], "flights": flights_, "delay": delay, "legs": near.get(pair)}


def allowed(found: Told, epochs: Sequence[dict[Pair, Usual]], near: dict[Pair, int]) -> bool:
    """Whether an answer is that of some of the flights, and of one of the epochs or of none. `near` is by all flights: with
    fewer, an airport is as far or further."""
    pair = found["origin"], found["dest"]
    as_usual = (found["flights"], found["delay"]) in {Usual(), *(known.get(pair, Usual()) for known in epochs)}
    return as_usual and (found["legs"] is None or near.get(pair, FEW + 1) <= found["legs"] <= FEW)


def compare(rows: list[tuple[Any, ...]], asked: list[tuple[Any, ...]], told: dict[str, Told]) -> None:
    """Raises AssertionError unless the tables say exactly what clients were told, by key. `rows`: request, origin, dest,
    flights, delay, legs. `asked`: origin, questions, unknown."""
    written = {row[0]: dict(zip(COLUMNS, row[1:], strict=True)) for row in rows}
    assert Counter(row[0] for row in rows) == dict.fromkeys(told, 1), "lost, doubled or never asked"
    assert written == told
    questions = Counter(found["origin"] for found in told.values())
    unknown = Counter(found["origin"] for found in told.values() if found["legs"] is None)
    assert sorted(asked) == [(origin, n, unknown[origin]) for origin, n in sorted(questions.items())]
