"""Versions as often as a flow's objective needs them: `every=fk.RecoverWithin("2s")`."""

from __future__ import annotations

from falkirk.checkpoint.ids import TaskId
from falkirk.checkpoint.planning import Objective, Replay
from falkirk.checkpoint.planning.placement import PAUSE, possible
from falkirk.connectors.kafka.client.config import logger
from falkirk.runtime.worker.stores import TaskStores
from falkirk.runtime.worker.task import RunningTask
from falkirk.runtime.worker.upkeep.rates import RateBook
from falkirk.runtime.worker.upkeep.task_upkeep import TaskUpkeep

LOOK = 0.2
"""Seconds between two looks at an objective, which take some microseconds each for every task."""


class Objectives:
    """The objectives of a worker's tasks, and which of them cannot be met."""

    def __init__(self, stores: TaskStores, rates: RateBook) -> None:
        self._stores, self._rates = stores, rates
        self._unmet: set[str] = set()
        """The stages of which was said that their objective cannot be met."""

    def due(self, task: RunningTask, upkeep: TaskUpkeep, now: float) -> bool:
        """Whether it is time for a version, by the regime's interval or by its objective."""
        regime, since = task.bound.stage.regime, now - upkeep.versioned
        if regime.within is None:
            return since >= regime.every.total_seconds()
        if now < upkeep.looked + LOOK:
            return False
        upkeep.looked = now
        objective = Objective(regime.within.total_seconds(), task.owned.task.recovery.presumed)
        name, growth = task.owned.task.id, upkeep.growth
        lead = PAUSE if growth.lead is None else growth.lead
        if growth.lead is not None and name.stage not in self._unmet:
            self._check(name, objective, upkeep, lead, now)
        behind = Replay(max(1, growth.behind.parts), growth.behind.records)
        return objective.due(self._rates.of(name.stage), behind, growth.pace(now), lead, self._size(name), since)

    def _check(self, task: TaskId, objective: Objective, upkeep: TaskUpkeep, lead: float, now: float) -> None:
        """Say once for each stage that its objective cannot be met, and which can."""
        rates, pace, size = self._rates.of(task.stage), upkeep.growth.pace(now), self._size(task)
        least = objective.least(rates, pace, lead, size)
        if least > objective.seconds:
            self._unmet.add(task.stage)
            hint = f"{possible(least)} can be met; or give the stage more tasks, so that each has less"
            why = objective.unmet(task.stage, rates, pace, lead, size)
            logger.warning("%s (%s)", why, hint, extra={"task": str(task), "hint": hint})

    def _size(self, task: TaskId) -> int:
        return self._stores.sizes.get(task, 0)
