"""Flows that would read what they write."""

from __future__ import annotations

import pytest

import falkirk as fk
from falkirk.errors import DefinitionError

NUMBER = fk.Json({"n": fk.Int64})


def test_a_sink_on_a_topic_that_its_source_reads_is_refused() -> None:
    flow = fk.Flow("round")
    flow.source("numbers", value=NUMBER).sink("again", topic="numbers", value=fk.Json())
    with pytest.raises(
        DefinitionError, match=r"without end: sink 'again' writes topic 'numbers', which source"
    ) as error:
        flow.plan()
    assert "feedback=True" in error.value.hint
    assert "test_feedback.py:" in error.value.where


def test_one_of_several_topics_is_enough() -> None:
    flow = fk.Flow("round")
    flow.source("all", topic=["numbers", "others"], value=NUMBER).sink("others", value=fk.Json())
    with pytest.raises(DefinitionError, match="without end"):
        flow.plan()


def test_a_way_over_several_topics_is_found() -> None:
    flow = fk.Flow("round")
    flow.source("a", value=NUMBER).sink("b", value=fk.Json())
    flow.source("b", value=NUMBER).sink("a", value=fk.Json())
    with pytest.raises(DefinitionError, match="sink 'b' writes topic 'b', and what follows of it comes to topic 'a'"):
        flow.plan()


def test_what_does_not_come_back_is_accepted() -> None:
    flow = fk.Flow("chain")
    flow.source("a", value=NUMBER).sink("b", value=fk.Json())
    flow.source("b", value=NUMBER).sink("c", value=fk.Json())
    assert len(flow.plan().stages) == 2


def test_a_table_of_ones_own_results_is_accepted() -> None:
    flow = fk.Flow("table")
    numbers = flow.source("numbers", key="n", value=NUMBER)
    squares = flow.table("squares", key="n", value=NUMBER)
    numbers.lookup(squares).sink("squares", key="n", value=fk.Json())
    flow.plan()


def test_who_asks_for_it_has_it_and_rows_come_round_until_none_is_left() -> None:
    flow = fk.Flow("countdown")
    numbers = flow.source("numbers", value=NUMBER)
    numbers.filter(fk.col("n") > 0).with_columns(n=fk.col("n") - 1).sink(
        "rest", topic="numbers", value=fk.Json(), feedback=True
    )
    numbers.sink("seen", value=fk.Json())
    app = fk.testing.run(flow, {"numbers": [{"n": 2}]})
    assert [row["n"] for row in app.sinks["seen"].rows] == [2, 1, 0]
