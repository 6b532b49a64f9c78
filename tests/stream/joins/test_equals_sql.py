"""After every step, what a join has given so far is what DuckDB makes of all rows so far."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.joins.task import JoinTask, joined_by

NAN = float("nan")
KEYS: dict[str, tuple[Any, list[Any]]] = {
    "integers": (pl.Int64(), [None, 0, 1, 2]),
    "floats": (pl.Float64(), [None, NAN, 0.0, -0.0, 1.5]),
    "texts": (pl.String(), [None, "", "a", "ü"]),
}
DATABASE = duckdb.connect(config={"threads": 1})
SQL = {
    "inner": "select l.k, l.v, r.v as v_right from l join r on l.k = r.k",
    "left": "select l.k, l.v, r.v as v_right from l left join r on l.k = r.k",
    "right": "select l.v, r.k, r.v as v_right from l right join r on l.k = r.k",
    "full": "select coalesce(l.k, r.k) as k, l.v, r.v as v_right from l full join r on l.k = r.k",
    "semi": "select l.k, l.v from l semi join r on l.k = r.k",
    "anti": "select l.k, l.v from l anti join r on l.k = r.k",
}


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("how", SQL)
@settings(max_examples=8)
@given(rng=st.randoms(use_true_random=False), steps=st.integers(1, 6))
def test_after_each_step_the_sum_of_the_output_is_what_sql_gives(
    how: Any, keys: str, rng: random.Random, steps: int
) -> None:
    dtype, values = KEYS[keys]
    task, given = JoinTask(*joined_by(how, dtype)), (Counter[Any](), Counter[Any]())
    names = {id(value): value for value in values}
    total: Counter[Any] = Counter()
    for _ in range(steps):
        changes = []
        for side in given:
            change: list[tuple[Any, ...]] = []
            for _ in range(rng.randint(0, 6)):
                if rng.random() < 0.4 and (there := [row for row, n in side.items() if n > 0]):
                    row, weight = rng.choice(there), -1
                else:
                    row, weight = (id(rng.choice(values)), rng.choice([None, 0, 1])), rng.choice([1, 1, 2])
                side[row] += weight
                change.append((names[row[0]], row[1], weight))
            changes.append(change)
        for *row, weight in task.step(*changes):
            total[same(row)] += weight
        assert {row: n for row, n in total.items() if n} == answer(how, dtype, names, given)


def answer(how: str, dtype: pl.DataType, names: dict[int, Any], given: tuple[Counter[Any], Counter[Any]]) -> Any:
    """What DuckDB says of these rows, as a Z-set."""
    schema = {"k": dtype, "v": pl.Int64()}
    left, right = (
        pl.DataFrame([(names[k], v) for (k, v), n in side.items() for _ in range(n)], schema, orient="row")
        for side in given
    )
    DATABASE.register("l", left.to_arrow())
    DATABASE.register("r", right.to_arrow())
    return dict(Counter(same(row) for row in DATABASE.execute(SQL[how]).fetchall()))


def same(row: Any) -> tuple[Any, ...]:
    """Values that are equal in SQL are equal in Python."""
    return tuple("NaN" if isinstance(value, float) and value != value else value for value in row)
