"""A stopped part as people see it: in a run until the end, in `falkirk status`, and when they resume it."""

from __future__ import annotations

import sys

import msgspec
import pytest
from tests.bad_input.commands import screen
from tests.bad_input.stand import Stand
from tests.parts.flow import FLOW

from falkirk.errors import UserCodeError
from falkirk.runtime.inspect.status import Status

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

POISONED, CURED = (f"poisoned = lambda row: row['price'] == {price}\n{FLOW}" for price in (7_000_000, None))


def command(stand: Stand, *words: str) -> list[str]:
    return [sys.executable, "-m", "falkirk", *words, "--brokers", stand.brokers]


def test_a_stopped_part_is_shown_and_goes_on_in_the_next_version_of_the_flow(stand: Stand) -> None:
    stand.topic()
    stand.bids(40)
    stand.put(b"3", b'{"id":%d,"auction":3,"bidder":1,"price":7000000}' % stand.sent)
    stand.sent += 1
    part = f"{stand.prefix}bids.lazy"

    ended = stand.cli(POISONED)
    assert ended.code == UserCodeError.exit_code, ended.text
    assert f"part {part} has stopped, and has not processed everything: " in ended.text
    assert "raised ValueError: poison" in ended.text
    stand.assert_exact("stats")

    again = stand.cli(CURED)  # it waits for a person, who knows whether it is cured
    assert again.code == UserCodeError.exit_code, again.text
    going = stand.start(CURED)
    shown = screen(command(stand, "status", stand.name, "--json"))
    [stopped] = msgspec.json.decode(shown.text, type=Status).parts
    assert (stopped.part, stopped.exit_code) == (part, UserCodeError.exit_code)
    shown = screen(command(stand, "status", stand.name))
    assert f"part {part} was stopped at" in shown.text
    assert f"falkirk resume {stand.name} --part {part}" in shown.text

    wrong = screen(command(stand, "resume", stand.name, "--part", "lasy"))
    assert wrong.code == 2
    assert "did you mean 'lazy'" in wrong.text
    resumed = screen(command(stand, "resume", stand.name, "--part", part))
    assert resumed.code == 0, resumed.text
    assert f"part {part} is resumed" in resumed.text
    stand.settle("lazy")
    assert going.leave().code == 0, going.said.read_text()
    stand.assert_exact("stats")
    stand.assert_exact("lazy")
