"""Where operators say that the state of a key is, and what they show of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import polars as pl
import pytest
from tests.runtime.query.stand import Workers, answer

import falkirk as fk
from falkirk.stream.access.placing import placing_of
from falkirk.stream.access.stored_state import Table, operator_of, table_of
from falkirk.testing.memory import MemoryApp

ROW = {"k": str, "v": int, "at": fk.Datetime}
START = 1_767_225_600_000
"""2026-01-01."""


class Seen(fk.Process):
    """Remembers the last row of a key."""

    state: ClassVar = {"last": int}

    def on_row(self, row: Any, key: Any) -> Any:
        key.put({"last": row["v"]})
        yield row


def read(flow: fk.Flow, name: str = "rows") -> Any:
    return flow.source(name, key="k", value=fk.Json(ROW), time="at", late="1s")


KEYS = {
    "group": "k",
    "group of more columns than the key": ["k", "v"],
    "windows": ["k", "window_start"],
    "sessions": ["k", "window_start"],
    "top": ["k", "v"],
    "over": ["k", "at"],
    "total": None,
    "total of what can be taken back": None,
}
"""The keys of sinks, where they are not "v"."""
FLOWS: dict[str, Callable[[fk.Flow], Any]] = {
    "group": lambda flow: read(flow).group_by("k", id="op").agg(n=fk.len(), usual=fk.mean("v")),
    "group of more columns than the key": lambda flow: read(flow).group_by("k", "v", id="op").agg(n=fk.len()),
    "group behind an exchange": lambda flow: read(flow).group_by("v", id="op").agg(n=fk.len()),
    "group of what can be taken back": lambda flow: (
        read(flow).group_by("k", id="first").agg(v=fk.max("v")).group_by("v", id="op").agg(n=fk.len())
    ),
    "windows": lambda flow: read(flow).group_by("k", fk.tumbling("at", "1h"), id="op").agg(n=fk.len(), top=fk.max("v")),
    "sessions": lambda flow: read(flow).group_by("k", fk.session("at", "1h"), id="op").agg(n=fk.len()),
    "join": lambda flow: read(flow).join(read(flow, "others"), on="k", id="op"),
    "join behind an exchange": lambda flow: read(flow).join(read(flow, "others"), on="v", id="op"),
    "process": lambda flow: read(flow).key_by("v").process(Seen(), id="op"),
    "over": lambda flow: read(flow).over("k", order_by="at", id="op").agg(best=fk.max("v")),
    "total": lambda flow: read(flow).agg(id="op", n=fk.len(), usual=fk.mean("v")),
    "total of what can be taken back": lambda flow: (
        read(flow).group_by("k", id="first").agg(v=fk.max("v")).agg(id="op", n=fk.len(), top=fk.max("v"))
    ),
    "unique": lambda flow: read(flow).select("k", "v").unique(id="op"),
    "deduplicate": lambda flow: read(flow).deduplicate("v", id="op"),
    "top": lambda flow: read(flow).group_by("k", id="op").top_k(2, by="v"),
}


SENT = [(f"k{n % 17}", n % 7) for n in range(60)]
MOST = [max(v for k, v in SENT if k == key) for key in {k for k, _ in SENT}]
"""The greatest value of each key."""


def flow_of(name: str) -> fk.Flow:
    flow = fk.Flow("app")
    FLOWS[name](flow).sink("out", key=KEYS.get(name, "v"), value=fk.Json())
    return flow


def run(flow: fk.Flow, tasks: int = 4) -> MemoryApp:
    app = MemoryApp(flow, {"rows": tasks, "others": tasks}, tasks=tasks)
    app.clock = START
    topics = [t for t in ("rows", "others") if t in app.topics]
    for n, (k, v) in enumerate(SENT):
        row: dict[str, Any] = {"k": k, "v": v, "at": datetime.fromtimestamp(START / 1000 + n, UTC).isoformat()}
        for topic in topics:
            app.append(topic, row["k"].encode(), json.dumps(row).encode(), timestamp=START + n)
    app.run()
    return app


def rows(table: Table, data: dict[bytes, bytes]) -> list[tuple[bytes, pl.DataFrame]]:
    """The stored rows of a table, with their keys."""
    prefixes = frozenset(table.prefixes())
    return [(key, table.frame([(key, data[key])])) for key in sorted(data) if key[:3] in prefixes]


@pytest.mark.parametrize("name", FLOWS)
def test_a_row_is_in_a_task_and_a_shard_that_its_key_names(name: str) -> None:
    app = run(flow_of(name))
    stage, operator = operator_of(app.plan, "op")
    found = 0
    for table_name in operator.table_schemas():
        table = table_of(app.plan, f"op/{table_name}")
        placing = placing_of(stage, operator.placed_by(table_name), table, 4, app.layout.partitions)
        for task in range(4):
            for full, row in rows(table, app.states[stage.id, task].data):
                spelt = placing.spelt(row[:1].select(list(table.keys)))
                assert task in placing.candidates(spelt), (table_name, row)
                shards = placing.shards(spelt)
                assert shards is None or shards == [int.from_bytes(full[:2], "big")]
                assert len(placing.candidates(spelt)) <= 2
                assert shards is not None
                found += 1
    assert found


@pytest.mark.parametrize(
    ("name", "target", "due"),
    [
        ("group", "/state/op/k3", {"n": 4, "usual": 4.0}),
        ("group of more columns than the key", '/state/op/["k3",3]', {"n": 1}),
        ("group behind an exchange", "/state/op/3", {"n": 9}),
        ("group of what can be taken back", "/state/op/6", {"n": MOST.count(6)}),
        ("total", "/state/op/true", {"n": 60, "usual": sum(v for _, v in SENT) / 60}),
        ("total of what can be taken back", "/state/op/true", {"n": 17, "top": 6}),
        (
            "sessions",
            "/state/op?k=k3&window_end=2026-01-01 01:00:54",
            {"window_start": "2026-01-01T00:00:03Z", "n": 4},
        ),
        (
            "windows",
            "/state/op?window_end=2026-01-01 01:00:00&k=k3&window_start=2026-01-01 00:00:00",
            {"n": 4, "top": 6},
        ),
    ],
)
def test_groups_show_the_results_of_their_aggregates(tmp_path: Path, name: str, target: str, due: Any) -> None:
    flow = flow_of(name)
    made = Workers(tmp_path, flow)
    made.memory = run(flow)
    made.commit()
    status, body = answer(made.routers[0], target)
    assert (status, body.get("row")) == (200, due), body
    made.close()
