"""Topics join while the flow is changed: neither takes the place of the other, whoever records it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.bad_input.stand import BID, Stand
from tests.cli.test_operations import stand

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import OutgrownError
from falkirk.runtime.app import app as binding
from falkirk.runtime.app.app import App
from falkirk.runtime.layout.app_lookup import layout_of
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.runtime.worker.work import outgrown

pytestmark = pytest.mark.kafka

__all__ = ["stand"]

WHY = OutgrownError("1 more topic match")


def flow_of(stand: Stand, version: int = 1, also: str = "") -> fk.Flow:
    """Counts a row for each auction, of all topics that match."""
    flow = fk.Flow(stand.name)
    bids = flow.source("bids", topic=fk.Pattern(f"{stand.prefix}bids.*"), key="auction", value=fk.Json(BID))
    stats = bids.group_by("auction", id="stats", version=version)
    stats = stats.agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(f"{stand.prefix}stats", key="auction", value=fk.Json())
    if also:
        stats.sink(f"{stand.prefix}{also}", key="auction", value=fk.Json())
    return flow


def recorded(stand: Stand) -> LayoutRecord:
    return layout_of(stand.name, stand.settings, Topics(stand.settings.cluster()))


def between(monkeypatch: pytest.MonkeyPatch, before: str, do: Callable[[], Any]) -> None:
    """Let this happen once, after a run has looked at the app, and before it goes on with this function."""
    real, left = getattr(binding, before), [do]

    def late(*arguments: Any, **options: Any) -> Any:
        if left:
            left.pop()()
        return real(*arguments, **options)

    monkeypatch.setattr(binding, before, late)


CHANGES: dict[str, dict[str, Any]] = {"an operator is rebuilt": {"version": 2}, "a sink is added": {"also": "more"}}


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_changed_flow_begins_though_the_old_one_took_a_topic_in_at_that_moment(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    stand.topic()
    stand.bids(30)
    stand.run(flow_of(stand))

    def joins() -> None:
        stand.topic("bids-more")
        stand.app(flow_of(stand))

    between(monkeypatch, "keep", joins)
    app = stand.app(flow_of(stand, **change), rebuild=("stats",))
    assert (app.recorded, app.recorded.number) == (recorded(stand), 3)
    assert f"{stand.prefix}bids-more" in app.recorded.topics
    assert {bound.task.layout for bound in app.tasks} == {3}
    assert (f"{stand.prefix}more" in app.recorded.topics) == ("also" in change)
    stand.run(flow_of(stand, **change), rebuild=("stats",))
    stand.assert_exact()


@pytest.mark.parametrize("before", ["preflight", "keep"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_worker_that_takes_a_topic_in_leaves_a_changed_flow_as_it_is(
    stand: Stand, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], before: str
) -> None:
    """Its flow was the app's when it looked."""
    stand.topic()
    old: App = stand.app(flow_of(stand))
    stand.topic("bids-more")
    between(monkeypatch, before, lambda: stand.app(flow_of(stand, **change), rebuild=("stats",)))
    topics = Topics(stand.settings.cluster())
    with pytest.raises(OutgrownError, match="the flow has been changed") as raised:
        outgrown(old, stand.settings, topics, WHY)
    assert "start it again, with the new flow" in str(raised.value)
    assert recorded(stand).number == 2
    with pytest.raises(OutgrownError, match="the flow has been changed"):
        outgrown(old, stand.settings, topics, WHY)
