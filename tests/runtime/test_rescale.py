"""Another number of tasks for an app, on a broker: nothing is lost or doubled, wherever the command is killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import orjson
import pytest
from tests.bad_input.stand import BID, Stand, count
from tests.cli.test_operations import Desk, stand

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import ControlTopic
from falkirk.connectors.kafka.transactions.log import KafkaLog
from falkirk.errors import ConfigError, FalkirkError, StateError
from falkirk.runtime.layout.app_lookup import layout_of, recorded
from falkirk.runtime.layout.deleting import AppResources, app_resources, delete
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.runtime.layout.resetting import reset, starts_at
from falkirk.runtime.rescale.record import Rescaling
from falkirk.runtime.rescale.rescaling import check, look, rescale
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import Leftovers
from falkirk.stream.flow.load import load_flow

pytestmark = pytest.mark.kafka

__all__ = ["stand"]

REGIMES: dict[str, Callable[[], Any]] = {"eager": fk.EagerCheckpoint, "lazy": fk.LazyCheckpoint}


def flow_of(stand: Stand, tasks: int | None, regime: Any = None, *, version: int = 1, **options: Any) -> fk.Flow:
    """Counts a row for each bidder, behind an exchange."""
    flow = fk.Flow(stand.name, regime=regime, tasks=tasks)
    bids = flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID), **options)
    grouped = bids.group_by("bidder", id="stats", version=version)
    stats = grouped.agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(f"{stand.prefix}stats", key="bidder", value=fk.Json())
    return flow


def scaled(stand: Stand, flow: fk.Flow, said: list[str] | None = None) -> None:
    """As the command does it."""
    topics, plan = Topics(stand.settings.cluster()), flow.plan()
    rescale(look(plan, stand.settings, topics), stand.settings, topics, (said if said is not None else []).append)


def tasks_of(stand: Stand) -> dict[str, int]:
    layout = layout_of(stand.name, stand.settings, Topics(stand.settings.cluster()))
    return {stage.id: stage.tasks for stage in layout.stages}


@pytest.mark.parametrize("regime", ["eager", pytest.param("lazy", marks=pytest.mark.slow)])
def test_an_app_goes_on_with_another_number_of_tasks(stand: Stand, regime: str) -> None:
    stand.topic()
    stand.bids(100)
    stand.run(flow_of(stand, None, REGIMES[regime]()))
    assert [*tasks_of(stand).values()] == [2, 2]
    gateways = stand.folder / "state" / stand.name / "gateway-0" / "answers"
    gateways.mkdir(parents=True)
    for tasks in (5, 3):
        scaled(stand, flow_of(stand, tasks, REGIMES[regime]()))
        assert gateways.exists(), "a gateway may be at work"
        assert tasks_of(stand)["stats"] == tasks
        stand.bids(40)
        stand.run(flow_of(stand, tasks, REGIMES[regime]()))
    stand.assert_exact(by="bidder")
    # What the new tasks have logged since is not all of their state: without this host, it comes from the checkpoint store.
    stand.bids(20)
    stand.crash(flow_of(stand, 3, REGIMES[regime]()))
    lose_host(stand)
    stand.bids(20)
    stand.run(flow_of(stand, None, REGIMES[regime]()))
    stand.assert_exact(by="bidder")


@pytest.mark.slow
def test_a_stage_gets_another_regime(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(flow_of(stand, 2, fk.EagerCheckpoint()))
    for tasks, name in ((2, "lazy"), (3, "eager"), (3, "lazy")):
        flow = flow_of(stand, tasks, REGIMES[name]())
        with pytest.raises(StateError, match=r"the regime of stage 'stats' has changed|the flow has tasks=3"):
            stand.run(flow)
        said: list[str] = []
        scaled(stand, flow, said)
        assert (name == "lazy") == any("changelog" in words for words in said)
        stand.bids(30)
        stand.crash(flow)
        stand.bids(30)
        stand.run(flow)
    stand.assert_exact(by="bidder")
    changelog = f"falkirk.{stand.name}.changelog.stats"
    assert changelog not in Topics(stand.settings.cluster()).names()


@pytest.mark.slow
@pytest.mark.parametrize("regime", REGIMES)
def test_what_is_done_where_a_source_is_read_goes_behind_an_exchange(stand: Stand, regime: str) -> None:
    """Then the source can get more partitions."""
    stand.topic()
    stand.bids(60)
    stand.run(stand.flow(REGIMES[regime]()))

    def exchanged(tasks: int) -> fk.Flow:
        flow = fk.Flow(stand.name, regime=REGIMES[regime](), tasks=tasks)
        bids = flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID), repartition=True)
        count(bids, f"{stand.prefix}stats")
        return flow

    with pytest.raises(FalkirkError, match="the inputs of stage 'stats' have changed"):
        stand.run(exchanged(3))
    scaled(stand, exchanged(3))
    assert tasks_of(stand) == {"stats": 3, f"{stand.prefix}bids": 2}
    stand.bids(40)
    stand.run(exchanged(3))
    stand.grow(4)
    stand.bids(40)
    stand.run(exchanged(3))
    scaled(stand, exchanged(5))
    assert tasks_of(stand) == {"stats": 5, f"{stand.prefix}bids": 2}
    stand.bids(40)
    stand.crash(exchanged(5))
    stand.bids(10)
    stand.run(exchanged(5))
    stand.assert_exact()


def lose_host(stand: Stand) -> None:
    """The stores of this host are gone, and the checkpoint store is not."""
    for folder in (stand.folder / "state" / stand.name).glob("worker-*"):
        folder.rename(folder.with_name(f"gone-{folder.name}"))


@pytest.mark.slow
def test_rows_of_a_stage_that_stays_and_of_one_that_does_not_come_together(stand: Stand) -> None:
    """What brings them together keeps nothing, so nothing is to be divided."""
    stand.topic()
    stand.bids(50)

    def flow(tasks: int) -> fk.Flow:
        made = fk.Flow(stand.name, tasks=tasks)
        topic, bid, price = f"{stand.prefix}bids", fk.Json(BID), fk.col("price")
        low = made.source("low", topic=topic, key="auction", value=bid).filter(price < 500)
        high = made.source("high", topic=topic, key="auction", repartition=True, value=bid).filter(price >= 500)
        counted = low.concat(high, id="both").group_by("bidder", id="stats").agg(n=fk.len())
        counted.sink(f"{stand.prefix}stats", key="bidder", value=fk.Json())
        return made

    stand.run(flow(4))
    for tasks, both in ((5, 5), (1, 2)):
        scaled(stand, flow(tasks))
        assert tasks_of(stand)["both"] == both
        stand.bids(40)
        stand.run(flow(tasks))
    assert sum({row["bidder"]: row["n"] for row in stand.values("stats")}.values()) == stand.sent


@pytest.mark.slow
def test_a_stage_can_lose_the_state_that_a_rescaling_has_divided_and_have_other_state(stand: Stand) -> None:
    stand.topic()
    stand.bids(30)

    def flow(tasks: int, version: int) -> str:
        counted = f'group_by("price", id="prices", version={version}).agg(n=fk.len())'
        rows = counted if version else 'repartition("price", id="prices").select("price", n=fk.lit(1))'
        return f"""
flow = fk.Flow(NAME, tasks={tasks})
value = fk.Json({{"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}})
bids = flow.source(PREFIX + "bids", key="auction", value=value)
bids.{rows}.sink(PREFIX + "prices", key="price", value=fk.Json())
"""

    def added(text: str, *options: str) -> list[dict[str, int]]:
        """What 20 bids more add to the sink."""
        before = {(one.tp, one.offset) for one in stand.read(f"{stand.prefix}prices")}
        desk = Desk(stand.brokers, stand.folder / "state")
        assert desk.give("plan", stand.target(text), "--apply", *options)[0] == 0
        for _ in range(2):
            stand.bids(10)
            stand.go_on(text)
        now = [one for one in stand.read(f"{stand.prefix}prices") if (one.tp, one.offset) not in before]
        return [orjson.loads(one.value or b"") for one in now]

    stand.go_on(flow(2, 1))
    scaled(stand, load_flow(stand.target(flow(3, 1))))
    stand.bids(10)
    stand.go_on(flow(3, 1))
    assert len(added(flow(3, 0), "--drop", "prices")) == 20
    assert sum({row["price"]: row["n"] for row in added(flow(3, 2))}.values()) == 20


IO: list[tuple[type, str]] = [
    (ControlTopic, "append"), (Topics, "create"), (Topics, "delete"), (Topics, "delete_groups"), (KafkaLog, "commit"),
    (CheckpointStore, "upload"), (Leftovers, "delete"),
]  # fmt: skip
"""What changes something outside."""


class Killed(BaseException):
    """The command is dead."""


@contextmanager
def killed_after(changes: int) -> Iterator[list[str]]:
    """Dies when it has made so many changes. A dead process makes no more, in no clean-up either."""
    done: list[str] = []

    def check() -> None:
        if len(done) == changes:
            raise Killed

    def dies(kind: type, name: str) -> Any:
        real = getattr(kind, name)

        def call(self: Any, *arguments: Any, **options: Any) -> Any:
            check()
            found = real(self, *arguments, **options)
            done.append(name)
            check()
            return found

        async def awaited(self: Any, *arguments: Any, **options: Any) -> Any:
            check()
            found = await real(self, *arguments, **options)
            done.append(name)
            check()
            return found

        return awaited if kind is KafkaLog else call

    with ExitStack() as stack:
        for kind, name in IO:
            stack.enter_context(patch.object(kind, name, dies(kind, name)))
        yield done


@pytest.mark.slow
def test_a_rescaling_that_is_killed_anywhere_is_finished_by_the_next(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    stand.run(flow_of(stand, 2))
    changes, over, last = 0, False, set[str]()
    while not over:
        tasks = 3 if tasks_of(stand)["stats"] == 2 else 2
        flow = flow_of(stand, tasks)
        with killed_after(changes) as done:
            try:
                scaled(stand, flow)
                over = True
            except Killed:
                last.update(done[-1:])
        if stands_still(stand) and changes % 5 == 0:
            with pytest.raises(StateError, match=r"a rescale of app .* was begun, and is not finished"):
                stand.app(flow)
        if stands_still(stand) or tasks_of(stand)["stats"] != tasks:
            scaled(stand, flow)
        assert not stands_still(stand)
        assert tasks_of(stand)["stats"] == tasks
        if over or changes % 5 == 0:
            stand.bids(10)
            stand.run(flow)
        changes += 1
    assert last == {name for _, name in IO}
    stand.assert_exact(by="bidder")


@pytest.mark.slow
def test_another_command_at_the_same_time_changes_nothing(stand: Stand, tmp_path: Path) -> None:
    """On another host, and begun when the first was: it neither lets the app run nor divides anything."""
    stand.topic()
    stand.bids(30)
    stand.run(flow_of(stand, 2))
    here = replace(stand.settings, checkpoints=stand.settings.checkpoint_url())
    there = replace(here, state_dir=str(tmp_path / "other host"))
    topics, plan = Topics(here.cluster()), flow_of(stand, 3).plan()
    one, other = look(plan, here, topics), look(plan, there, topics)

    def meanwhile(*arguments: Any) -> Rescaling:
        with pytest.raises(ConfigError, match=r"another command changes app .* at this moment: falkirk rescale"):
            rescale(other, there, topics, print)
        assert stands_still(stand)
        return check(*arguments)

    with patch("falkirk.runtime.rescale.rescaling.check", meanwhile):
        rescale(one, here, topics, print)
    assert not stands_still(stand)
    assert tasks_of(stand)["stats"] == 3
    stand.bids(10)
    stand.run(flow_of(stand, 3))
    stand.assert_exact(by="bidder")


@pytest.mark.slow
def test_new_topics_that_are_there_stay(stand: Stand) -> None:
    """Another command, which may still run, has made them."""
    stand.topic()
    stand.bids(30)
    stand.run(flow_of(stand, 2))
    with (
        patch("falkirk.runtime.rescale.rescaling.write_layout", side_effect=Killed),
        pytest.raises(Killed),
    ):
        scaled(stand, flow_of(stand, 3))
    for other in (flow_of(stand, 4), flow_of(stand, 3, fk.LazyCheckpoint())):
        with pytest.raises(ConfigError, match=r"was begun, and is not finished: .*stats 3 eager"):
            scaled(stand, other)
    topics = Topics(stand.settings.cluster())
    own = [name for name in topics.names() if name.startswith(f"falkirk.{stand.name}.")]
    made = {name: info.id for name, info in topics.describe(own).items()}
    scaled(stand, flow_of(stand, 3))
    assert {name: info.id for name, info in topics.describe(own).items()} == made
    stand.bids(10)
    stand.run(flow_of(stand, 3))
    stand.assert_exact(by="bidder")


def stands_still(stand: Stand) -> bool:
    """Whether a rescaling is not finished."""
    found = recorded(stand.name, stand.settings, Topics(stand.settings.cluster()))
    return found is not None and found.ending is not None


def half_done(stand: Stand, topics: Topics) -> AppResources:
    """An app whose rescaling to three tasks was killed while it made topics again."""
    stand.topic()
    stand.bids(30)
    stand.run(flow_of(stand, 2))
    with pytest.raises(Killed), killed_after(9):
        scaled(stand, flow_of(stand, 3))
    assert stands_still(stand)
    return app_resources(stand.name, stand.settings, topics)


@pytest.mark.slow
def test_a_deletion_that_is_refused_leaves_a_rescaling_that_was_begun(stand: Stand) -> None:
    topics = Topics(stand.settings.cluster())
    found = half_done(stand, topics)
    outdated = replace(found, known=msgspec.structs.replace(found.known, last=None))
    with pytest.raises(ConfigError, match="has changed since this command looked at it"):
        delete(outdated, stand.settings, topics, lambda _: None, published=False)
    scaled(stand, flow_of(stand, 3))
    assert tasks_of(stand)["stats"] == 3


@pytest.mark.slow
def test_a_reset_ends_a_rescaling_that_is_half_done(stand: Stand) -> None:
    """The next one, killed before it has recorded what it does, is not taken for the one from before the reset."""
    topics = Topics(stand.settings.cluster())
    found = half_done(stand, topics)
    reset(found, stand.settings, topics, starts_at(layout_before(found), ["earliest"], topics), lambda _: None)
    assert not stands_still(stand)
    stand.bids(20)
    stand.run(flow_of(stand, 3))
    with pytest.raises(Killed), killed_after(1):
        scaled(stand, flow_of(stand, 4))
    assert stands_still(stand)
    scaled(stand, flow_of(stand, 4))
    stand.bids(10)
    stand.run(flow_of(stand, 4))
    assert tasks_of(stand)["stats"] == 4
    last = {value["bidder"]: value["n"] for value in stand.values("stats")}
    assert sum(last.values()) == stand.sent


def layout_before(found: AppResources) -> LayoutRecord:
    assert found.known.last is not None
    return found.known.last


@pytest.mark.slow
def test_it_is_refused_where_it_would_lose_something(stand: Stand) -> None:
    stand.topic()
    with pytest.raises(ConfigError, match="there is no app"):
        scaled(stand, flow_of(stand, 3))
    stand.bids(30)
    stand.run(flow_of(stand, 2))
    with pytest.raises(StateError, match=r"the flow has tasks=3, and app '.*' has 2 in stage stats"):
        stand.run(flow_of(stand, 3))
    with pytest.raises(StateError, match=r"the flow is another one than app '.*' has run: stage 'stats' has changed"):
        scaled(stand, flow_of(stand, 3, version=2))
    with stand.worker(flow_of(stand, 2)) as worker:
        worker.join()
        with pytest.raises(ConfigError, match="is running"):
            scaled(stand, flow_of(stand, 3))
    # Its worker was not stopped, but died: the checkpoint store lacks the last state.
    stand.bids(30)
    stand.crash(flow_of(stand, 2))
    wait_until_gone(stand)
    with pytest.raises(StateError, match="the checkpoint store does not have the last state of stats/0 "):
        scaled(stand, flow_of(stand, 3))
    stand.run(flow_of(stand, 2))
    stand.grow(3)
    with pytest.raises(FalkirkError, match="partitions were added to topic"):
        scaled(stand, flow_of(stand, 3))
    assert tasks_of(stand)["stats"] == 2


def wait_until_gone(stand: Stand) -> None:
    topics = Topics(stand.settings.cluster())
    while topics.group(stand.name).members:
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("edge.stats", "rows are on their way between tasks"),
        ("files.all", "places outside Kafka have not got all rows"),
    ],
)
def test_rows_that_are_on_their_way_are_not_lost(stand: Stand, log: str, words: str, tmp_path: Path) -> None:
    """The command says so, and changes nothing."""
    stand.topic()
    stand.bids(20)

    def flow(tasks: int) -> fk.Flow:
        made = flow_of(stand, tasks)
        bids = made.source("more", topic=f"{stand.prefix}bids", value=fk.Json(BID))
        bids.sink_parquet("all", str(tmp_path / "all"))
        return made

    stand.run(flow(2))
    topic = f"falkirk.{stand.name}.{log}"
    stand.producer.produce(topic, b"a row", partition=0)
    assert stand.producer.flush() == 0
    with pytest.raises(StateError, match=words) as raised:
        scaled(stand, flow(4))
    assert f"{topic}[0]" in str(raised.value)
    assert "falkirk drain" in str(raised.value)
    assert tasks_of(stand)["stats"] == 2
