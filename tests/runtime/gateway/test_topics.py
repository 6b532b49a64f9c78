"""What a gateway makes of topics that go, and come back. No broker."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

import pytest

from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.errors import UnreachableError
from falkirk.runtime.gateway import topics
from falkirk.runtime.gateway.topics import AppTopics

NAMES = ("control", "orders")

ONE, TWO = ({name: TopicInfo(name, f"{id_} of {name}", 1) for name in NAMES} for id_ in ("first", "second"))
HALF = {"orders": ONE["orders"]}


class Cluster:
    """Shows these topics, one look after the other; the last ones stay. None: no broker answers."""

    def __init__(self, *looks: dict[str, TopicInfo] | None) -> None:
        self.looks = list(looks)

    def describe(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        assert set(names) == set(NAMES)
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if found is None:
            raise UnreachableError("no broker answers")
        return found


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK", "WATCH"):
        monkeypatch.setattr(topics, name, 0.001)
    monkeypatch.setattr(topics, "MISSING", 0.01)


def app_topics(*looks: dict[str, TopicInfo] | None) -> tuple[AppTopics, Cluster, threading.Event]:
    cluster: Any = Cluster(*looks)
    ended = threading.Event()
    return AppTopics(cluster, NAMES, ended), cluster, ended


def test_it_waits_until_all_are_there() -> None:
    watched, cluster, ended = app_topics({}, None, HALF, ONE)
    assert watched.wait() == ONE
    assert cluster.looks == [ONE]
    ended.set()
    assert watched.wait() is None


@pytest.mark.parametrize("last", [TWO, HALF, {}])
def test_it_sees_that_the_app_is_another_or_gone(last: dict[str, TopicInfo]) -> None:
    watched, cluster, _ = app_topics(ONE, None, HALF, ONE, last)
    watched.watch(ONE)
    assert cluster.looks == [last], "a broker that has just started does not know all topics at once"


def test_it_ends_while_nothing_changes() -> None:
    watched, _, ended = app_topics(ONE)
    thread = threading.Thread(target=watched.watch, args=(ONE,))
    thread.start()
    ended.set()
    thread.join()
