"""Backfills on a real Kafka, computed without Spark: what is killed, refused, given up and lost."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.runtime.backfill.inprocess import InProcess
from tests.runtime.backfill.stand import TABLES, Stand, clean

from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import StateError
from falkirk.runtime.app.backfill_state import look, read
from falkirk.runtime.epochs import backfill
from falkirk.runtime.epochs.backfill import BackfillDriver, driving, prepared
from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.runtime.host.settings import Settings
from falkirk.stream.flow.load import load_flow

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1800)]


class Died(BaseException):
    pass


class Backfills(Stand):
    """A stand whose backfills run in this process."""

    engine: InProcess

    def filled_cluster(self) -> Cluster:
        return Cluster(self.brokers)

    def fill(self, name: str) -> BackfillDriver:
        plan = load_flow(self.app(name)).plan()
        settings = Settings(self.brokers, str(self.folder / f"state-{name}"))
        self.filled = prepared(plan, settings, self.topics)
        compute = SparkCompute(self.filled, settings)
        return driving(self.filled, settings, self.topics, compute, lambda _: None, lambda: False)


@pytest.fixture
def stand(kafka: str, topic_prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backfills:
    (tmp_path / "local").mkdir()
    made = Backfills(kafka, topic_prefix.split("-")[-2] + "-", tmp_path)
    made.engine = InProcess(str(tmp_path / "local"), monkeypatch)
    return made


def test_a_driver_that_dies_after_any_task_is_followed_by_one_that_ends_it(stand: Backfills) -> None:
    stand.append(3_000)
    done = last = 0
    at: list[str] = []

    def die(what: str) -> None:
        nonlocal done
        done += 1
        if done > last:
            at.append(what)
            raise Died

    stand.engine.told = die
    while True:
        try:
            assert stand.fill("filled").done
            break
        except Died:
            with pytest.raises(StateError, match="under way"):
                look(stand.filled, stand.filled_cluster())
        done, last = 0, last + 2
        stand.append(100)  # what comes meanwhile is for the run
        if len(at) == 1:
            said = clean(stand.run("run", "filled", "--until", "end", code=7))
            assert "a backfill of the app is under way" in said
            stand.topics.create(
                f"{stand.prefix}notes-late", 1, 1, {}
            )  # the pattern matches it; the division has it not
    assert set(at) == {"head", "level", "publish"}
    assert stand.fill("filled").done, "once more is nothing"
    stand.run("run", "filled", "--until", "end", "--workers", "2")
    stand.run("run", "streamed", "--until", "end")
    stand.check("filled", "streamed")


def test_one_that_is_given_up_leaves_no_state_behind(stand: Backfills) -> None:
    stand.append(2_000)

    def die(what: str) -> None:
        if what == "publish":
            raise Died

    stand.engine.told = die
    with pytest.raises(Died):
        stand.fill("filled")

    def give_up(what: str) -> None:
        stand.engine.told = lambda _: None
        assert "is abandoned" in stand.run("backfill", "filled", "--abandon", home="elsewhere")

    stand.engine.told = give_up
    assert stand.fill("filled").abandoned, "by another's doing, while it ran: it opens none anew"
    assert not read(stand.filled.backfill or "", stand.filled_cluster()).open
    stand.engine.told = die
    with pytest.raises(Died):
        stand.fill("filled")
    assert "is abandoned" in stand.run("backfill", "filled", "--abandon")
    assert "is not open" in stand.run("backfill", "filled", "--abandon", code=2)
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    for sink in TABLES:
        assert stand.table("filled", sink) == stand.table("streamed", sink), sink
    assert stand.states("filled") == stand.states("streamed")


def test_a_state_that_is_lost_comes_back_from_the_checkpoint_store_or_is_an_error(stand: Backfills) -> None:
    stand.append(2_000)
    stand.fill("filled")
    stand.append(500)
    said = stand.run("run", "filled", "--until", "end", "--checkpoints", (stand.folder / "other").as_uri(), code=7)
    assert "is not in the checkpoint store" in clean(said)
    stand.run("run", "filled", "--until", "end")
    shutil.rmtree(stand.folder / "state-filled" / f"{stand.prefix}filled")
    stand.append(500)
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    stand.check("filled", "streamed")
    shutil.rmtree(stand.folder / "state-filled" / f"{stand.prefix}filled")
    stand.append(100)
    other = (stand.folder / "other").as_uri()
    said = stand.run("run", "filled", "--until", "end", "--checkpoints", other, code=7)
    assert "is not in the checkpoint store" in clean(said), "a changelog alone does not make such a state again"


def test_a_stage_that_is_added_later_begins_without_the_backfill(stand: Backfills) -> None:
    stand.append(1_000)
    stand.fill("filled")
    stand.run("run", "filled", "--until", "end")
    stand.more = """
bids.group_by("price", id="prices").agg(n=fk.len()).sink("prices", topic="NAME-prices", key="price", value=fk.Json())
again = flow.source("again", topic="PREFIXbids", key="auction", value=fk.Json(BID))
again.group_by("bidder", id="again-by").agg(n=fk.len(), sum=fk.sum("price")).sink(
    "again", topic="NAME-again", key="bidder", value=fk.Json()
)
"""
    stand.append(1_000)
    stand.run("run", "filled", "--until", "end")
    shutil.rmtree(stand.folder / "state-filled" / f"{stand.prefix}filled")
    stand.append(500)
    stand.run("run", "filled", "--until", "end")
    assert stand.table("filled", "again") == stand.table("filled", "bidders"), "from where start= says"
    counted = sum(json.loads(value)["n"] for value in stand.table("filled", "prices").values())
    assert counted == 1_500 - 3, "from then on; three of them are no bids"


def test_an_app_that_has_run_is_refused_and_runs_on(stand: Backfills, monkeypatch: pytest.MonkeyPatch) -> None:
    stand.append(1_000)
    stand.run("run", "filled", "--until", "end")
    before = stand.records("filled", "raises")
    with pytest.raises(StateError, match="has already run"):
        stand.fill("filled")
    # The same where it is noticed only when the tasks are claimed.
    monkeypatch.setattr(backfill, "check_fresh", lambda *_: None)
    with pytest.raises(StateError, match="has already run"):
        stand.fill("filled")
    assert not read(stand.filled.backfill or "", stand.filled_cluster()).open
    stand.append(200)
    stand.run("run", "filled", "--until", "end")
    stand.run("run", "streamed", "--until", "end")
    assert Counter(before) <= stand.records("filled", "raises")
    for sink in TABLES:
        assert stand.table("filled", sink) == stand.table("streamed", sink), sink
