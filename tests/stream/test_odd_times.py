"""Times that Python does not have, or that are in no calendar: the row fails, with its address, and others do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import UserCodeError

Build = Callable[[fk.Stream], fk.Stream]
YEAR_10000, FARTHEST = 253_402_300_800_000, 2**63 - 1


async def answer(row: dict[str, Any]) -> dict[str, Any]:
    return {"year": row["at"].year}


IN_PYTHON: list[Build] = [
    lambda rows: rows.map(lambda row: row),
    lambda rows: rows.flat_map(lambda row: [row]),
    lambda rows: rows.key_by("id").process(lambda row, key: row, id="p"),
    lambda rows: rows.enrich(answer, returns={"year": int}),
]
WITHOUT: list[Build] = [
    lambda rows: rows,
    lambda rows: rows.with_columns(month=fk.col("at").dt.month()),
    lambda rows: rows.filter(fk.col("at").dt.offset_by("1mo") > fk.col("at")),
    lambda rows: rows.map_batches(lambda frame: frame.with_columns(at=frame["at"].dt.offset_by("1mo"))),
]
CASES = [(build, at) for build in IN_PYTHON for at in (YEAR_10000, FARTHEST)] + [(build, FARTHEST) for build in WITHOUT]


def flow_of(build: Build, **options: Any) -> tuple[fk.Flow, fk.Stream]:
    flow = fk.Flow("f", **options)
    rows = flow.source("in", key="id", value=fk.Json({"id": int, "millis": int}))
    return flow, build(rows.select("id", at=fk.col("millis").cast(fk.Datetime)))


@pytest.mark.parametrize(("build", "at"), CASES)
def test_the_error_names_the_row(build: Build, at: int) -> None:
    flow, rows = flow_of(build)
    rows.sink("out", value=fk.Json())
    with pytest.raises(UserCodeError, match="partition 0, offset 1"):
        fk.testing.run(
            flow, {"in": [{"id": 1, "millis": 0}, {"id": 2, "millis": at}, {"id": 3, "millis": 1}]}, step_rows=3
        )


@pytest.mark.parametrize(("build", "at"), CASES)
def test_other_rows_go_on(build: Build, at: int) -> None:
    flow, rows = flow_of(build, on_error=fk.DeadLetter())
    rows.sink("out", value=fk.Json())
    given = [{"id": 1, "millis": 0}, {"id": 2, "millis": at}, {"id": 3, "millis": 1}]
    app = fk.testing.run(flow, {"in": given}, step_rows=3)
    assert [row["id"] for row in app.sinks["out"].rows] == [1, 3]
    assert [letter["offset"] for letter in app.dead_letters] == [1]


class Latest(fk.Aggregate):
    state = {"at": fk.Datetime}  # noqa: RUF012
    returns = fk.Datetime

    def add(self, state: Any, *columns: list[Any]) -> Any:
        return {"at": max(columns[0])}

    def result(self, state: Any) -> Any:
        return state["at"]


@pytest.mark.parametrize("at", [YEAR_10000, FARTHEST])
def test_an_aggregate_of_the_users_names_the_group(at: int) -> None:
    flow, rows = flow_of(lambda rows: rows.group_by("id", id="g").agg(last=Latest("at")))
    rows.sink("out", key="id", value=fk.Json())
    with pytest.raises(UserCodeError, match=r"Latest is given a value that Python does not have[\s\S]*'id': 2"):
        fk.testing.run(flow, {"in": [{"id": 1, "millis": 0}, {"id": 2, "millis": at}]}, step_rows=2)


def test_a_time_in_no_calendar_cannot_be_a_key() -> None:
    flow, rows = flow_of(lambda rows: rows.group_by("at", id="g").agg(n=fk.len()))
    rows.sink("out", key="at", value=fk.Json())
    with pytest.raises(UserCodeError, match=r"a time in at is in no calendar\s+where: group_by .g.*offset 1"):
        fk.testing.run(flow, {"in": [{"id": 1, "millis": 0}, {"id": 2, "millis": FARTHEST}]}, step_rows=2)
