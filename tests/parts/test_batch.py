"""A batch part that stops alone when its epoch fails: the stream beside it goes on, and the part too, once resumed."""

from __future__ import annotations

import time

import pytest
from tests.bad_input.commands import screen
from tests.bad_input.stand import Stand
from tests.parts.test_commands import command
from tests.waiting import PATIENCE_S

from falkirk.errors import UserCodeError

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

FLOW = """
BID = {"id": fk.Int64, "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64}
flow = fk.Flow(NAME, regime=fk.EagerCheckpoint(step="50ms"), on_failure="part")
bids = flow.source(PREFIX + "bids", key="auction", value=fk.Json(BID))
stats = bids.group_by("auction", id="stats").agg(n=fk.len(), top=fk.max("price"), total=fk.sum("price"))
stats.sink(PREFIX + "stats", key="auction", value=fk.Json())

def checked(row):
    if row["price"] == poison:
        raise ValueError("poison")
    return row

whole = bids.with_regime(fk.Batch(every="1s"), id="whole").map(checked, returns=BID)
whole.group_by("auction", id="totals").agg(n=fk.len()).sink(PREFIX + "totals", key="auction", value=fk.Json())
"""

POISONED, CURED = (f"poison = {price}\n{FLOW}" for price in (7_000_000, None))


@pytest.mark.timeout(1200)  # two Sparks start, and they yield to everything else
def test_a_batch_part_stops_alone_and_computes_every_epoch_once_it_is_resumed(stand: Stand) -> None:
    stand.topic()
    stand.bids(40)
    stand.put(b"3", b'{"id":%d,"auction":3,"bidder":1,"price":7000000}' % stand.sent)
    stand.sent += 1
    part = "totals"

    ended = stand.cli(POISONED, timeout=2 * PATIENCE_S)
    assert ended.code == UserCodeError.exit_code, ended.text
    assert f"part {part} has stopped, and has not processed everything: " in ended.text
    stand.assert_exact("stats")
    assert stand.counts("totals") == {}

    going = stand.start(CURED)
    resumed = screen(command(stand, "resume", stand.name, "--part", part))
    assert resumed.code == 0, resumed.text
    stand.bids(40)
    deadline = time.monotonic() + 2 * PATIENCE_S
    while sum(stand.counts("totals").values()) < stand.sent:
        assert time.monotonic() < deadline, going.said.read_text()
        time.sleep(0.5)
    stand.settle()
    assert going.leave().code == 0, going.said.read_text()
    stand.assert_exact("stats")
    assert stand.counts("totals") == stand.counts("stats")
