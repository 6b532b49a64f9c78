"""A part stops and is resumed again and again, while workers and whole runs are killed: both parts stay exact."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.bad_input.stand import Stand
from tests.parts.flow import FLOW
from tests.waiting import PATIENCE_S

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.runtime.inspect.status import Status, read_status
from falkirk.runtime.messages.parts import resume_part
from falkirk.stream.definition.names import control_topic

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

ROUNDS = 6

POISONED = """
from pathlib import Path

def poisoned(row):
    return row["price"] == 7_000_000 and not (Path(CURED) / str(row["id"])).exists()
"""


def wait_for(what: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def test_a_part_stops_and_goes_on_exactly_though_workers_and_runs_are_killed(stand: Stand) -> None:
    stand.topic()
    cured = stand.folder / "cured"
    cured.mkdir()
    chance, part = random.Random(stand.prefix), f"{stand.prefix}bids.lazy"
    flow = f"CURED = {str(cured)!r}\n{POISONED}{FLOW}"
    cluster, control = stand.settings.cluster(), control_topic(stand.settings.prefix, stand.name)
    topics = Topics(cluster)

    def status() -> Status:
        return read_status(stand.name, stand.settings, topics)

    going = stand.start(flow, "--workers", "2")
    stand.bids(50)
    stand.settle("lazy")
    for _ in range(ROUNDS):
        stand.put(b"3", b'{"id":%d,"auction":3,"bidder":1,"price":7000000}' % stand.sent)
        poison, stand.sent = stand.sent, stand.sent + 1
        stand.bids(chance.randrange(200))
        wait_for(lambda: [p.part for p in status().parts] == [part])
        if chance.random() < 0.3:
            going.kill()
            going = stand.start(flow, "--workers", "2")
        else:
            kill(chance, status())
        stand.bids(chance.randrange(100))
        stand.settle("stats")  # the other part goes on
        (cured / str(poison)).touch()
        resume_part(cluster, control, part)
        if chance.random() < 0.5:  # while it is taken over
            time.sleep(chance.random())
            kill(chance, status())
        stand.settle("lazy")
    assert going.leave().code == 0, going.said.read_text()
    stand.assert_exact("stats")
    stand.assert_exact("lazy")


def kill(chance: random.Random, status: Status) -> None:
    """kill -9 one of the workers that have reported."""
    if pids := [w.pid for w in status.workers if w.pid is not None]:
        with suppress(ProcessLookupError):  # killed with an earlier run
            os.kill(chance.choice(pids), signal.SIGKILL)
