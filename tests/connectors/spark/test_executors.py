"""When an application is given up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from falkirk.connectors.spark import executors
from falkirk.connectors.spark.errors import ApplicationEnded
from falkirk.connectors.spark.executors import Executors


@dataclass
class Fake:
    """As much of a session as is asked about its executors."""

    count: int = 0
    master: str = "spark://somewhere:7077"

    def __post_init__(self) -> None:
        status = SimpleNamespace(size=lambda: self.count + 1)
        context = SimpleNamespace(getExecutorMemoryStatus=lambda: status)
        self.sparkContext = SimpleNamespace(master=self.master, _jsc=SimpleNamespace(sc=lambda: context))


def executors_of(fake: Any) -> Executors:
    return Executors(fake)


def test_an_application_that_lost_its_executors_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spark = Fake(1)
    watched = executors_of(spark)
    watched.check()
    spark.count = 0
    watched.begin()
    watched.check()
    monkeypatch.setattr(executors, "PATIENCE", 0)
    with pytest.raises(ApplicationEnded, match="no executor"):
        watched.check()


def test_one_that_never_had_any_waits_for_its_turn_and_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executors, "PATIENCE", 0)
    watched = executors_of(Fake())
    with caplog.at_level(logging.WARNING):
        watched.check()
        watched.check()
    assert [r.getMessage() for r in caplog.records if "no executor yet" in r.getMessage()] == [caplog.messages[0]]


def test_a_local_spark_is_its_own_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "PATIENCE", 0)
    executors_of(Fake(master="local[2,4]")).check()
