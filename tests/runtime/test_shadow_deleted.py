"""A shadow is deleted while a run takes it over: the run counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bad_input.stand import BID, Stand
from tests.cli.test_operations import Desk, stand

import falkirk as fk
from falkirk.cli.commands import delete
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.app.shadow_app import prepare_app
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.worker.work import work
from falkirk.stream.definition.names import changelog_topic, shadow_app

pytestmark = pytest.mark.kafka

__all__ = ["stand"]


def flow_of(stand: Stand, version: int) -> fk.Flow:
    flow = fk.Flow(stand.name)
    bids = flow.source(f"{stand.prefix}bids", key="auction", value=fk.Json(BID))
    stats = bids.group_by("auction", id="stats", version=version)
    stats = stats.agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
    stats.sink(f"{stand.prefix}stats", key="auction", value=fk.Json())
    return flow


def rebuild_beside(stand: Stand, flow: fk.Flow) -> None:
    settings = replace(stand.settings, rebuild=("stats",), beside=True)
    topics = Topics(settings.cluster())
    app = prepare_app(flow.plan(), settings, topics)
    end = UntilEnd(app, settings.cluster(), topics, app.until)
    work(app, settings, topics, 0, end.finished, lambda _: None)
    end.close()


@pytest.mark.slow
def test_what_a_run_has_begun_to_take_over_is_not_deleted_by_who_had_looked_before(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand.topic()
    stand.bids(40)
    stand.run(flow_of(stand, 1))
    rebuild_beside(stand, flow_of(stand, 2))

    def answered(*_: Any, **__: Any) -> None:
        """A person takes long to answer."""
        stand.app(flow_of(stand, 2), rebuild=("stats",))

    monkeypatch.setattr(delete, "confirm", answered)
    desk, shadow = Desk(stand.brokers, Path(stand.settings.state_dir)), shadow_app(stand.name)
    answer = desk.give("delete", shadow, stateful=True)
    desk.refused(2, "have not taken over yet what was rebuilt beside it", of=answer)
    assert changelog_topic("falkirk", shadow, "stats") in stand.admin.list_topics(timeout=10).topics
    stand.bids(20)
    stand.run(flow_of(stand, 2), rebuild=("stats",))
    stand.assert_exact()
    monkeypatch.undo()
    code, said = desk.give("delete", shadow, "--yes", stateful=True)
    assert code == 0, said
