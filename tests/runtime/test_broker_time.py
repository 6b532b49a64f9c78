"""Who dates the records of an app's own topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

import falkirk as fk
from falkirk.connectors.kafka.admin.topic_settings import BROKER_TIME
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import ClusterError
from falkirk.runtime.app.app import App, dated_by_writers, let_broker_date, prepare
from falkirk.runtime.host.settings import Settings
from falkirk.stream.stages.plan import Plan

pytestmark = pytest.mark.kafka

OLDER = {"message.timestamp.type": "CreateTime"}


def flow(prefix: str) -> Plan:
    """With a steps topic, a changelog, an edge and dead letters."""
    flow = fk.Flow(f"{prefix}app")
    bids = flow.source(f"{prefix}bids", value=fk.Json({"auction": fk.Int64}))
    bids.group_by("auction", id="counts").agg(n=fk.len()).sink(f"{prefix}counts", key="auction", value=fk.Json())
    return flow.plan()


def own_and_others(app: App, topics: Topics) -> tuple[dict[str, str], dict[str, str]]:
    """Who dates the records of the topics that only the app reads, and of the others."""
    names = [name for name, topic in app.recorded.topics.items()] + [app.control]
    found = {name: config["message.timestamp.type"] for name, config in topics.configs(names).items()}
    others = {name for name, topic in app.recorded.topics.items() if topic.role in ("source", "sink", "dead_letters")}
    return {n: t for n, t in found.items() if n not in others}, {n: t for n, t in found.items() if n in others}


def until_dated_by_writers(own: Collection[str], topics: Topics, expected: list[str]) -> None:
    """A broker hears of a changed setting a moment after it was accepted."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := dated_by_writers(own, topics.configs(own))) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_the_broker_dates_what_only_the_app_reads_and_nothing_else(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topics = Topics(Cluster(kafka))
    topics.create(f"{topic_prefix}bids", 2, 1, {})
    app = prepare(flow(topic_prefix), Settings(kafka, str(tmp_path)), topics)
    own, others = own_and_others(app, topics)
    roles = {topic.role for name, topic in app.recorded.topics.items() if name in own}
    assert roles == {"steps", "changelog", "edge"}
    assert set(own.values()) == {"LogAppendTime"}
    assert set(others.values()) == {"CreateTime"}  # outputs are dated by their inputs


def test_topics_that_an_older_version_made_are_altered_by_the_next_start(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    topics, settings = Topics(Cluster(kafka)), Settings(kafka, str(tmp_path))
    topics.create(f"{topic_prefix}bids", 2, 1, {})
    app = prepare(flow(topic_prefix), settings, topics)
    own, _ = own_and_others(app, topics)
    topics.alter(own, {**OLDER, "segment.ms": "3600000"})
    until_dated_by_writers(own, topics, sorted(own))

    prepare(flow(topic_prefix), settings, topics)
    until_dated_by_writers(own, topics, [])
    configs = topics.configs(own)
    assert {config["segment.ms"] for config in configs.values()} == {"3600000"}  # what else somebody set is kept


def test_where_they_may_not_be_altered_the_app_runs_and_it_is_said_what_to_do(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ClusterError("not authorised for a topic", where="topic steps")

    topics = Topics(Cluster("127.0.0.1:1"))
    monkeypatch.setattr(topics, "alter", refuse)
    with caplog.at_level(logging.WARNING):
        let_broker_date({"steps", "edge"}, {"steps": OLDER, "edge": BROKER_TIME}, topics)
    assert "kafka-configs.sh --alter" in caplog.text
    assert "for steps" in caplog.text
    assert "edge" not in caplog.text.partition("for steps")[2]
