"""Brokers that are away, too old, or asked for what they cannot give; and workers that get in each other's way."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from tests.bad_input.commands import screen
from tests.bad_input.stand import Stand, flow_file
from tests.faults.proxy import KAFKA_2_7, Proxy
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy(kafka: str) -> Iterator[Proxy]:
    one = Proxy(kafka)
    yield one
    one.close()


@pytest.mark.slow
def test_brokers_that_are_away_and_then_too_old(stand: Stand, proxy: Proxy) -> None:
    stand.topic()
    stand.bids(50)
    shown = stand.cli(flow_file(), "--brokers", proxy.address)
    assert shown.code == 3
    assert f"no broker answers at {proxy.address}: " in shown.error
    assert "to do: is Kafka running, and is the address right?" in shown.error
    proxy.highest = KAFKA_2_7
    proxy.listen()
    shown = stand.cli(flow_file(), "--brokers", proxy.address)
    shown.assert_says(3, "the broker is too old: its topics have no ids", "topic ", "Falkirk needs Kafka 2.8 or later")
    proxy.highest = {}
    assert stand.cli(flow_file(), "--brokers", proxy.address).code == 0
    stand.assert_exact()


@pytest.mark.slow
def test_options_that_the_cluster_refuses(stand: Stand) -> None:
    stand.topic()
    stand.bids(50)
    for options, what, to_do in (
        (["--replication", "3"], "the cluster has too few brokers for the replication factor", "--replication"),
        (["--session-timeout", "400ms"], "the broker refuses the session time-out", "group.min.session.timeout.ms"),
    ):
        shown = stand.cli(flow_file(), *options)
        assert shown.code == 2, shown.text
        assert what in shown.error
        assert to_do in shown.error.partition("to do: ")[2]
    stand.go_on(flow_file())
    stand.assert_exact()


def test_an_option_that_there_is_not() -> None:
    shown = screen([sys.executable, "-m", "falkirk", "run", "app:flow", "--worker", "2"])
    assert shown.code == 2
    assert "No such option" in shown.text
    assert "--workers" in shown.text
    assert "Usage: " in shown.text
    assert "Traceback" not in shown.text


@pytest.mark.slow
def test_two_runs_of_one_identity(stand: Stand) -> None:
    """A state directory was copied, to another host perhaps: the workers of the two end each other, until one run ends."""
    stand.topic()
    stand.bids(50)
    first = stand.start(flow_file())
    stand.settle()
    copied = stand.folder / "copied"
    shutil.copytree(stand.folder / "state", copied)
    second = stand.start(flow_file(), "--state-dir", str(copied))
    deadline = time.monotonic() + PATIENCE_S
    while first.process.poll() is None and second.process.poll() is None:
        assert time.monotonic() < deadline, first.said.read_text() + second.said.read_text()
        time.sleep(0.1)
    ended, going = (first, second) if first.process.poll() is not None else (second, first)
    ended.end().assert_says(9, "another process runs under this worker's identity", "was a state directory copied?")
    stand.bids(50)
    stand.settle()
    assert going.leave().code == 0
    stand.assert_exact()


@pytest.mark.slow
def test_a_second_host_that_could_not_take_lazy_state_over(stand: Stand) -> None:
    lazy = flow_file(regime='fk.LazyCheckpoint(every="1h")')
    stand.topic()
    stand.bids(50)
    first = stand.start(lazy)
    stand.settle()
    elsewhere = str(stand.folder / "elsewhere")
    shown = stand.cli(lazy, "--state-dir", elsewhere)
    shown.assert_says(
        2, "runs on another host, and the lazy state of stats cannot move there", "members at 127.0.0.1", "s3://"
    )
    shared = (stand.folder / "shared").as_uri()
    second = stand.start(lazy, "--state-dir", elsewhere, "--checkpoints", shared)
    deadline = time.monotonic() + PATIENCE_S
    while "another host has joined (127.0.0.1), and the lazy state of stats" not in first.said.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    stand.bids(50)
    stand.settle()
    assert second.leave().code == 0
    assert first.leave().code == 0
    assert "another host" not in second.said.read_text()
    stand.assert_exact()


@pytest.mark.slow
def test_a_flow_that_is_edited_into_an_error_while_it_runs(stand: Stand) -> None:
    """A worker dies, and no spare can read the file: the run goes on with the other worker until the file is fixed."""
    stand.topic()
    stand.bids(50)
    going = stand.start(flow_file(), "--workers", "2")
    stand.settle()
    run = psutil.Process(going.process.pid)
    wait_until(lambda: len(run.children()) == 3)
    locks = [Path(stand.settings.state_dir) / stand.name / f"worker-{slot}" / "lock" for slot in (0, 1)]
    wait_until(lambda: all(lock.exists() and lock.read_text() for lock in locks))
    first, second = (int(lock.read_text()) for lock in locks)
    file = Path(stand.target(flow_file()).rpartition(":")[0])
    whole = file.read_text()
    file.write_text("flow = (")
    for child in run.children():
        if child.pid != first:
            child.kill()
    wait_until(lambda: "a spare cannot start; retrying in 5 s: " in going.said.read_text())
    stand.bids(50)
    stand.settle()
    file.write_text(whole)
    wait_until(lambda: int(locks[1].read_text() or second) != second)
    stand.bids(50)
    stand.settle()
    assert int(locks[0].read_text()) == first
    assert going.leave().code == 0
    stand.assert_exact()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
