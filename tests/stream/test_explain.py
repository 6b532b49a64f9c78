"""`falkirk explain` prints what a plan says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import falkirk as fk
from falkirk.cli.commands.explain import explain as command
from falkirk.stream.dataflow.topics import Layout
from falkirk.stream.flow.drawing import drawing
from falkirk.stream.flow.explain import explain

FLOW = """
import falkirk as fk

COLUMNS = {"carrier": fk.String, "origin": fk.String, "delay": fk.Int64}
flow = fk.Flow("flights", regime=fk.EagerCheckpoint(step="50ms"))
flights = flow.source("flights", key="carrier", value=fk.Json(COLUMNS))
late = flights.filter(fk.col("delay") > 15).group_by("carrier", id="carriers").agg(n=fk.len(), worst=fk.max("delay"))
late.sink("carriers", key="carrier", value=fk.Json())
lazy = flights.with_regime(fk.LazyCheckpoint(step="100ms", every="10s"))
lazy.group_by("origin", id="origins").agg(mean=fk.mean("delay")).sink("origins", key="origin", value=fk.Json())
"""


def everything() -> fk.Flow:
    """A flow with two regimes, a broadcast table and a batch part."""
    flow = fk.Flow("flights", regime=fk.EagerCheckpoint(step="50ms"))
    columns = {"carrier": fk.String, "dest": fk.String, "delay": fk.Int64}
    flights = flow.source("flights", key="carrier", value=fk.Json(columns))
    late = flights.filter(fk.col("delay") > 15)
    late.group_by("carrier", id="by-carrier").agg(n=fk.len()).sink("carriers", key="carrier", value=fk.Json())
    lazy = late.with_regime(fk.LazyCheckpoint(), id="late.lazy")
    lazy.group_by("dest", id="by-dest").agg(n=fk.len()).sink("dests", key="dest", value=fk.Json())
    table = flow.table("airlines", key="carrier", value=fk.Json({"name": fk.String}), broadcast=True)
    late.lookup(table).sink("named", value=fk.Json())
    whole = flights.with_regime(fk.Batch())
    whole.group_by("dest", id="usual").agg(n=fk.len()).sink("usual", key="dest", value=fk.Json())
    return flow


def test_stages_operators_edges_regimes_topics_and_tasks_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(FLOW)
    result = CliRunner().invoke(command, [f"{path}:flow"], catch_exceptions=False)
    words = [line.split("  (")[0] for line in result.output.splitlines() if line]
    assert words == [
        "flow flights: 3 stages",
        "stage carriers: eager, steps of up to 50ms, a version every 10s",
        "  tasks   one for each partition of flights",
        "  read    source flights: topic flights, from earliest, keyed by carrier",
        "  do      filter: delay > 15",
        "  do      group_by carriers: carrier → n = len, worst = max; state placed by carrier",
        "  write   sink carriers: topic carriers, by carrier",
        "  write   dead letters: topic falkirk.flights.dead-letters",
        "stage flights.lazy: lazy, steps of up to 100ms, a version every 10s",
        "  tasks   one for each partition of flights",
        "  read    source flights: topic flights, from earliest, keyed by carrier",
        "  do      with_regime: lazy",
        "  write   edge origins: topic falkirk.flights.edge.origins, by origin",
        "  write   dead letters: topic falkirk.flights.dead-letters",
        "stage origins: lazy, steps of up to 100ms, a version every 10s",
        "  tasks   one for each partition of falkirk.flights.edge.origins",
        "  read    edge origins: topic falkirk.flights.edge.origins",
        "  do      group_by origins: origin → mean = mean; state placed by origin",
        "  write   sink origins: topic origins, by origin",
    ]
    assert "app.py:7" in result.output
    others = CliRunner().invoke(command, [f"{path}:flow", "--prefix", "mine"], catch_exceptions=False)
    assert others.output == result.output.replace("falkirk.flights.", "mine.flights.")


def test_a_layout_counts_the_tasks_and_unread_columns_are_named() -> None:
    flow = fk.Flow("words")
    lines = flow.source("lines", value=fk.Json({"word": fk.String, "page": fk.Int64}))
    lines.group_by("word", id="count").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
    text = explain(flow, Layout({"lines": 8, "falkirk.words.edge.count": 4}))
    assert "tasks   8: one for each partition of lines" in text
    assert "from earliest, without page" in text
    assert "tasks   4: one for each partition of falkirk.words.edge.count" in text


def test_a_drawing_has_every_stage_operator_and_topic_and_the_arrows_between_them() -> None:
    drawn = drawing(everything(), "falkirk")
    assert [box.label for box in drawn.boxes] == [
        "stage by-carrier (eager)",
        "stage late.lazy (lazy)",
        "stage by-dest (lazy)",
        "batch part usual",
    ]
    nodes = {node: label for box in drawn.boxes for node, label in box.operators.items()}
    assert not nodes.keys() & set(drawn.topics.values())
    labels = {**nodes, **{node: topic for topic, node in drawn.topics.items()}}
    arrows = [(labels[a.start].split(":")[0], labels[a.end].split(":")[0], a.dashed) for a in drawn.arrows]
    for arrow in [
        ("flights", "source flights", False),
        ("source flights", "filter", False),
        ("filter", "group_by by-carrier", False),
        ("group_by by-carrier", "sink carriers", False),
        ("sink carriers", "carriers", False),
        ("filter", "falkirk.flights.edge.late.lazy", False),
        ("falkirk.flights.edge.late.lazy", "with_regime", False),
        ("airlines", "lookup airlines.on.carrier", True),
        ("sink usual", "usual", False),
    ]:
        assert arrow in arrows, arrow
    text = explain(everything())
    topics = set(re.findall(r"topic ([\w.-]+)", text)) - {"falkirk.flights.dead-letters"}
    assert drawn.topics.keys() == topics


def test_a_drawing_is_in_the_syntax_of_its_tool(tmp_path: Path) -> None:
    path = tmp_path / "app.py"
    path.write_text(FLOW)
    shown = {
        form: CliRunner()
        .invoke(command, [f"{path}:flow", "--format", form], catch_exceptions=False)
        .output.splitlines()
        for form in ("mermaid", "dot")
    }
    assert shown["mermaid"][0] == "flowchart LR"
    for line in shown["mermaid"][1:]:
        assert re.fullmatch(
            r'  t\d+\[\("[^"<>]+"\)\]|  subgraph s\d+\["[^"<>]+"\]|    o\d+\["[^"<>]+"\]|  end|  [to]\d+ -\.?->? [to]\d+',
            line,
        ), line
    assert shown["dot"][0] == 'digraph "flights" {'
    assert shown["dot"].count("  }") == sum("subgraph" in line for line in shown["dot"]) == 3
    assert shown["dot"][-1] == "}"
    assert '    o1 [label="filter: delay > 15"]' in shown["dot"]


def test_batch_parts_say_when_they_are_computed_and_of_what() -> None:
    flow = fk.Flow("flights")
    flights = flow.source(
        "flights", key="carrier", value=fk.Json({"carrier": fk.String, "dest": fk.String, "d": fk.Int64})
    )
    late = flights.filter(fk.col("d") > 15)
    late.sink("late", value=fk.Json())
    whole = late.with_regime(fk.Batch(every="1h"), id="usual").group_by("dest", id="dests").agg(d=fk.mean("d"))
    whole.sink("usual", key="dest", value=fk.Json())
    flights.with_regime(fk.Batch(every=1_000_000, history="new"), id="n").select("dest").sink("dests", value=fk.Json())
    words = [line.split("  (")[0] for line in explain(flow).splitlines() if line]
    assert words[0] == "flow flights: 1 stage, 2 batch parts"
    assert words[words.index("batch dests: an epoch every 1h, of all that is in the topics") :] == [
        "batch dests: an epoch every 1h, of all that is in the topics",
        "  read    source flights: topic flights, from earliest, keyed by carrier",
        "  do      filter: d > 15",
        "  do      with_regime: batch",
        "  do      group_by dests: dest → d = mean; state placed by dest",
        "  write   sink usual: topic usual, by dest, replaced",
        "  write   dead letters: topic falkirk.flights.dead-letters",
        "batch n: an epoch every 1,000,000 new records, of what is new in the topics",
        "  read    source flights: topic flights, from earliest, keyed by carrier, without d",
        "  do      with_regime: batch",
        "  do      select: dest",
        "  write   sink dests: topic dests",
        "  write   dead letters: topic falkirk.flights.dead-letters",
    ]


def test_a_flow_may_be_all_batch() -> None:
    flow = fk.Flow("words", regime=fk.Batch())
    flow.source("lines", value=fk.Text()).sink("copies", value=fk.Text())
    text = explain(flow)
    assert text.startswith(
        "flow words: 1 batch part\n\nbatch lines: an epoch on demand, of all that is in the topics\n"
    )


def warned(build: Callable[[Any], Any]) -> list[str]:
    """The warnings about what is made of a stream."""
    flow = fk.Flow("f")
    rows = flow.source("rows", value=fk.Json({"k": int, "x": int, "s": str}))
    made = build(rows)
    made.sink("out", key=sorted(made._op.unique or made.schema) or None, value=fk.Json())
    return [line.strip() for line in explain(flow).splitlines() if line.startswith("  WARNING")]


def sql(rows: Any, query: str) -> Any:
    """The result of a query over these rows."""
    flow = fk.Flow("other")
    flow.graph = rows._graph
    return flow.sql(query, rows=rows, id="q")


def test_what_sends_all_rows_to_one_task_is_named() -> None:
    grouped = "all rows of group_by g go to one task: {} the same in each of them"
    one = fk.lit(1)
    assert warned(lambda r: r.with_columns(a=one).group_by("a", id="g").agg(n=fk.len())) == [
        f"WARNING {grouped.format('a is')}"
    ]
    assert warned(
        lambda r: (
            r.select("x", a=one + 1, b=fk.lit("b")).filter(fk.col("x") > 1).select("x", "b", c="a")
            .with_columns(d=fk.col("x")).group_by("c", "b", id="g").agg(n=fk.len())
        )
    ) == [f"WARNING {grouped.format('c, b are')}"]  # fmt: skip
    assert len(warned(lambda r: r.agg(kinds=fk.n_unique("x")))) == 1
    keyless = ["WARNING all rows of iterate near go to one task: it has no key"]
    assert warned(lambda r: r.select("k", "x").iterate(lambda near: near.select("k", "x"), id="near")) == keyless
    assert len(warned(lambda r: sql(r, "select k, x from rows order by x limit 3"))) == 1


def test_keys_that_differ_and_partial_sums_send_rows_to_all_tasks() -> None:
    assert warned(lambda r: r.with_columns(a=fk.lit(1)).group_by("a", "k", id="g").agg(n=fk.len())) == []
    assert warned(lambda r: r.with_columns(a=fk.col("x") * 0).group_by("a", id="g").agg(n=fk.len())) == []
    assert warned(lambda r: r.with_columns(x=fk.lit(1)).select("k", x="k").group_by("x", id="g").agg(n=fk.len())) == []
    assert warned(lambda r: r.agg(n=fk.len(), x=fk.sum("x"))) == []


def test_one_task_is_no_warning_where_there_is_one() -> None:
    flow = fk.Flow("f")
    rows = flow.source("rows", value=fk.Json({"k": int})).with_columns(a=fk.lit(1))
    rows.group_by("a", id="g").agg(n=fk.len()).sink("out", key="a", value=fk.Json())
    edge = flow.plan().stages[1].inputs[0].topic
    assert "WARNING" in explain(flow, Layout({"rows": 2, edge: 2, "out": 1}))
    assert "WARNING" not in explain(flow, Layout({"rows": 1, edge: 1, "out": 1}))


def test_a_selective_rollback_is_told_with_how_long_rows_count() -> None:
    flow = fk.Flow("shop", regime=fk.LazyCheckpoint(selective=True))
    orders = flow.source("orders", value=fk.Json({"shop": int, "at": int}), time="at", late="30s")
    windows = orders.group_by("shop", fk.hopping("at", "10m", every="1m"), id="windows").agg(n=fk.len())
    windows.final().sink("windows", value=fk.Json())
    assert "a version every 10s; rows are not read again when the watermark is 10m past their time" in explain(flow)


def test_a_number_of_tasks_that_the_flow_says_is_shown() -> None:
    def flow(by: str) -> fk.Flow:
        made = fk.Flow("f", tasks=12)
        rows = made.source("in", key="k", value=fk.Json({"k": fk.String, "x": fk.Int64}))
        rows.group_by(by, id="counts").agg(n=fk.len()).sink("out", key=by, value=fk.Json())
        return made

    text = explain(flow("x"))
    assert "  tasks   one for each partition of in\n" in text
    assert "  tasks   12: one for each partition of falkirk.f.edge.counts\n" in text
    assert "WARNING" not in text
    assert explain(flow("k")).endswith("WARNING tasks=12 changes nothing: no stage is behind an exchange")
