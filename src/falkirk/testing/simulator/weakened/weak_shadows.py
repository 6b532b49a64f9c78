"""Shadows that lack a clause: see `weaken`."""

from __future__ import annotations

from collections.abc import Sequence

from falkirk.checkpoint.ids import TopicPartition
from falkirk.runtime.worker.task import RunningTask
from falkirk.stream.dataflow.records import Message
from falkirk.testing.simulator.flows.shadow_workers import ShadowWorkers
from falkirk.testing.simulator.plan import Plan
from falkirk.testing.simulator.weakened.weakening import Patch, Schedule, Weakening


def offer_all(self: RunningTask, place: TopicPartition, run: Sequence[Message]) -> None:
    """It reads whatever comes."""
    self._pending.add(place, run)


SHADOWS: dict[str, Weakening] = {
    "shadow-ahead": Weakening(
        "a task of a shadow reads what the app has not read: the app would read it into the rows that it takes over",
        (Patch(RunningTask, "offer", offer_all),),
        Schedule(ShadowWorkers(inputs=6), Plan()),
    ),
}
