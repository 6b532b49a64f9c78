"""What a worker's sinks outside Kafka wrote is copied there, in threads beside its steps: one thread for each sink.

A thread publishes for the tasks that the worker runs. When the group gives a task to another worker, nothing waits for it:
two workers may publish the same rows, and each is published once (`falkirk.checkpoint.outlets`). A place that is away delays
no step and no other sink: the rows wait in Kafka. A worker that leaves publishes what is committed, for a bounded time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from falkirk.cadence import Cadence
from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Outlet, publish
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.reading.outbox import Outbox
from falkirk.errors import AwayError, ClusterError, FalkirkError
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.app.outlets import Databases, outlet_of
from falkirk.runtime.worker.task import RunningTask
from falkirk.stream.dataflow.topics import Output

AGAIN, RARELY = 0.5, 8.0
"""Seconds until a place that was away is tried again: at first, and at most, as they double each time."""
REMIND = 60.0
"""Seconds between two lines of the log about one outage."""
SLOW = 5.0
"""Seconds after which a turn that has not ended is reported: a dead mount gives no answer, not even an error."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long the last rows are waited for, in seconds."""

    writing: float
    """While they are being written."""
    away: float
    """While their place does not answer, or refuses."""
    then: str
    """What happens if they are not written by then."""


REST = Patience(60.0, 30.0, "the run ends with an error")
"""At the end of `--until end`."""
LEAVE = Patience(20.0, 5.0, "the worker ends without them: they wait in Kafka")
"""When a worker leaves."""
SAY, SAY_EVERY = 3.0, 10.0
"""Seconds after which such a wait is logged, and then between two lines."""
LOOK = 0.02
"""Seconds between two looks whether a sink is done."""


@dataclass(slots=True)
class Due:
    """A partition that is published here: how far it is, and when its next turn is."""

    at: Offset | None = None
    """Where its chain ends, if that is known."""
    when: float = 0.0
    pause: float = 0.0
    """Seconds from the last attempt that failed to the next one; 0: the last has not failed."""


@dataclass(frozen=True, slots=True)
class Outage:
    """Since when a place has been away, and what it said last."""

    since: datetime
    began: float
    """The same, by `time.monotonic()`."""
    error: FalkirkError

    def __str__(self) -> str:
        return f"wait since {self.since:%Y-%m-%d %H:%M:%SZ}: {self.error.what} ({self.error.where})"


class Publisher:
    """Publishes what one worker's tasks write for places outside Kafka."""

    def __init__(self, app: App, cluster: Cluster, databases: Databases) -> None:
        self._app, self._cluster, self._databases = app, cluster, databases
        self._needed = bool(places_of(app.tasks))
        """Whether any task of the app has such a sink."""
        self._sinks: dict[str, SinkPublisher] = {}

    def tick(self, tasks: Collection[RunningTask]) -> None:
        """Publish for these tasks from now on. Raises what has ended a thread. Waits for nothing."""
        if self._needed:
            self._follow(places_of(task.bound for task in tasks))

    def _follow(self, wanted: Mapping[TopicPartition, Output]) -> None:
        by_sink: dict[str, list[TopicPartition]] = {id_: [] for id_ in self._sinks}
        for place, output in wanted.items():
            by_sink.setdefault(output.id, []).append(place)
            if output.id not in self._sinks:
                self._sinks[output.id] = SinkPublisher(self._app, self._cluster, output, self._databases)
        for id_, places in by_sink.items():
            self._sinks[id_].follow(places)

    def waits(self) -> str:
        """What it waits for and since when, in words; "" if nothing is unusual."""
        return "; ".join(filter(None, (sink.waits() for sink in self._sinks.values())))

    def close(self, patience: Patience = LEAVE) -> None:
        """Publish all that is committed, for a bounded time. The tasks may have another owner by now."""
        for sink in self._finish(patience):
            logger.warning("the last %s of sink %s are not written yet, but wait in Kafka; the app's next run writes them%s",
                           sink.what, sink.id, f": {why}" if (why := sink.waits()) else "")  # fmt: skip

    def publish_rest(self, patience: Patience) -> None:
        """Publish all that is committed of all tasks. Raises AwayError if it is not done in time."""
        self._follow(places_of(self._app.tasks))
        late = self._finish(patience)
        for sink in self._sinks.values():
            sink.check()
        if late:
            raise AwayError(
                f"all is processed, but the last rows of {', '.join(sorted(sink.id for sink in late))} are not written yet",
                where="; ".join(filter(None, (sink.waits() for sink in late))),
                hint="nothing is lost: the rows wait in Kafka, and the app's next run writes them",
            )

    def _finish(self, patience: Patience) -> list[SinkPublisher]:
        """Those that have not written all in time."""
        began, lines = time.monotonic(), Cadence(SAY, SAY_EVERY)
        late: list[SinkPublisher] = []
        waiting = list(self._sinks.values())
        for sink in waiting:
            sink.leave()
        while waiting := [sink for sink in waiting if not sink.has_left(LOOK)]:
            now = time.monotonic()
            left = {sink: sink.patience_left(patience, began, now) for sink in waiting}
            late += [sink for sink in waiting if left[sink] <= 0]
            waiting = [sink for sink in waiting if left[sink] > 0]
            if waiting and lines.due(now, began):
                words = "; ".join(
                    sink.waits() or f"{sink.what} of sink {sink.id} are being written" for sink in waiting
                )
                logger.warning("waiting for the last rows: %s; if they are not written in %.0f s, %s",
                               words, min(left[sink] for sink in waiting), patience.then)  # fmt: skip
        return late


class SinkPublisher:
    """Publishes the partitions of one sink, in a thread of its own."""

    def __init__(self, app: App, cluster: Cluster, output: Output, databases: Databases) -> None:
        assert output.outlet is not None
        self._app, self._cluster, self._output, self._databases = app, cluster, output, databases
        self._plan = output.outlet
        self.id, self.what = output.id, output.outlet.what
        self._outlet: Outlet[Any] | None = None
        self._due: dict[TopicPartition, Due] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._leaving = False
        self._failed: BaseException | None = None
        self._turn: float | None = None
        """Since when it waits for an answer."""
        self._outage: Outage | None = None
        self._reminders = Cadence(after=0, every=REMIND)

    def follow(self, places: Collection[TopicPartition]) -> None:
        """Publish these partitions from now on. Raises what has ended the thread."""
        self.check()
        for place in [place for place in self._due if place not in places]:
            self._due.pop(place)
        for place in places:
            self._due.setdefault(place, Due())
        if self._thread is None and self._due:
            self._thread = threading.Thread(target=self._run, name=f"falkirk-{self.id}", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """Raises what has ended the thread."""
        if self._failed is not None:
            raise self._failed

    def waits(self) -> str:
        """What it waits for and since when, in words; "" if nothing is unusual."""
        if (outage := self._outage) is not None:
            return f"{self.what} {outage}"
        if (since := self._turn) is None or time.monotonic() - since < SLOW:
            return ""
        return f"{self.what} of sink {self.id}: no answer for {time.monotonic() - since:.0f} s"

    def leave(self) -> None:
        """End when all that is committed is published."""
        self._leaving = True
        self._wake.set()

    def patience_left(self, patience: Patience, began: float, now: float) -> float:
        """Seconds for which the last rows are still waited for, since `began`."""
        writing, outage = began + patience.writing - now, self._outage
        return writing if outage is None else min(writing, max(began, outage.began) + patience.away - now)

    def has_left(self, seconds: float) -> bool:
        """Whether it ends within this time, or has failed before."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self._due or self._failed is not None

    def _run(self) -> None:
        try:
            outbox, leaving = Outbox(self._cluster), False
            self._outlet = outlet_of(self._app, self._output, self._databases)
            while self._due or not leaving:
                if self._leaving and not leaving:
                    leaving = True
                    for due in list(self._due.values()):
                        due.when = due.pause = 0.0
                for place, due in list(self._due.items()):
                    if due.when <= time.monotonic():
                        self._advance(outbox, place, due, last=leaving)
                self._wake.wait(0.1)
                self._wake.clear()
        except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
            self._failed = error

    def _advance(self, outbox: Outbox, place: TopicPartition, due: Due, *, last: bool) -> None:
        """One turn. `last`: the worker leaves, and this is the last one that finds all decided and nothing left."""
        assert self._outlet is not None
        self._turn = time.monotonic()
        try:
            # A commit may have returned a moment before its rows can be read.
            decided = not last or outbox.is_decided(place)
            due.at, more = driver.run(publish(outbox, self._outlet, place, due.at))
        except (AwayError, ClusterError) as error:
            due.pause = min(2 * due.pause, RARELY) or AGAIN
            due.when = time.monotonic() + due.pause
            self._lost(error)
            return
        finally:
            self._turn = None
        due.pause = 0.0
        self._answered()
        if more or not decided:
            return
        due.when = time.monotonic() + self._plan.every.total_seconds()
        if last:
            self._due.pop(place, None)

    def _lost(self, error: FalkirkError) -> None:
        before, now = self._outage, time.monotonic()
        self._outage = Outage(datetime.now(UTC), now, error) if before is None else replace(before, error=error)
        if self._reminders.due(now):
            logger.warning("%s %s; retrying; nothing is lost: the rows wait in Kafka", self.what, self._outage,
                           extra={"where": error.where, "hint": error.hint})  # fmt: skip

    def _answered(self) -> None:
        if self._outage is not None:
            logger.warning("%s are written again; they had to wait since %s", self.what,
                           f"{self._outage.since:%Y-%m-%d %H:%M:%SZ}")  # fmt: skip
            self._outage, self._reminders = None, Cadence(after=0, every=REMIND)


def publish_rest(app: App, cluster: Cluster, databases: Databases, patience: Patience = REST) -> None:
    """Publish all that is committed of an app whose workers have left. A task may have moved at the end from one that left to
    one that never ran it, or its worker was killed. Raises AwayError if it is not done in time."""
    Publisher(app, cluster, databases).publish_rest(patience)


def places_of(tasks: Iterable[BoundTask]) -> Mapping[TopicPartition, Output]:
    """What these tasks write for places outside Kafka."""
    return {
        TopicPartition(output.topic, bound.task.id.partition): output
        for bound in tasks
        for output in bound.stage.outputs
        if output.outlet is not None
    }
