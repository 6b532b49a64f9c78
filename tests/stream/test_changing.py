"""A flow that goes on changed: what is refused before anything changes, and what is still right afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import FalkirkError

Define = Callable[[fk.Stream], object]
ORDER = {"k": fk.String, "o": fk.Int64, "v": fk.Int64, "at": fk.Int64}
JSON = fk.Json()


def orders(*rows: tuple[str, int, int, int]) -> list[dict[str, Any]]:
    return [dict(zip(ORDER, row, strict=True)) for row in rows]


FIRST = orders(("a", 1, 10, 1_000), ("a", 2, 20, 1_500), ("b", 2, 20, 61_000), ("a", 3, 30, 125_000))
THEN = orders(("a", 4, 5, 130_000), ("c", 5, 7, 131_000))


def flow(define: Define, name: str = "orders", **source: Any) -> fk.Flow:
    made = fk.Flow("app")
    define(made.source(name, **{"topic": "orders", "key": "k", "value": fk.Json(ORDER), **source}))
    return made


def started(now: fk.Flow, *, steps: int | None = None) -> fk.testing.App:
    app = fk.testing.App(now)
    app.send(app_source(now), FIRST)
    if steps is None:
        app.run()
    for _ in range(steps or 0):
        app.step()
    return app


def app_source(now: fk.Flow) -> str:
    return now.plan().stages[0].inputs[0].id


def total(*columns: str, key: Any = None, **more: Any) -> Define:
    return lambda rows: (
        rows.group_by(*columns, id="g", **more).agg(s=fk.sum("v")).sink("out", key=key or list(columns), value=JSON)
    )


def refused(app: fk.testing.App, now: fk.Flow, words: str, **options: Any) -> FalkirkError:
    """It says so before anything changes: the flow of before goes on."""
    with pytest.raises(FalkirkError, match=words) as raised:
        app.change(now, **options)
    return raised.value


@pytest.mark.parametrize("rebuild", [[], ["g"]])
def test_a_group_with_a_key_that_needs_an_exchange_is_refused_in_words(rebuild: list[str]) -> None:
    app = started(flow(total("k")))
    error = refused(app, flow(total("o")), "the inputs of stage 'g' have changed", rebuild=rebuild)
    assert "it reads falkirk.app.edge.g, and did not" in error.what


def apart(lazy: bool) -> Define:
    """A group, and rows that are copied, perhaps by a stage of their own."""

    def define(rows: fk.Stream) -> None:
        total("k")(rows)
        copied = rows.with_regime(fk.LazyCheckpoint()) if lazy else rows
        copied.filter(fk.col("v") > 0).sink("copies", value=JSON)

    return define


def test_a_sink_that_another_stage_would_write_from_the_beginning_again_is_refused() -> None:
    app = started(flow(apart(lazy=False)))
    error = refused(
        app, flow(apart(lazy=True)), "'copies' was written by stage 'g', and would be written by the new stage"
    )
    assert "reads 'orders' from where start= says" in error.what
    app.send("orders", THEN)
    app.run()
    assert len(app.sinks["copies"].rows) == len(FIRST + THEN)


def test_rows_between_stages_that_another_stage_would_send_from_the_beginning_again_are_refused() -> None:
    def sent(lazy: bool) -> Define:
        def define(rows: fk.Stream) -> None:
            total("k")(rows)
            sent = rows.with_regime(fk.LazyCheckpoint()) if lazy else rows
            sent = sent.filter(fk.col("v") > 0).repartition("o", id="by-o")
            sent.with_regime(fk.EagerCheckpoint()).group_by("o", id="h").agg(n=fk.len()).sink("n", key="o", value=JSON)

        return define

    refused(started(flow(sent(lazy=False))), flow(sent(lazy=True)), "was written by stage 'g'")


def test_a_sink_may_move_behind_an_exchange_of_its_stage() -> None:
    def copied(exchanged: bool) -> Define:
        def define(rows: fk.Stream) -> None:
            total("k")(rows)
            (rows.repartition("o") if exchanged else rows).filter(fk.col("v") > 0).sink("copies", value=JSON)

        return define

    app = started(flow(copied(exchanged=False)))
    app.change(flow(copied(exchanged=True)))
    app.send("orders", THEN)
    app.run()
    assert len(app.sinks["copies"].rows) == len(FIRST + THEN)


def windows(size: str = "1m") -> Define:
    return lambda rows: (
        rows.group_by("k", fk.tumbling("at", size), id="g")
        .agg(n=fk.len())
        .sink("out", key=["k", "window_start"], value=JSON)
    )


TIMED = {"time": "at", "late": "10s"}
OTHER_KEYS: dict[str, tuple[fk.Flow, fk.Flow]] = {
    "another column": (flow(total("k")), flow(total("k", "o"))),
    "a column less": (flow(total("k", "o")), flow(total("k"))),
    "a column less, before one of its type": (flow(total("k", "o", "v", key=["k", "o", "v"])), flow(total("k", "v"))),
    "another order": (flow(total("k", "o")), flow(total("o", "k"))),
    "another order of one type": (flow(total("k", "o", "v")), flow(total("k", "v", "o", key=["k", "o", "v"]))),
    "another type": (
        flow(total("k", "o")),
        flow(lambda rows: total("k", "o")(rows.with_columns(o=fk.col("o").cast(fk.String)))),
    ),
    "no group before": (
        flow(lambda rows: rows.group_by("k", id="g").top_k(1, by="v").sink("out", key="k", value=JSON)),
        flow(total("k")),
    ),
    "windows that are completed": (flow(windows()), flow(windows(), **TIMED)),
}


@pytest.mark.parametrize("what", OTHER_KEYS)
def test_a_group_with_other_keys_is_not_rebuilt_into_the_same_sink(what: str) -> None:
    before, now = OTHER_KEYS[what]
    app = started(before)
    refused(app, now, "has its groups under other keys than before", rebuild=["g"])
    app.send("orders", THEN)
    app.run()


def test_what_was_a_group_and_is_none_now_is_not_rebuilt() -> None:
    """Its records would stay in the sink: no record of the new operator takes them back."""
    app = started(flow(total("k", "o")))
    best = flow(
        lambda rows: rows.group_by("k", id="g").top_k(1, by="v").select("k", "v").sink("out", key="k", value=JSON)
    )
    refused(app, best, "'g' was a group, and is none now", rebuild=["g"])
    app.change(best, drop=["g"])
    app.run()


def test_a_group_whose_keys_have_other_names_and_more_bits_is_rebuilt() -> None:
    short = fk.Json({**ORDER, "o": fk.Int32})
    app = started(flow(total("k", "o"), value=short))
    app.change(flow(lambda rows: total("k", "p")(rows.select("k", "v", p="o"))), rebuild=["g"])
    app.send("orders", THEN)
    app.run()
    assert app.sinks["out"].table == {
        (row["k"], row["o"]): {"k": row["k"], "p": row["o"], "s": row["v"]} for row in FIRST + THEN
    }


def test_windows_of_another_size_are_rebuilt() -> None:
    app = started(flow(windows(), **TIMED))
    app.change(flow(windows("2m"), **TIMED), rebuild=["g"])
    app.run()
    assert ("a", 120_000) in app.sinks["out"].table


def test_a_group_is_not_rebuilt_from_rows_that_were_sent_without_a_column_that_it_needs_now() -> None:
    """Once the layout said so, there was no way back: the task stopped at the first of them."""
    counted = flow(lambda rows: rows.group_by("o", id="g").agg(n=fk.len()).sink("out", key="o", value=JSON))
    app = started(counted)
    refused(app, flow(total("o")), "g cannot be rebuilt: rows .* do not have the column 'v'", rebuild=["g"])
    app.send("orders", THEN)
    app.run()
    app.change(flow(total("o", migrate=fk.From(1, agg={"n": fk.len()}), version=2)))
    app.send("orders", THEN)
    app.run()
    refused(app, flow(total("o", version=3)), "do not have the column 'v'", rebuild=["g"])
    app.change(flow(total("o", version=3)), drop=["g"])
    app.send("orders", THEN)
    app.run()


def exchanged(*columns: str, types: Any = None, rows: Any = None) -> Define:
    return lambda before: (
        before.select("o", *columns, **(types or {}))
        .repartition("o", id="by-o")
        .filter(fk.col("o") > 0)
        .sink("out", key="o", value=JSON)
    )


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (exchanged("v", "at"), exchanged("v")),
        (exchanged("v", types={"at": fk.col("at").cast(fk.Int32)}), exchanged("v", "at")),
        (exchanged("v", "at"), exchanged("at", "v")),
    ],
    ids=["a column less", "a number with more bits", "another order"],
)
def test_rows_that_wait_between_stages_are_read_with_those_of_the_changed_flow(before: Define, now: Define) -> None:
    app = fk.testing.App(flow(before), step_rows=2)
    app.send("orders", FIRST)
    app.step()  # rows wait
    app.change(flow(now))
    app.send("orders", THEN)
    app.step_rows = None
    app.run()
    assert sorted((row["o"], row["v"]) for row in app.sinks["out"].rows) == sorted(
        (r["o"], r["v"]) for r in FIRST + THEN
    )


def test_rows_that_wait_without_a_column_that_is_needed_now_are_read_by_the_flow_of_before() -> None:
    app = fk.testing.App(flow(exchanged("v")), step_rows=2)
    app.send("orders", FIRST)
    app.step()
    app.change(flow(exchanged("v", "at")))
    with pytest.raises(
        FalkirkError, match="do not have the column 'at': another version of the flow sent them"
    ) as raised:
        app.run()
    assert "edge.by-o" in (raised.value.where or "")
    assert "run that version until they are read" in (raised.value.hint or "")
    app.change(flow(exchanged("v")))
    app.send("orders", THEN)
    app.run()
    assert sorted(row["o"] for row in app.sinks["out"].rows) == sorted(row["o"] for row in FIRST + THEN)
    app.change(flow(exchanged("v", "at")))
    app.send("orders", THEN)
    app.run()
    assert app.sinks["out"].rows[-1]["at"] == THEN[-1]["at"]


def test_a_hint_names_only_what_the_flow_has() -> None:
    def top(k: int) -> Define:
        return lambda rows: rows.group_by("k", id="g").top_k(k, by="v").sink("out", key=["k", "o"], value=JSON)

    error = refused(started(flow(top(2))), flow(top(1)), "− out.rows")  # more rows than one may have the sink's key
    assert "--rebuild g says" in (error.hint or "")
    assert "--drop g --drop out.rows" in (error.hint or "")
    error = refused(
        started(flow(total("k"))),
        flow(lambda rows: rows.filter(fk.col("v") > 0).sink("out", value=JSON)),
        "a different flow",
    )
    assert "--rebuild" not in (error.hint or "")


def test_an_operator_that_keeps_other_tables_because_of_its_input_is_named() -> None:
    def sessions(rows: fk.Stream) -> None:
        rows.group_by("k", fk.session("at", gap="30s"), id="g").agg(n=fk.len()).sink(
            "out", key=["k", "window_start"], value=JSON
        )

    error = refused(started(flow(sessions, time="at")), flow(sessions, **TIMED), "schema has changed")
    assert "± g v1: k String" in error.what


def test_what_asks_for_no_watermark_goes_on_without_one_and_with_one_again() -> None:
    def both(rows: fk.Stream) -> None:
        rows.over("k", order_by="at", id="g").agg(nth=fk.row_number()).sink("out", key=["k", "at"], value=JSON)

    app = started(flow(both, **TIMED))
    for source in ({"time": "at"}, TIMED):
        app.change(flow(both, **source))
    app.send("orders", THEN)
    app.run()
    assert app.sinks["out"].table["a", 130_000]["nth"] == 4


def test_a_watermark_goes_on_when_its_source_has_another_id() -> None:
    late = orders(("a", 9, 1, 2_000))
    app = started(flow(windows(), **TIMED))
    assert app.sinks["out"].table["a", 0]["n"] == 2
    app.change(flow(windows(), "sales", **TIMED))
    app.send("sales", late + THEN)
    app.run()
    assert app.sinks["out"].table["a", 0]["n"] == 2  # the window was complete: the row is late
    app.change(flow(windows(), **TIMED))
    app.send("orders", late)
    app.run()
    assert app.sinks["out"].table["a", 0]["n"] == 2
    assert app.sinks["out"].table["a", 120_000]["n"] == 2


def test_a_group_with_other_keys_is_rebuilt_beside_the_one_of_before_which_then_goes() -> None:
    def finer(rows: fk.Stream) -> None:
        rows.group_by("k", "o", id="h").agg(s=fk.sum("v")).sink("finer", key=["k", "o"], value=JSON)

    def both(rows: fk.Stream) -> None:
        total("k")(rows)
        finer(rows)

    app = started(flow(total("k")))
    app.change(flow(both), rebuild=["h"])
    app.run()
    app.change(flow(finer), drop=["g"])
    app.send("orders", THEN)
    app.run()
    assert app.sinks["finer"].table == {
        (row["k"], row["o"]): {"k": row["k"], "o": row["o"], "s": row["v"]} for row in FIRST + THEN
    }
