"""Epochs on a standalone Spark cluster, parts of which are killed; every record that they write is checked."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.connectors.spark.cluster.driving import Driving
from tests.connectors.spark.cluster.standalone import Standalone, end, until
from tests.connectors.spark.topics import Topic
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(1200)]


@pytest.fixture
def drive(cluster: Standalone, topic: Callable[..., Topic], tmp_path: Path) -> Iterator[Callable[..., Driving]]:
    """Makes drivers on it."""
    made = []

    def make(**more: float) -> Driving:
        made.append(Driving(topic, tmp_path, cluster.master, **more))
        return made[-1]

    yield make
    for driving in made:
        driving.leave()


def test_an_epoch_outlives_workers_and_executors(cluster: Standalone, drive: Callable[..., Driving]) -> None:
    driving = drive()
    driving.append(0, 1_200)
    driving.ask()
    end(until(cluster.pythons, "a Python worker is at work")[0])
    until(lambda: len(cluster.pythons()) == 2, "two Python workers are at work")
    end(cluster.executors()[-1])  # of the other worker than the one that is killed next
    cluster.kill_worker()
    cluster.start_workers()
    driving.completed(0)
    driving.append(1_200, 300)
    driving.ask()
    driving.completed(1)


def test_an_epoch_goes_on_when_the_master_is_gone_then_in_another_application_then_with_the_next_driver(
    cluster: Standalone, drive: Callable[..., Driving]
) -> None:
    driving = drive(patience=5.0)
    driving.append(0, 1_200)
    driving.ask()
    until(cluster.pythons, "a Python worker is at work")
    cluster.kill_master()
    driving.completed(0)
    cluster.start_master()
    until(lambda: not cluster.executors(), "the master has ended executors of an application that it does not know")
    driving.append(1_200, 300)
    driving.ask()
    driving.completed(1)
    assert "no executor for 5 s" in driving.said()

    driving.ask()
    until(lambda: "epoch 2 of bidders is opened" in driving.said(), "the next epoch is opened")
    time.sleep(1)
    end(driving.jvm())
    assert driving.process.wait(PATIENCE_S) == 3
    assert "error: Spark's JVM on this host has ended\n  where: process " in driving.said()
    with closing(driving.part()) as part:
        assert part.look().state == "open", "it was killed in the middle of an epoch"
    driving.start()
    driving.completed(2)
    end(driving.jvm())  # while nothing is to do
    driving.ask()
    assert driving.process.wait(PATIENCE_S) == 3


def test_a_master_that_does_not_answer_ends_the_driver_at_once(topic: Callable[..., Topic], tmp_path: Path) -> None:
    driving = Driving(topic, tmp_path, "spark://127.0.0.1:1")
    assert driving.process.wait(PATIENCE_S) == 3
    error = driving.said().partition("error: ")[2].splitlines()
    assert error[0] == "Spark's master does not answer at spark://127.0.0.1:1"
    assert error[1] == "  where: 127.0.0.1: Connection refused"
    assert len(error) == 3
