"""Functions of the rows around each row, against DuckDB after each step."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.stream.operators.against import Change, Driven, changes
from tests.stream.operators.test_top_k import Reads
from tests.stream.sql.tables import COLUMNS, answered, plain, random_rows

import falkirk as fk
from falkirk.errors import DefinitionError, UserCodeError

SCHEMA = {"k": fk.Int64, "t": fk.Int64, "x": fk.Int64, "f": fk.Float64, "s": fk.String}
row = st.tuples(
    st.none() | st.integers(0, 1),
    st.none() | st.integers(-3, 6),
    st.none() | st.integers(-2, 2),
    st.none() | st.sampled_from([-1.5, 0.25, 8.0]),
    st.sampled_from(["", "a", "b"]),
)
UP = "t nulls last, x nulls first, f nulls first, s"
DOWN = "t desc nulls last, x nulls first, f nulls first, s"
SUMS: dict[str, Any] = {
    "n": fk.len(), "total": fk.sum("x"), "mean": fk.mean("f"), "low": fk.min("x"), "high": fk.max(fk.col("x") * 2),
    "any": fk.any(fk.col("x") > 1),
}  # fmt: skip
SUMS_SQL = [
    "count(*) OVER", "coalesce(sum(x) OVER, 0)", "avg(f) OVER", "min(x) OVER", "max(x * 2) OVER",
    "coalesce(bool_or(x > 1) OVER, false)",
]  # fmt: skip
PLACES: dict[str, Any] = {"n": fk.row_number(), "r": fk.rank(), "d": fk.dense_rank()}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "running": ({}, SUMS, f"over (partition by k order by {UP} rows unbounded preceding)"),
    "running down": (
        {"descending": True}, SUMS, f"over (partition by k order by {DOWN} rows unbounded preceding)",
    ),
    "rows 2": ({"rows": 2}, SUMS, f"over (partition by k order by {UP} rows between 2 preceding and current row)"),
    "range 2": (
        {"range": 2}, SUMS, "over (partition by k order by t nulls last range between 2 preceding and current row)",
    ),
    "all": ({"order_by": None}, SUMS, "over (partition by k)"),
    "rows from -1 to 2": (
        {"rows": (-1, 2)}, SUMS, f"over (partition by k order by {UP} rows between 1 preceding and 2 following)",
    ),
    "rows after": (
        {"rows": (0, 1), "descending": True}, SUMS,
        f"over (partition by k order by {DOWN} rows between current row and 1 following)",
    ),
    "range from -1 to 3": (
        {"range": (-1, 3)}, SUMS, "over (partition by k order by t nulls last range between 1 preceding and 3 following)",
    ),
    "range after": (
        {"range": (0, 1)}, SUMS, "over (partition by k order by t nulls last range between current row and 1 following)",
    ),
}  # fmt: skip


def tried(build: Any, steps: list[Change], query: str, *, retract: bool) -> None:
    driven = Driven(SCHEMA, build, retract=retract)
    for change in steps:
        assert driven.step(change) == driven.wanted(query)


@pytest.mark.parametrize("retract", [True, False])
@pytest.mark.parametrize("case", CASES)
@given(steps=changes(row))
@settings(max_examples=5, deadline=None)
def test_aggregates_of_frames_are_what_sql_gives(case: str, retract: bool, steps: list[Change]) -> None:
    options, functions, over = CASES[case]
    columns = ", ".join(f.replace("OVER", over) for f in SUMS_SQL)
    tried(
        lambda a: a.over("k", **{"order_by": "t", **options}).agg(**functions),
        steps,
        f"select *, {columns} from a",
        retract=retract,
    )


@pytest.mark.parametrize("retract", [True, False])
@pytest.mark.parametrize("case", ["all", "rows 2", "range from -1 to 3"])
@given(steps=changes(row))
@settings(max_examples=5, deadline=None)
def test_numbers_of_different_values_are_what_sql_gives(case: str, retract: bool, steps: list[Change]) -> None:
    options, _, over = CASES[case]
    columns = ", ".join(
        f"count(distinct coalesce({c}, {none})) {over}" for c, none in (("x", 99), ("f", 99), ("s", "''"))
    )
    tried(
        lambda a: a.over("k", **{"order_by": "t", **options}).agg(**{f"n_{c}": fk.n_unique(c) for c in "xfs"}),
        steps,
        f"select *, {columns} from a",
        retract=retract,
    )


@pytest.mark.parametrize("retract", [True, False])
@given(steps=changes(row))
@settings(max_examples=8, deadline=None)
def test_numbers_of_places_are_what_sql_gives(retract: bool, steps: list[Change]) -> None:
    query = f"""select *, row_number() over (partition by k order by {UP}),
        rank() over (partition by k order by t nulls last),
        dense_rank() over (partition by k order by t nulls last) from a"""
    tried(lambda a: a.over("k", order_by="t").agg(**PLACES), steps, query, retract=retract)


@pytest.mark.parametrize("function", ["lag", "lead"])
@given(steps=changes(row), n=st.integers(1, 3))
@settings(max_examples=8, deadline=None)
def test_shifts_are_what_sql_gives(function: str, n: int, steps: list[Change]) -> None:
    shift = {"lag": fk.lag, "lead": fk.lead}[function]
    query = f"select *, {function}(x + 1, {n}) over (partition by k order by {UP}) from a"
    tried(lambda a: a.over("k", order_by="t").agg(y=shift(fk.col("x") + 1, n)), steps, query, retract=True)


@pytest.mark.parametrize("size", [20, 2_000])
def test_a_change_reads_what_its_frames_need_and_not_the_key(size: int) -> None:
    for options, most in (
        ({"rows": 3}, 60), ({"range": 5}, 60), ({}, 30), ({"rows": (-3, 2)}, 90), ({"range": (-3, 6)}, 90),
    ):  # fmt: skip
        driven = Driven(SCHEMA, lambda a, o=options: a.over("k", order_by="t", **o).agg(n=fk.sum("x")), retract=True)
        driven.step([((1, 2 * t, 1, None, ""), 1) for t in range(size)])
        driven.state = reads = Reads(driven.state)  # type: ignore[assignment]
        # A running total is read and written from the change to its end.
        at = 2 * size - 5 if not options else size
        batch = driven.emitted([((1, at + 1, 1, None, "a"), 1)])
        assert batch is not None
        assert len(batch) <= 11
        assert reads.count <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("regime", "options"),
    [
        (fk.EagerCheckpoint(), {}),
        (fk.EagerCheckpoint(), {"rows": 1}),
        (fk.LazyCheckpoint(), {"range": 3}),
        (fk.LazyCheckpoint(), {"rows": (-1, 1)}),
    ],
)
def test_frames_are_the_same_after_crashes_everywhere(regime: Any, options: dict[str, Any]) -> None:
    rows = [{"id": i, "g": "ab"[i % 2], "t": t, "x": i} for i, t in enumerate([5, 1, 3, 2, 3, 8, 6, 12, 9, 7])]
    flow = fk.Flow("over", regime=regime)
    source: Any = flow.source("rows", value=fk.Json({"id": int, "g": str, "t": int, "x": int}))
    source = source.with_columns(id=fk.col("id") % 6).group_by("id").agg(x=fk.sum("x"), g=fk.max("g"), t=fk.min("t"))
    found = source.over("g", order_by="t", id="o", **options).agg(
        total=fk.sum("x"), place=fk.row_number(), before=fk.lag("x"), after=fk.lead("x")
    )
    found.sink("out", key=["g", "id"], value=fk.Json())
    app = fk.testing.run(flow, {"rows": rows}, crash_at="everywhere", step_rows=4)
    kept: dict[int, dict[str, Any]] = {}
    for each in rows:
        one = kept.setdefault(each["id"] % 6, {"id": each["id"] % 6, "x": 0, "g": "", "t": 99})
        one |= {"x": one["x"] + each["x"], "g": max(one["g"], each["g"]), "t": min(one["t"], each["t"])}
    for g in "ab":
        mine = sorted((one for one in kept.values() if one["g"] == g), key=lambda one: one["t"])
        for i, one in enumerate(mine):
            frame = [m for j, m in enumerate(mine) if j <= i]
            frame = frame[-2:] if options == {"rows": 1} else frame
            frame = mine[max(0, i - 1) : i + 2] if options == {"rows": (-1, 1)} else frame
            near = [m for m in mine if one["t"] - 3 <= m["t"] <= one["t"]]
            frame = near if options == {"range": 3} else frame
            one |= {"total": sum(m["x"] for m in frame), "place": i + 1}
            one |= {"before": mine[i - 1]["x"] if i else None, "after": mine[i + 1]["x"] if i + 1 < len(mine) else None}
    assert {row["id"]: row for row in app.sinks["out"].table.values()} == kept
    assert app.state("o").height == len(kept)


def test_rows_that_no_frame_needs_are_forgotten() -> None:
    flow = fk.Flow("over")
    rows = flow.source("rows", value=fk.Json({"g": str, "t": int, "x": int}), time="t", late="10ms")
    rows.over("g", order_by="t", range="20ms", id="o").agg(total=fk.sum("x")).sink(
        "out", key=["g", "t"], value=fk.Json()
    )
    given = [{"g": "ab"[i % 2], "t": 7 * i, "x": i} for i in range(1, 60)]
    app = fk.testing.run(flow, {"rows": given}, step_rows=5)
    last = 7 * 59
    assert app.state("o")["t"].min() >= last - 10 - 20
    assert app.state("o").height < 8
    wanted = {
        (row["g"], row["t"]): sum(o["x"] for o in given if o["g"] == row["g"] and row["t"] - 20 <= o["t"] <= row["t"])
        for row in given
    }
    assert {key: row["total"] for key, row in app.sinks["out"].table.items()} == wanted


def test_rows_are_forgotten_when_no_frame_that_can_change_needs_them() -> None:
    """A row that comes changes rows up to 15 ms before it, and these need rows up to 20 ms before them."""
    flow = fk.Flow("over")
    rows = flow.source("rows", value=fk.Json({"g": str, "t": int, "x": int}), time="t", late="10ms")
    found = rows.over("g", order_by="t", range=("-20ms", "15ms"), id="o").agg(total=fk.sum("x"))
    found.sink("out", key=["g", "t"], value=fk.Json())
    given = [{"g": "ab"[i % 2], "t": 7 * i + i % 3, "x": i} for i in range(1, 60)]
    app = fk.testing.run(flow, {"rows": given}, step_rows=5)
    last = max(row["t"] for row in given)
    assert last - 10 - 35 <= app.state("o")["t"].min() < last - 10 - 20  # type: ignore[operator]
    wanted = {
        (row["g"], row["t"]): sum(o["x"] for o in given if o["g"] == row["g"] and -20 <= o["t"] - row["t"] <= 15)
        for row in given
    }
    assert {key: row["total"] for key, row in app.sinks["out"].table.items()} == wanted


def test_a_pair_of_durations_is_a_range_of_times() -> None:
    flow = fk.Flow("over")
    rows = flow.source("rows", value=fk.Json({"id": int, "at": fk.DatetimeMicros, "x": int}))
    found = rows.over("id", order_by="at", range=("-1m", timedelta(seconds=30)), id="o").agg(
        n=fk.len(), x_sum=fk.sum("x")
    )
    found.sink("out", key=["id", "at"], value=fk.Json())
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    given = [{"id": 1, "at": begin + timedelta(seconds=s), "x": s} for s in (0, 30, 31, 90, 91)]
    table = fk.testing.run(flow, {"rows": given}, step_rows=1).sinks["out"].table
    assert [row["x_sum"] for row in table.values()] == [30, 61, 61, 242, 212]


def test_columns_over_rows_are_what_sql_gives() -> None:
    query = """select id, a, b * 2 as b, coalesce(sum(b) over (partition by a), 0) as total, b + 1 as next,
        rank() over (partition by s order by b desc nulls last) as r,
        max(b) over (partition by a order by id rows between 1 preceding and 1 following) as near from t"""
    rows = random_rows(40, 3)
    flow = fk.Flow("f")
    source = flow.source("t", value=fk.Json(COLUMNS)).select("id", "a", "b", "s")
    found = source.with_columns(
        total=fk.sum("b").over("a"), next=fk.col("b") + 1, b=fk.col("b") * 2,
        r=fk.rank().over("s", order_by="b", descending=True),
        near=fk.max("b").over("a", order_by="id", rows=(-1, 1)),
    )  # fmt: skip
    assert found.schema.names() == ["id", "a", "b", "s", "total", "next", "r", "near"]
    found.select("id", "a", "b", "total", "next", "r", "near").sink("out", key="id", value=fk.Json())
    table = fk.testing.run(flow, {"t": rows}, step_rows=7).sinks["out"].table
    out = [{n: plain(v) for n, v in row.items()} for row in table.values()]
    assert sorted(out, key=repr) == sorted(answered(query, t=rows), key=repr)


def test_columns_over_the_same_rows_are_one_operator() -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json(SCHEMA))
    found = rows.with_columns(
        n=fk.len().over("k"), total=fk.sum("x").over(["k"]), high=fk.max("x").over("k", order_by="t", id="o"),
        low=fk.min("x").over("k", order_by=["t"], rows=3),
    )  # fmt: skip
    assert [o.id for o in found._graph.operators if o.kind == "over"] == ["over.k", "o", "over.k.2"]
    assert found.schema.names() == [*SCHEMA, "n", "total", "high", "low"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda rows: rows.with_columns(n=fk.len()), 'is not row-wise\n.*\n.*fk.sum\\("price"\\).over\\("id"\\)'),
        (lambda rows: rows.with_columns(fk.len().over("k")), "is not row-wise"),
        (lambda rows: rows.select(n=fk.len().over("k")), "is not row-wise"),
        (lambda rows: rows.with_columns(x=fk.len().over("k")), "'x' is already a column"),
        (lambda rows: rows.with_columns(n=fk.len().over("nope")), "there is no column 'nope'"),
        (lambda rows: rows.with_columns(m=fk.col("n"), n=fk.len().over("k")), "there is no column 'n'"),
        (lambda rows: rows.with_columns(n=fk.rank().over("k")), "n is about the order of rows"),
        (lambda rows: rows.with_columns(n=fk.col("x") / fk.len().over("k")), "is not row-wise"),
        (lambda rows: rows.filter(fk.col("x") > fk.mean("x")), "is not row-wise"),
        (lambda rows: rows.with_columns(n=fk.len().over("k") / 2), "an expression cannot be made .*\n.*test_over.py"),
        (lambda rows: rows.filter(fk.rank().over("k", order_by="t") <= 3), "an expression cannot be made"),
        (lambda rows: rows.group_by("k").agg(n=fk.max("x") - fk.min("x")), "an expression cannot be made"),
        (lambda rows: rows.group_by("k").agg(n=100 * fk.len()), "an expression cannot be made"),
    ],
)
def test_what_is_no_column_is_refused(build: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        build(fk.Flow("f").source("rows", value=fk.Json(SCHEMA)))


def test_a_row_that_was_never_added_stops_the_app() -> None:
    driven = Driven(SCHEMA, lambda a: a.over("k", order_by="t").agg(n=fk.len()), retract=True)
    driven.inputs[0][(1, 1, 1, None, "")] = 1
    with pytest.raises(UserCodeError, match="is retracted, but was never added"):
        driven.step([((1, 1, 1, None, ""), -1)])


FAILING: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "a running total": ({"order_by": "t"}, fk.sum("x"), "beyond Int64", "group {'k': 1}"),
    "a total of a frame": ({"order_by": "t", "rows": 1}, fk.sum("x"), "beyond Int64", "group {'k': 1}"),
    "a total of all rows": ({}, fk.sum("x"), "beyond Int64", "group {'k': 1}"),
    "too many values": ({}, fk.collect("x", limit=1), "its limit is 1", "group {'k': 1}"),
    "an argument": ({}, fk.sum(fk.col("s").cast(fk.Int64)), "InvalidOperationError", "partition 0, offset 2"),
    "a neighbour": ({"order_by": "t"}, fk.lag(fk.col("s").cast(fk.Int64)), "InvalidOperationError", "offset 2"),
}


@pytest.mark.parametrize("regime", [fk.EagerCheckpoint(), fk.Batch()])
@pytest.mark.parametrize("case", FAILING)
def test_a_function_that_fails_names_the_key_or_the_row(case: str, regime: Any) -> None:
    options, function, what, where = FAILING[case]
    flow = fk.Flow("f", regime=regime)
    value = fk.Json({"k": fk.Int64, "t": fk.Int64, "x": fk.Int64, "s": fk.String})
    rows = flow.source("rows", key="k", value=value)
    rows.over("k", **options).agg(y=function).agg(n=fk.len()).sink("out", value=fk.Json())
    given = [{"k": k, "t": t, "x": 2**62, "s": s} for t, (k, s) in enumerate([(0, "1"), (1, "2"), (1, "?")])]
    with pytest.raises(UserCodeError) as caught:
        fk.testing.run(flow, {"rows": given})
    assert what in caught.value.what
    assert where in caught.value.where


@pytest.mark.parametrize(
    ("options", "functions", "message"),
    [
        ({"order_by": "nope"}, {"n": fk.len()}, "there is no column 'nope'"),
        ({"order_by": []}, {"n": fk.len()}, "no column to order by"),
        ({"order_by": "k"}, {"n": fk.len()}, "column 'k' is the same in the whole group"),
        (
            {"order_by": "t", "descending": [True, False]},
            {"n": fk.len()},
            "is not one value for each column of order_by",
        ),
        ({"order_by": "t", "rows": -1}, {"n": fk.len()}, "rows=-1 is not a number of rows"),
        ({"order_by": "t", "rows": (1, 2)}, {"n": fk.len()}, "rows=\\(1, 2\\) is not a number of rows"),
        ({"order_by": "t", "rows": (-2, -1)}, {"n": fk.len()}, "is not a number of rows"),
        ({"order_by": "t", "rows": (-2, 1, 0)}, {"n": fk.len()}, "is not a number of rows"),
        ({"order_by": "t", "range": ("1m", "2m")}, {"n": fk.len()}, "range=\\('1m', '2m'\\) is not a range of 't'"),
        ({"order_by": "t", "range": ("-1m", "-1s")}, {"n": fk.len()}, "range='-1s' is not a duration"),
        ({"order_by": "t", "range": (-1, None)}, {"n": fk.len()}, "is not a range of 't'"),
        ({"rows": 1}, {"n": fk.len()}, "rows without an order have no neighbours"),
        ({}, {"n": fk.row_number()}, "n is about the order of rows"),
        ({"order_by": "t", "rows": 1, "range": 1}, {"n": fk.len()}, "here are both"),
        ({"order_by": "t", "range": "x"}, {"n": fk.len()}, "range='x' is not a duration"),
        ({"order_by": "t", "range": -1}, {"n": fk.len()}, "range=-1 is not a range"),
        ({"order_by": "f", "range": 1}, {"n": fk.len()}, "a range is of times or integers"),
        ({"order_by": ["t", "x"], "range": 1}, {"n": fk.len()}, "a range is of one column"),
        ({"order_by": "t"}, {}, "agg\\(\\) has no functions"),
        ({"order_by": "t"}, {"x": fk.len()}, "'x' is already a column"),
        ({"order_by": "t"}, {"n": 3}, "n=3 is not a function of a frame"),
        ({"order_by": "t"}, {"n": fk.lag("x", 0)}, "n=0 is not a number of rows"),
        ({"order_by": "t"}, {"n": fk.collect("x")}, "n cannot run on from row to row"),
        ({"order_by": "t"}, {"n": fk.n_unique("x")}, "n cannot run on from row to row"),
        ({"order_by": fk.col("t")}, {"n": fk.len()}, "is not a column name"),
        ({"order_by": [-fk.col("t")]}, {"n": fk.len()}, "is not a column name"),
        ({"order_by": "t"}, {"n": fk.Aggregate}, "n=Aggregate is a class, and no aggregate"),
    ],
)
def test_what_has_no_frame_is_refused(options: dict[str, Any], functions: dict[str, Any], message: str) -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json(SCHEMA))
    with pytest.raises(DefinitionError, match=message):
        rows.over("k", **options).agg(**functions)


def test_a_place_is_no_aggregate_of_a_group() -> None:
    rows = fk.Flow("f").source("rows", value=fk.Json(SCHEMA))
    with pytest.raises(DefinitionError, match="is about the order of rows, and a group has none"):
        rows.group_by("k").agg(n=fk.row_number())
