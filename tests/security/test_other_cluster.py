"""An app on an open cluster reads from one that guards what it has: by settings of its own, and the printed rights."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tests.bad_input.commands import screen
from tests.bad_input.stand import Stand
from tests.security.guarded import PASSWORD
from tests.security.secured import Secured

from falkirk.connectors.kafka.admin.acls import Acl, grant
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.app.needs import rights
from falkirk.runtime.host.settings import Settings
from falkirk.stream.flow.load import load_flow

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FLOW = """
import falkirk as fk

flow = fk.Flow("{prefix}app")
bids = flow.source("{prefix}bids", cluster="sales", key="auction", value=fk.Json({{"auction": fk.Int64}}))
bids.group_by("auction", id="counts").agg(n=fk.len()).sink("{prefix}counts", key="auction", value=fk.Json())
"""
SETTINGS = """
brokers = "{own}"
state-dir = "{state}"

[cluster.sales]
brokers = "{sales}"

[cluster.sales.kafka]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{user}"
sasl.password = {{env = "PASSWORD"}}
ssl.ca.location = "{certificate}"
"""


def test_the_printed_rights_and_the_clusters_own_password_are_what_it_takes(
    kafka: str, broker: Secured, topic_prefix: str, tmp_path: Path
) -> None:
    user, file, target = f"{topic_prefix}user", tmp_path / "falkirk.toml", tmp_path / "app.py"
    broker.user(user, PASSWORD)
    sales = Stand(broker.back, topic_prefix, tmp_path)
    sales.topic()
    sales.bids(100)
    target.write_text(FLOW.format(prefix=topic_prefix))
    paths = {"state": tmp_path / "state", "certificate": broker.certificate}
    file.write_text(SETTINGS.format(own=kafka, sales=broker.front, user=user, **paths))
    command = [sys.executable, "-m", "falkirk", "check", f"{target}:flow", "--config", str(file)]
    shown = screen(command, 60, PASSWORD="guess")
    assert shown.code == 1
    assert "the broker refused the credentials" in shown.text
    assert "([cluster.sales.kafka])" in shown.text
    assert "guess" not in shown.text

    needed = rights(load_flow(f"{target}:flow").plan(), Settings(kafka, ""))
    there = [right for right in needed if right.cluster == "sales"]
    assert {r.resource for r in there} == {"topic", "group"}
    asked = [Acl(f"User:{user}", r.resource, r.name, r.prefixed, o) for r in there for o in r.operations]
    grant(Cluster(broker.back), asked)
    command[3:4] = ["run"]
    shown = screen([*command, "--until", "end"], 90, PASSWORD=PASSWORD)
    assert shown.code == 0, shown.text
    assert "everything is processed: 100 input records" in shown.text
    assert PASSWORD not in shown.text
