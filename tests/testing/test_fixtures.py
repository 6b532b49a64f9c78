"""The fixtures that users get: the same test, on a real Kafka."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import falkirk as fk
from falkirk.errors import ConfigError
from falkirk.pytest_plugin import falkirk_run  # noqa: F401  # whether the plugin is installed or not


@pytest.fixture(scope="session")
def falkirk_kafka(kafka: str) -> str:
    """The broker that all tests here share."""
    return kafka


def flow_of(prefix: str) -> fk.Flow:
    flow = fk.Flow(f"{prefix}named")
    names = flow.table("names", topic=f"{prefix}names", key="id", value=fk.Json({"id": int, "name": str}))
    bids = flow.source("bids", topic=f"{prefix}bids", key="id", value=fk.Json({"id": int, "price": int}))
    tops = bids.lookup(names).group_by("name", id="tops").agg(top=fk.max("price"), n=fk.len())
    tops.sink("tops", topic=f"{prefix}tops", key="name", value=fk.Json())
    return flow


@pytest.mark.kafka
def test_what_runs_in_memory_runs_on_kafka_again_and_again(falkirk_run: Any, topic_prefix: str) -> None:  # noqa: F811
    flow = flow_of(topic_prefix)
    names = [{"id": i, "name": f"name {i % 3}"} for i in range(6)]
    for bids in (20, 10):
        inputs = {"names": names, "bids": [*({"id": i % 6, "price": i} for i in range(bids)), ("1", b"{")]}
        found, due = falkirk_run(flow, inputs, partitions=2), fk.testing.run(flow, inputs, partitions=2)
        assert found.sinks["tops"].table == due.sinks["tops"].table
        assert [letter["reason"] for letter in found.dead_letters] == [letter["reason"] for letter in due.dead_letters]
        assert sum(row["n"] for row in found.sinks["tops"].table.values()) == bids


def test_batch_parts_are_refused(tmp_path: Path) -> None:
    from falkirk.testing.real import run

    flow = fk.Flow("batch", regime=fk.Batch())
    flow.source("bids", value=fk.Json({"id": int})).sink("out", value=fk.Json())
    with pytest.raises(ConfigError, match="need a driver"):
        run("127.0.0.1:1", tmp_path, flow, {})


def test_the_plugin_is_where_pytest_looks_for_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (plugin,) = project["project"]["entry-points"]["pytest11"].values()
    assert {"falkirk_kafka", "falkirk_run"} <= set(dir(import_module(plugin)))
