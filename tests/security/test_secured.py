"""A flow with state, dead letters and an exchange on a cluster that guards all of it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
from tests.security.guarded import FLOW, PASSWORD, Guarded

from falkirk.connectors.http.messages import Ended, Event, Reply, Subscribe
from falkirk.runtime.gateway.subscriptions import Subscriptions
from falkirk.runtime.inspect.check import Finding, check
from falkirk.stream.flow.load import load_flow

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def parsed(value: bytes) -> Any:
    """A bid, or None where it is none."""
    return orjson.loads(value) if value.startswith(b"{") else None


def test_an_app_runs_through_kills_with_the_rights_that_are_printed_for_it(app: Guarded) -> None:
    app.topic()
    app.bids(400)
    app.put(b"1", b"no bid")
    app.allow()
    going = app.begin("--workers", "2")
    app.settle()
    run = psutil.Process(going.process.pid)
    for slot in (0, 1):
        worker = int((Path(app.settings.state_dir) / app.name / f"worker-{slot}" / "lock").read_text())
        assert worker in [child.pid for child in run.children()]
        psutil.Process(worker).send_signal(signal.SIGKILL)
        app.bids(200)
        app.settle()
    for process in (run, *run.children()):
        assert not any(PASSWORD in argument for argument in process.cmdline())
    shown = app.falkirk("status", app.name, "--json")
    assert shown.code == 0, shown.text
    shown = app.falkirk("peek", app.target(FLOW), f"{app.prefix}bids", "-n", "3")
    assert shown.code == 0, shown.text
    assert len(shown.text.splitlines()) == 3
    left = going.leave()
    assert left.code == 0, left.text
    assert PASSWORD not in left.text
    assert "uthori" not in left.text, left.text
    assert app.to_the_end().code == 0
    app.assert_exact(parse=parsed)
    app.assert_exact("bidders", by="bidder", parse=parsed)
    (letter,) = [s.value for s in app.read(f"falkirk.{app.name}.dead-letters")]
    assert letter is not None
    assert b"bids" in letter


def findings(app: Guarded) -> dict[str, Finding]:
    plan = load_flow(app.target(FLOW)).plan()
    return {found.what: found for found in check(plan, app.settings)}


def test_what_is_missing_is_found_before_anything_runs(app: Guarded) -> None:
    app.topic()
    app.bids(5)
    nobody = findings(app)
    assert nobody["brokers"].ok
    assert not nobody[f"source {app.prefix}bids"].ok
    assert not nobody["tasks"].ok
    app.allow()
    found = findings(app)
    assert [f for f in found.values() if not f.ok] == []
    assert found[f"records of {app.prefix}bids"].words == "5 of the last 5 decode"
    assert found["tasks"].words == "4 tasks, for a new app"
    own = f"falkirk.{app.name}."
    for operation, place, said in (
        ("DELETE", {"topic": f"{own}edge.bidders"}, f"DELETE on topic {own}edge.bidders"),
        ("READ", {"group": app.name}, f"READ on group {app.name}"),
        ("WRITE", {"id_": f"{app.name}.check"}, f"transactional id {app.name}.check"),
    ):
        with app.broker.denied(app.user, operation, **place):
            wrong = [f for f in findings(app).values() if not f.ok]
            assert [f.what for f in wrong] == ["rights"]
            assert said in wrong[0].words
            assert "falkirk topics APP:FLOW --acls" in wrong[0].hint


def test_a_token_is_as_good_as_a_password(app: Guarded) -> None:
    """SASL/OAUTHBEARER, with the tokens that are signed by nobody, as Kafka takes them for trial."""
    app.topic()
    app.allow()
    kept = {k: v for k, v in app.settings.client.items() if not k.startswith("sasl.")}
    token = {
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": f"principal={app.user}",
    }
    app.settings = replace(app.settings, client={**kept, **token})
    app.bids(50)
    app.go_on(FLOW)
    app.assert_exact()


def test_subscribers_need_the_rights_that_are_printed_for_gateways(app: Guarded) -> None:
    app.topic()
    app.bids(20)
    app.allow()
    assert app.to_the_end().code == 0
    gateway = Subscriptions(load_flow(app.target(FLOW)).plan(), app.settings, 2, lambda: False)

    async def first() -> Event:
        found = await gateway.subscribe(Subscribe(f"{app.prefix}stats", "earliest"))
        assert not isinstance(found, Reply), found
        events, _ = found
        try:
            while True:
                some = await events.some()
                assert some is not None
                if some.events:
                    return some.events[0]
        finally:
            events.close()

    with pytest.raises(Ended) as raised:
        asyncio.run(first())
    assert raised.value.reply.status == 503
    assert b"not authorised for a topic" in raised.value.reply.body
    app.allow("--serve")
    assert b'"key"' in asyncio.run(first()).data
