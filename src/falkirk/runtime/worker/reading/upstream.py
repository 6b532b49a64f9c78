"""Tables that reach their stage through an exchange: whether all is there that their topics held when this worker began.

    loaded(stage)  ⇐  done(every task before its tables, up to where the sources ended)      (`until_end`)
                      and its tables are read as far as their edges went then

Without it, the first rows of a stream would be looked up before the rows of a table that was there long before them: both
are on their way. It is asked once in a worker's life: later, a row of the stream and a row of the table that come at the same
time are in no order anyway.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from falkirk.cadence import Cadence
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.stream.stages.plan import Stage

PERIOD = 0.1
"""Seconds between two looks at the tasks before."""

SAY_AFTER, SAY_EVERY = 15.0, 60.0
"""Seconds until such a wait is logged, and then logged again."""


class UpstreamTables:
    """Follows the tasks before the tables, in a thread of its own, until all is there. Does nothing for a flow without such
    tables."""

    def __init__(self, app: App, cluster: Cluster, topics: Topics) -> None:
        self._app, self._cluster, self._topics = app, cluster, topics
        self._marks: dict[str, Mapping[TopicPartition, Offset]] = {}
        """By stage: where the edges of its tables ended, once all was there."""
        self._error: Exception | None = None
        self._closed = threading.Event()
        # A shadow reads only as far as the app beside it has read: it would never come to the sources' ends.
        beside = any(task.until is not None for task in app.tasks)
        stages = [] if beside else [stage for stage in app.plan.stages if exchanged(stage)]
        self._waiting = {stage.id for stage in stages}
        if stages:
            threading.Thread(target=self._follow, args=(stages,), name="falkirk-upstream", daemon=True).start()

    def loaded(self, task: BoundTask, ends: Mapping[TopicPartition, Offset]) -> bool:
        """Whether a task that has read its tables up to these ends has all that was there. Raises what went wrong in finding
        that out."""
        if self._error is not None:
            raise self._error
        if task.stage.id in self._waiting:
            return False
        marks = self._marks.get(task.stage.id, {})
        return all(ends.get(i.place, Offset(0)) >= marks.get(i.place, 0) for i in task.inputs)

    def close(self) -> None:
        """Follow no more."""
        self._closed.set()

    def _follow(self, stages: Sequence[Stage]) -> None:
        began, cadence = time.monotonic(), Cadence(SAY_AFTER, SAY_EVERY)
        try:
            followed = {s: UntilEnd(self._app, self._cluster, self._topics, stages=self._before(s)) for s in stages}
            while followed and not self._closed.wait(PERIOD):
                for stage in [stage for stage, before in followed.items() if before.finished()]:
                    followed.pop(stage).close()
                    edges = [i.place for b in self._app.tasks if b.stage is stage for i in b.inputs if i.input.table]
                    self._marks[stage.id] = self._topics.offsets(edges, "latest")
                    self._waiting.discard(stage.id)
                if followed and cadence.due(now := time.monotonic(), began):
                    words = (
                        "%s: the stream waits until its tables have what their topics held at the start (for %.0f s)"
                    )
                    logger.warning(words, ", ".join(stage.id for stage in followed), now - began)
            for before in followed.values():
                before.close()
        except Exception as error:  # noqa: BLE001  # whatever it is, the stream must not wait for it in silence
            self._error = error

    def _before(self, stage: Stage) -> list[Stage]:
        """The stages that write its tables, and all before them."""
        topics = {i.topic for i in stage.inputs if i.table}
        found: list[Stage] = []
        for other in reversed(self._app.plan.stages):
            if any(o.topic in topics for o in other.outputs):
                found.append(other)
                topics |= {i.topic for i in other.inputs}
        return found


def exchanged(stage: Stage) -> bool:
    """Whether tables of a stage come through an exchange, and a stream looks up in them."""
    return any(i.table and i.kind == "edge" for i in stage.inputs) and not all(i.table for i in stage.inputs)
