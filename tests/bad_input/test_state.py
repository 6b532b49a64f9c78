"""State that is another's, of another format, damaged or gone: refused, never taken for empty, and exact afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.bad_input.stand import BID, Stand, flow_file

import falkirk as fk
from falkirk.errors import StateError
from falkirk.stream.flow.load import load_flow

pytestmark = pytest.mark.kafka


def store(stand: Stand, name: str = "", task: int = 0) -> Path:
    """The folder of a task's store."""
    (found,) = (stand.folder / "state" / f"{stand.name}{name}" / "worker-0").glob(f"*/stats-{task}")
    return found


def spoil_table_files(folder: Path) -> None:
    """What a bad disk does: other bytes where the rows are."""
    for file in (folder / "live-0").glob("*.sst"):
        with file.open("r+b") as table:
            table.write(b"\xff" * 64)


@pytest.mark.slow
def test_a_store_that_is_not_the_task_s_or_cannot_be_read(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(stand.flow())
    stand.go_on(flow_file(name="-other", sink="other"))
    mine, aside = store(stand), stand.folder / "aside"

    def broken(spoil: Callable[[], object], mend: Callable[[], object], *words: str) -> None:
        stand.bids(20)
        spoil()
        stand.cli(flow_file()).assert_says(7, str(mine), *words)
        mend()

    def another_s() -> None:
        mine.rename(aside)
        shutil.copytree(store(stand, "-other"), mine)

    def put_back() -> None:
        shutil.rmtree(mine)
        aside.rename(mine)

    broken(another_s, put_back, f"this is the state of task stats/0 of app '{stand.name}-other'", "move it away")
    manifest = mine / "manifest.json"

    def of_format(layout: int) -> None:
        manifest.write_bytes(orjson.dumps({**orjson.loads(manifest.read_bytes()), "format": [layout, 1]}))

    broken(lambda: of_format(9), lambda: of_format(1), "the state is of format (9, 1)", "use the release that wrote it")
    broken(lambda: spoil_table_files(mine), lambda: mine.rename(aside), "cannot be read", "move the folder away")
    stand.run(stand.flow())
    stand.assert_exact()


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_read(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(stand.flow())
    stand.bids(20)
    shutil.rmtree(store(stand))
    (versions,) = (stand.folder / "state" / "checkpoints" / stand.name).glob("*/stats/0/versions")
    newest = max(versions.iterdir(), key=lambda path: int(path.stem))
    whole = newest.read_bytes()
    newest.write_bytes(whole[:100])
    shown = stand.cli(flow_file())
    shown.assert_says(7, "a checkpoint cannot be read", str(newest), "restore that object")
    newest.write_bytes(whole)
    stand.go_on(flow_file())
    stand.assert_exact()


@pytest.mark.slow
def test_two_flows_of_one_name_and_a_flow_whose_state_changed(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(stand.flow())
    another = flow_file().replace('id="stats"', 'id="others"')
    stand.cli(another, "--state-dir", str(stand.folder / "elsewhere")).assert_says(
        7,
        f"a different flow has already used the name '{stand.name}'",
        "its stages: stats; this flow's: others",
        "give this flow a different name",
    )
    stand.bids(20)
    changed = flow_file().replace('fk.max("price")', 'fk.mean("price")')
    shown = stand.cli(changed)
    shown.assert_says(7, "the state's schema has changed", "− stats v1", "+ stats v1", "stage stats", "undo the change")
    stand.run(stand.flow())
    stand.assert_exact()


SERVICE = """
from pathlib import Path
stats = stats.map(lambda row: {{**row, "top": row["top"] * int(Path({path!r}).read_text())}})
"""


@pytest.mark.slow
def test_a_lazy_flow_that_asks_another_system(stand: Stand) -> None:
    """What the function is told changes between the step and its replay: found out; and once it is as before, exact."""
    stand.topic()
    stand.bids(50)
    factor = stand.folder / "factor"
    factor.write_text("1")
    plain = flow_file(regime='fk.LazyCheckpoint(every="1h")')
    asks = plain.replace("stats.sink(", SERVICE.format(path=str(factor)) + "stats.sink(")
    stand.crash(load_flow(stand.target(asks)))
    shutil.rmtree(store(stand))  # what a host that is lost takes with it
    shutil.rmtree(store(stand, task=1))
    factor.write_text("2")
    stand.bids(20)
    shown = stand.cli(asks)
    shown.assert_says(
        6, "run again, gives another output than the one it published", f"{stand.prefix}bids[", "random numbers"
    )
    assert sum(stand.counts("stats").values()) == 50
    factor.write_text("1")
    stand.go_on(asks)
    stand.assert_exact()


@pytest.mark.slow
def test_a_lazy_store_that_is_lost_with_its_versions(stand: Stand) -> None:
    """Its older step records are trimmed: it cannot be rebuilt, and says what would bring it back."""
    lazy = fk.LazyCheckpoint(every="10ms")  # versions, and so trimming, in each of the short runs
    stand.topic(partitions=1)
    for _ in range(3):
        stand.bids(20)
        stand.run(stand.flow(lazy))
    state, aside = stand.folder / "state", stand.folder / "aside"
    state.rename(aside)
    stand.bids(20)
    with pytest.raises(StateError, match="the steps after it are deleted already") as caught:
        stand.run(stand.flow(lazy))
    assert "bring back the state directory" in caught.value.hint
    shutil.rmtree(state)
    aside.rename(state)
    stand.run(stand.flow(lazy))
    stand.assert_exact()


@pytest.mark.slow
def test_a_rebuild_from_rows_without_a_column_is_refused_before_it_begins(stand: Stand) -> None:
    """The rows were sent between two stages, by the flow of before."""

    def flow(**aggregates: Any) -> fk.Flow:
        made = fk.Flow(stand.name)
        bids = made.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID))
        made_of = bids.group_by("bidder", id="spent", version=len(aggregates)).agg(**aggregates)
        made_of.sink(f"{stand.prefix}spent", key="bidder", value=fk.Json())
        return made

    stand.topic()
    stand.bids(20)
    stand.run(flow(n=fk.len()))
    with pytest.raises(StateError, match=r"spent cannot be rebuilt: rows .* do not have the column 'price'") as refused:
        stand.app(flow(n=fk.len(), total=fk.sum("price")), rebuild=("spent",))
    assert "topic falkirk." in refused.value.where
    stand.run(flow(n=fk.len()))
    two = flow(n=fk.len(), more=fk.len())
    stand.run(two, rebuild=("spent",))
    assert sum(row["more"] for row in {row["bidder"]: row for row in stand.values("spent")}.values()) == 20
