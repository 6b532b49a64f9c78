"""Topics that are missing, grew, were recreated or lost records: while the app is stopped, and while it runs."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter

import pytest
from tests.bad_input.commands import screen
from tests.bad_input.stand import Stand, flow_file
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ClusterError, FalkirkError, SourceError
from falkirk.runtime.inspect.check import check
from falkirk.runtime.inspect.status import read_status

pytestmark = pytest.mark.kafka

LAZY = 'fk.LazyCheckpoint(every="1h")'


def anew(rows: str = "") -> str:
    """The flow under another name, as every hint here says, for topics whose keys need not be where they were."""
    return flow_file(rows, name="-2", sink="stats-2", source='key="auction", repartition=True')


@pytest.mark.slow
def test_a_topic_that_is_missing_and_then_grows_while_the_app_runs(stand: Stand) -> None:
    source = f"{stand.prefix}bids"
    shown = stand.cli(flow_file())
    shown.assert_says(
        3,
        f"topic '{source}' does not exist",
        f"source {source}, read by stage stats",
        "falkirk topics APP:FLOW --create --sources",
    )
    stand.topic()
    stand.bids(50)
    going = stand.start(flow_file())
    stand.settle()
    stand.grow(3)
    grew = f"partitions were added to topic '{source}': it had 2 and has 3"
    going.end().assert_says(4, grew, "read by stage stats", "give the flow another name")
    stand.assert_exact()
    stand.bids(50)
    with pytest.raises(SourceError, match=grew):
        stand.run(stand.flow())
    stand.go_on(anew())
    stand.assert_exact("stats-2")


@pytest.mark.slow
def test_a_topic_that_is_made_anew_while_the_app_runs(stand: Stand) -> None:
    source = stand.topic()
    stand.bids(50)
    going = stand.start(flow_file())
    stand.settle()
    stand.delete()
    stand.topic()
    stand.sent = 0
    stand.bids(70)
    made_anew = f"topic '{source}' was deleted and recreated: its offsets now mean other records"
    shown = going.end()
    shown.assert_says(4, source, "another name")
    # Which of these it meets first is a matter of when it looks.
    meets = (made_anew, f"topic '{source}' is gone", "ends before offset ", "went back to offset 0, ")
    assert any(says in shown.error for says in meets), shown.error
    with pytest.raises(SourceError, match=made_anew):
        stand.run(stand.flow())
    stand.go_on(anew())
    stand.assert_exact("stats-2")


@pytest.mark.slow
def test_topics_that_join_a_pattern_while_the_app_runs_through_a_kill(stand: Stand) -> None:
    rows = """
low = fk.when(fk.col("price") < 500).then(fk.lit(PREFIX + "low")).otherwise(fk.lit(PREFIX + "high")).alias("to")
bids.with_columns(low).sink("sorted", topic=[PREFIX + "high", PREFIX + "low"], topic_by="to", value=fk.Json())
"""
    flow = flow_file(rows, source='topic=fk.Pattern(PREFIX + "bids-[a-z]+"), key="auction"')
    with pytest.raises(ClusterError, match="no topic matches"):
        stand.go_on(flow)
    stand.topic("bids-a")
    stand.bids(50, "bids-a")
    going = stand.start(flow, "--workers", "2")
    stand.settle()
    stand.topic("bids-b")
    stand.bids(50, "bids-b")
    stand.settle()
    stand.bids(50, "bids-b")
    going.kill()
    stand.topic("bids-c")
    stand.bids(50, "bids-c")
    going = stand.start(flow, "--workers", "2")
    stand.settle()
    assert going.leave().code == 0
    counts: dict[int, int] = {}
    for row in stand.values("stats"):
        assert row["n"] > counts.get(row["auction"], 0), "doubled, or out of order"
        counts[row["auction"]] = row["n"]
    bids = [bid for name in ("a", "b", "c") for bid in stand.values(f"bids-{name}")]
    assert counts == Counter(bid["auction"] for bid in bids)
    for name, is_there in (("low", True), ("high", False)):
        due = sorted(bid["id"] for bid in bids if (bid["price"] < 500) is is_there)
        assert sorted(bid["id"] for bid in stand.values(name)) == due
    stand.topic("bids-d", partitions=3)
    with pytest.raises(SourceError, match="different numbers of partitions"):
        stand.go_on(flow)


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["fk.EagerCheckpoint()", LAZY])
def test_partitions_that_are_added_to_a_source_whose_rows_need_not_stay_together(stand: Stand, regime: str) -> None:
    flow = flow_file(regime=regime, source='key="auction", repartition=True')
    stand.topic()
    going = stand.start(flow, "--workers", "2")
    stand.settle()
    stand.bids(50)
    stand.settle()
    stand.grow(5)
    stand.bids(50)
    stand.settle()
    assert "3 more partitions: the tasks are handed over" in going.said.read_text()
    assert {seen.tp.partition for seen in stand.read(f"{stand.prefix}bids")} == {0, 1, 2, 3, 4}
    going.kill()
    stand.bids(50)
    stand.grow(6)
    stand.bids(50)
    planned = screen([sys.executable, "-m", "falkirk", "plan", stand.target(flow), "--brokers", stand.brokers])
    assert f"+ topic {stand.prefix}bids: 1 more partition, to be read from the first record" in planned.text
    going = stand.start(flow, "--workers", "2")
    stand.settle()
    assert going.leave().code == 0
    stand.assert_exact()


@pytest.mark.slow
def test_a_worker_that_cannot_read_on_goes_on_if_another_has_its_task(stand: Stand) -> None:
    stand.topic(partitions=1)
    stand.bids(20)
    with stand.worker(stand.flow()) as worker:
        worker.join()
        deadline = time.monotonic() + PATIENCE_S
        while sum(stand.counts("stats").values()) < stand.sent:
            worker.turn()
            assert time.monotonic() < deadline
        stand.bids(20)
        stand.trim(30)  # as one that slept finds it whose successor went on
        [(partition, task)] = worker.tasks.items()
        worker._inputs.rewind(task)
        while not worker._inputs._unreadable._noted:
            worker.turn()
            assert time.monotonic() < deadline
        _, since = worker._inputs._unreadable._noted[task]
        while time.monotonic() < since + 1:
            worker.turn()
        worker._on_lost([partition])
        while time.monotonic() < since + stand.settings.session_timeout_ms / 1000 + 1:
            worker.turn()
        assert not worker.tasks
        worker.leave()


@pytest.mark.slow
def test_retention_that_overtook_a_stopped_app(stand: Stand) -> None:
    source = stand.topic(partitions=1)
    stand.bids(50)
    stand.run(stand.flow())
    stand.bids(50)
    stand.trim(70)
    shown = stand.cli(flow_file())
    shown.assert_says(4, "deleted before they were read: those from offset 5", " to 69", f"{source}[0]", "retention")
    stand.sent -= 70
    stand.go_on(anew())
    stand.assert_exact("stats-2")


@pytest.mark.slow
def test_retention_that_left_nothing_of_what_a_stopped_app_had_not_read(stand: Stand) -> None:
    source = stand.topic(partitions=1)
    stand.bids(50)
    stand.run(stand.flow())
    stand.bids(50)
    stand.trim(100)
    with pytest.raises(SourceError, match="deleted before they were read: those from offset 50 to 99") as caught:
        stand.run(stand.flow())
    assert f"{source}[0]" in str(caught.value)


@pytest.mark.slow
def test_what_keeps_a_stopped_app_from_running_is_shown_before_it_is_run(stand: Stand) -> None:
    topics, source = Topics(stand.settings.cluster()), stand.topic(partitions=1)
    stand.bids(30)
    stand.run(stand.flow())
    stand.bids(30)
    stand.trim(40)

    def shown() -> tuple[list[str], int, list[int | None]]:
        found = read_status(stand.name, stand.settings, topics)
        return [p.what for p in found.problems], found.lag, [i.lag for task in found.tasks for i in task.inputs]

    deleted = "records were deleted before they were read: those from offset 30 to 39"
    assert shown() == ([deleted], 20, [20])
    [wrong] = [f for f in check(stand.flow().plan("falkirk"), stand.settings) if not f.ok]
    assert (wrong.what, wrong.words) == ("positions", f"{deleted} ({source}[0])")
    stand.grow(2)
    assert shown()[0][0] == (
        f"partitions were added to topic '{source}': it had 1 and has 2, so its keys are in other places now"
    )
    stand.delete()
    assert shown() == ([f"topic '{source}' is gone: app '{stand.name}' had been using it"], 0, [None])
    stand.topic(partitions=1)
    assert shown() == ([f"topic '{source}' was deleted and recreated: its offsets now mean other records"], 0, [None])
    steps = f"falkirk.{stand.name}.steps"
    topics.delete([steps])
    with pytest.raises(FalkirkError, match=f"topic '({source}|{steps})'"):
        shown()


@pytest.mark.slow
def test_retention_that_overtook_the_steps_of_a_lazy_app(stand: Stand) -> None:
    lazy = fk.LazyCheckpoint(every="1h")
    source = stand.topic(partitions=1)
    stand.bids(50)
    stand.crash(stand.flow(lazy))
    shutil.rmtree(stand.folder / "state" / stand.name)
    stand.trim(20)
    stand.bids(20)
    shown = stand.cli(flow_file(regime=LAZY))
    shown.assert_says(4, "the records of a recorded step are gone", f"{source}[0] from offset 0", "checkpoint store")
    assert sum(stand.counts("stats").values()) == 50


@pytest.mark.slow
def test_a_lazy_part_of_a_compacted_topic(stand: Stand) -> None:
    source = stand.topic(cleanup_policy="compact")
    stand.bids(50)
    shown = stand.cli(flow_file(regime=LAZY))
    shown.assert_says(
        4, f"the lazy regime cannot read topic '{source}': it is compacted", "read by stage stats", ".repartition"
    )
    stand.configure(source, cleanup_policy="delete")
    stand.go_on(flow_file(regime=LAZY))
    stand.assert_exact()


@pytest.mark.slow
def test_a_start_that_is_not_there(stand: Stand) -> None:
    source = stand.topic()
    stand.bids(50)
    stand.trim(2)
    stand.sent -= 2
    for start, says in (
        ({2: 0}, f"start= names partition 2 of topic '{source}', which has 2"),
        ({0: 10_000}, "start= names offset 10000, and the partition has those from 2 to "),
        ({0: 1, 1: 0}, "start= names offset 1, and the partition has those from 2 to "),
    ):
        with pytest.raises(SourceError) as caught:
            stand.run(stand.flow(start=start))
        assert says in caught.value.what
        assert f"source {source}" in caught.value.where
        assert caught.value.hint
    stand.run(stand.flow())
    stand.assert_exact()
