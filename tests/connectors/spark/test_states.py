"""State, read from a checkpoint store, is what the flow's tasks have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from falkirk.connectors.spark import states
from falkirk.errors import ConfigError, FalkirkError, StateError
from falkirk.state import checkpoints
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress
from falkirk.stream.flow.load import load_flow
from falkirk.testing.memory import MemoryApp

FLOW = """
import falkirk as fk

flow = fk.Flow("shop")
sales = flow.source("sales", key="id", value=fk.Json({"id": int, "shop": str, "price": int}))
sums = sales.group_by("id", id="sums").agg(n=fk.len(), total=fk.sum("price"), mean=fk.mean("price"))
sums.sink("sums", key="id", value=fk.Json())

def last(row, key):
    key.put({"shop": row["shop"], "price": row["price"]})
    key.put({"n": (key.get("seen") or {"n": 0})["n"] + 1}, "seen")

tables = {"seen": {"n": int}}
lasts = sales.key_by("id").process(last, id="lasts", state={"shop": str, "price": int}, tables=tables, returns={"id": int})
lasts.sink("lasts", value=fk.Json())
"""

Read = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Options for a flow whose two tasks have versions of steps 0 and 1 in a checkpoint store."""
    monkeypatch.setattr(checkpoints, "SMALL", 0)  # its files are files of their own, as those of a larger state are
    (tmp_path / "shop.py").write_text(FLOW)
    options = {"flow": str(tmp_path / "shop.py:flow"), "checkpoints": (tmp_path / "checkpoints").as_uri()}
    flow = load_flow(options["flow"])
    (stage,) = flow.plan().stages
    app = MemoryApp(flow, {"sales": 2})
    stores = {
        task: RocksStore(
            tmp_path / str(task), Identity("shop", f"{stage.id}/{task}", stage.fingerprint, stage.state_schema, "once")
        )
        for task in range(2)
    }
    for step in range(2):
        for i in range(30):
            sale = {"id": i, "shop": f"shop {i % 3}" if i % 5 else None, "price": 10**15 * (i + step)}
            app.append("sales", b"%d" % i, json.dumps(sale).encode())
        app.run()
        for task, store in stores.items():
            progress = Progress(step, step, step)
            store.write(app.states[stage.id, task].data, progress)
            number = store.commit()
            copies = CheckpointStore(connect(options["checkpoints"]), store._identity)
            copies.upload(store.version_folder(number), progress)
    for store in stores.values():
        store.close()
    return options


def rows(given: dict[str, str], **more: str) -> list[dict[str, Any]]:
    """What Spark's tasks give, in the order of keys, without a Spark."""
    options = {**given, **more}
    fixed = states.fix(options)
    found = [b for piece in states.plan(options, fixed, 2) for b in states.read(options, fixed, piece)]
    return sorted((row for batch in found for row in batch.to_pylist()), key=lambda row: row["id"])


def test_groups_have_their_keys_and_the_parts_of_their_aggregates(place: dict[str, str]) -> None:
    found = rows(place, state="sums")
    assert [row["id"] for row in found] == list(range(30))
    assert {row["_task"].rpartition("/")[2] for row in found} == {"0", "1"}
    assert {row["_step"] for row in found} == {1}
    for i, row in enumerate(found):
        total = 10**15 * (2 * i + 1)
        assert (row["n"], row["total"]) == ({"rows": 2}, {"sum": total}), row
        assert row["mean"]["sum"] == total


def test_tables_of_a_process_have_the_columns_that_it_names(place: dict[str, str]) -> None:
    for i, row in enumerate(rows(place, state="lasts")):
        shop = f"shop {i % 3}" if i % 5 else None
        assert {k: v for k, v in row.items() if k[0] != "_"} == {"id": i, "shop": shop, "price": 10**15 * (i + 1)}
    assert {row["n"] for row in rows(place, state="lasts/seen")} == {2}


def test_a_step_chooses_the_version_that_is_not_later(place: dict[str, str]) -> None:
    assert {row["n"] for row in rows(place, state="lasts/seen", step="0")} == {1}
    assert {row["_step"] for row in rows(place, state="lasts/seen", step="7")} == {1}


def test_spark_shows_the_same(place: dict[str, str], spark: SparkSession) -> None:
    frame = spark.read.format("falkirk").options(**place, state="sums").load()
    assert frame.schema.simpleString().startswith("struct<id:bigint,n:struct<")
    shown = frame.select("id", "total.sum", "_step").sort("id").collect()
    assert [tuple(row) for row in shown] == [(i, 10**15 * (2 * i + 1), 1) for i in range(30)]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"state": "summs"}, ConfigError, "the flow has no state for 'summs'\n.*did you mean 'sums'"),
        ({"state": "lasts/sene"}, ConfigError, "operator 'lasts' has no table 'sene'\n.*did you mean 'seen'"),
        ({"state": "sums", "checkpoint": ""}, ConfigError, "state has no option 'checkpoint'"),
        ({"state": "sums", "flow": "nowhere:flow"}, ConfigError, "there is no module or file 'nowhere'"),
        ({"state": "sums", "checkpoints": "memory:///"}, StateError, "there is no version of stage"),
    ],
)
def test_what_is_not_there_is_said(
    place: dict[str, str], options: dict[str, str], error: type[FalkirkError], says: str
) -> None:
    with pytest.raises(error, match=says):
        states.fix({**place, **options})


def test_a_changed_schema_and_files_that_are_gone_are_errors(place: dict[str, str], tmp_path: Path) -> None:
    options = {**place, "state": "sums"}
    fixed = states.fix(options)
    (tmp_path / "shop.py").write_text(FLOW.replace('total=fk.sum("price")', 'total=fk.max("price")'))
    with pytest.raises(StateError, match="the state's schema has changed:"):
        states.fix(options)
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(StateError, match="a checkpoint cannot be read: it is not there"):
        list(states.read(options, fixed, 0))
