"""Workers of a stream on a standalone Spark cluster, parts of which are killed; every record that they write is checked."""

from __future__ import annotations

import json
import sys
import time
import venv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.connectors.spark.cluster.onspark import BATCH, OnSpark
from tests.connectors.spark.cluster.standalone import Standalone, until
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def app(cluster: Standalone, topic: Callable[..., Topic], tmp_path: Path) -> Iterator[OnSpark]:
    """An app on it, which is not started."""
    made = OnSpark(topic, tmp_path, cluster.master)
    yield made
    if hasattr(made, "process"):
        made.process.kill()
        made.process.wait()
        until(lambda: not made.children(), "workers end with their driver")


def test_what_is_killed_is_replaced_and_the_output_is_exact(cluster: Standalone, app: OnSpark) -> None:
    """One app, whose runs end in three ways: killed, told to leave, and done."""
    app.feed(200)
    app.start()
    app.running(2)
    feeding = app.fed()
    for victims in (cluster.executors, cluster.pythons, app.children):
        app.lose(victims()[0])
    app.starve(feeding)
    app.check()
    until(lambda: app.said().count(" has recovered: ") == 3, "three recoveries are logged")
    app.process.kill()
    until(lambda: not app.children(), "workers die with their driver")

    # Slots that are missing are asked for, and what needs none goes on.
    app.workers, app.session = 3, "30s"
    app.feed(100)
    app.start()
    app.running(2)
    app.check()
    until(
        lambda: "waiting for 3 slots: the cluster offers 2. " in app.said(),
        f"the missing slots are logged: {app.said()}",
    )
    began = time.monotonic()
    assert app.leave() == 0, app.said()
    assert time.monotonic() - began < 60, "a worker that never had a slot is not waited for"
    found = app.status()
    assert found is not None
    assert (found.state, found.lag, found.workers) == ("stopped", 0, [])
    assert app.handed_over(), app.said()
    until(lambda: not app.children(), "nothing is left")

    # A batch part, which is new, has the core that the worker leaves.
    with (app.folder / "app.py").open("a") as code:
        code.write(BATCH.format(prefix=app.prefix))
    totals = app.topic("totals", 2)
    app.workers = 1
    app.feed(300)
    assert app.start("--until", "end").wait(400) == 0, app.said()
    app.check()
    assert "everything is processed: " in app.said()
    found_totals = [(f.key or b"", json.loads(f.value or b"")["n"]) for f in totals.committed()]
    assert sorted(found_totals) == sorted((str(key).encode(), n) for key, n in app.expected().items())


def test_an_error_that_no_repetition_cures_ends_the_run_with_its_words(app: OnSpark) -> None:
    app.workers, app.sent = 1, -3
    app.feed(1)
    assert app.start().wait(PATIENCE_S) == 5, app.said()
    error = app.said().partition("error: ")[2]
    assert "no such bid" in error
    assert "Traceback" not in error
    assert "prices.py:" in error


def test_a_python_without_falkirk_is_an_error_in_few_words(app: OnSpark, tmp_path: Path) -> None:
    bare, packages = tmp_path / "bare", tmp_path / "packages"
    venv.create(bare, symlinks=True)
    packages.mkdir()
    pyspark = next(path for path in map(Path, sys.path) if (path / "pyspark").is_dir())
    for name in ("pyspark", "py4j"):
        (packages / name).symlink_to(pyspark / name)
    python = str(bare / "bin" / "python")
    app.workers = 1
    assert app.start("--spark-set", f"spark.executorEnv.PYTHONPATH={packages}", PYSPARK_PYTHON=python).wait(300) == 2
    error = app.said().partition("error: ")[2].splitlines()
    assert error[0] == "falkirk is not installed in a Python of Spark's"
    assert error[1].startswith(f"  where: {bare}/bin/python on ")
    assert error[2].startswith("  to do: pip install 'falkirk[spark]' there, ")


def test_without_a_store_to_share_nothing_begins(app: OnSpark) -> None:
    assert app.start("--checkpoints", "").wait(PATIENCE_S) == 2
    assert "error: workers on Spark can move to another host, but their versions would stay behind" in app.said()
