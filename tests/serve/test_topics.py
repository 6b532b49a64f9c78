"""The topics of an HTTP source, on a broker: the app makes them, and says so beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

import falkirk as fk
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.app.app import prepare
from falkirk.runtime.app.needs import rights
from falkirk.runtime.app.sources import missing_sources
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.check import check

pytestmark = pytest.mark.kafka


def test_the_app_makes_the_topics_of_requests_and_answers(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    flow, settings, topics = fk.Flow(f"{topic_prefix}shop"), Settings(kafka, str(tmp_path)), Topics(Cluster(kafka))
    name, answers = f"{topic_prefix}orders", f"{topic_prefix}orders-answers"
    flow.http(name, value=fk.Json({"usd": int}), partitions=3, keep="2h").answer(name)
    plan = flow.plan()

    found = {finding.what: finding for finding in check(plan, settings)}
    assert found[f"source {name}"].ok
    assert "made at the start" in found[f"source {name}"].words
    assert found["tasks"].words.startswith("3 tasks")
    assert missing_sources(plan, topics) == {}
    granted = {right.name: set(right.operations) for right in rights(plan, settings)}
    assert {"READ", "WRITE"} <= granted[name]  # the workers' right, and the gateways'
    assert {"READ", "WRITE"} <= granted[answers]

    app = prepare(plan, settings, topics)
    assert len(app.tasks) == 3
    configs = topics.configs([name, answers])
    assert {config["message.timestamp.type"] for config in configs.values()} == {"LogAppendTime"}
    assert configs[name]["retention.ms"] == str(7 * 24 * 3_600_000)
    assert configs[answers]["retention.ms"] == str(2 * 3_600_000 + 600_000)
    assert topics.describe([answers])[answers].partitions == 3
