"""`falkirk explain` prints what a plan says."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

import falkirk as fk
from falkirk.cli.explain import explain as command
from falkirk.stream.explain import explain
from falkirk.stream.plan import Layout

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
