"""What a worker's sinks of files wrote becomes files, in a thread beside its steps.

The thread publishes for the tasks that the worker runs. When the group gives a task to another worker, nothing waits for it:
two workers may publish the same rows, and each is in one file (`falkirk.checkpoint.outlets`). A place that is away delays no
step: the rows wait in Kafka. A worker that leaves publishes what is committed, for a bounded time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from falkirk.cadence import Cadence
from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.outlets import Outlet, publish
from falkirk.connectors.files.parquet import ParquetOutlet
from falkirk.connectors.files.places import place_at
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.reading.outbox import Outbox
from falkirk.errors import AwayError, ClusterError, FalkirkError
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.worker.task import RunningTask
from falkirk.stream.dataflow.topics import Output

AGAIN = 2.0
"""Seconds until a place that was away is tried again."""
REMIND = 60.0
"""Seconds between two lines of the log about one outage."""
SLOW = 5.0
"""Seconds after which a turn that has not ended is reported: a dead mount gives no answer, not even an error."""
REST = 60.0
"""Seconds that the end of `--until end` gives the last files."""
LEAVE = 20.0
"""Seconds that a worker which leaves gives its last files."""


@dataclass(slots=True)
class Due:
    """A partition that is published here."""

    output: Output
    at: Offset | None = None
    """Where its files end, if that is known."""
    when: float = 0.0


class Publisher:
    """For one worker."""

    def __init__(self, app: App, cluster: Cluster) -> None:
        self._app, self._cluster = app, cluster
        self._needed = bool(places_of(app.tasks))
        """Whether any task of the app has such a sink."""
        self._outlets: dict[str, ParquetOutlet] = {}
        self._due: dict[TopicPartition, Due] = {}
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._leaving = False
        self._failed: BaseException | None = None
        self._turn: tuple[str, float] | None = None
        """What is being asked now, and since when."""
        self._outage: tuple[datetime, FalkirkError] | None = None
        self._reminders = Cadence(after=0, every=REMIND)

    def tick(self, tasks: Collection[RunningTask]) -> None:
        """Publish for these tasks from now on. Raises what has ended the thread. Waits for nothing."""
        if self._failed is not None:
            raise self._failed
        if self._needed and ((wanted := places_of(task.bound for task in tasks)) or self._due):
            self._follow(wanted)

    def _follow(self, wanted: Mapping[TopicPartition, Output]) -> None:
        for place in [place for place in self._due if place not in wanted]:
            self._due.pop(place)
        for place, output in wanted.items():
            if place not in self._due:
                self._due[place] = Due(output)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="falkirk-files", daemon=True)
            self._thread.start()

    def waits(self) -> str:
        """What it waits for and since when, in words; "" if nothing is unusual."""
        if (outage := self._outage) is not None:
            return _words(*outage)
        turn = self._turn
        if turn is None or time.monotonic() - turn[1] < SLOW:
            return ""
        return f"files at {turn[0]}: no answer for {time.monotonic() - turn[1]:.0f} s"

    def close(self, seconds: float = LEAVE) -> None:
        """Publish all that is committed, for at most this long. The tasks may have another owner by now."""
        if self._thread is None or self._failed is not None:
            return
        self._finish(seconds)
        if self._due:
            why = f": {self._outage[1].what} ({self._outage[1].where})" if self._outage is not None else ""
            logger.warning("the last rows of %s are not in files yet, but wait in Kafka; the app's next run publishes "
                           "them%s", self._names(), why)  # fmt: skip

    def _finish(self, seconds: float) -> None:
        self._leaving = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _names(self) -> str:
        return ", ".join(sorted({due.output.id for due in self._due.values()}))

    def _run(self) -> None:
        try:
            outbox, leaving = Outbox(self._cluster), False
            while self._due or not leaving:
                if self._leaving and not leaving:
                    leaving = True
                    for due in list(self._due.values()):
                        due.when = 0.0
                for place, due in list(self._due.items()):
                    if due.when <= time.monotonic():
                        self._advance(outbox, place, due, last=leaving)
                self._wake.wait(0.1)
                self._wake.clear()
        except BaseException as error:  # noqa: BLE001  # it is raised again in the main thread
            self._failed = error

    def _advance(self, outbox: Outbox, place: TopicPartition, due: Due, *, last: bool) -> None:
        """One turn. `last`: the worker leaves, and this is the last one that finds all decided and nothing left."""
        files = due.output.files
        assert files is not None
        self._turn = (files.url, time.monotonic())
        try:
            # A commit may have returned a moment before its rows can be read.
            decided = not last or outbox.is_decided(place)
            due.at, more = driver.run(publish(outbox, self._outlet(due.output), place, due.at))
        except (AwayError, ClusterError) as error:
            due.when = time.monotonic() + AGAIN
            self._lost(error)
            return
        finally:
            self._turn = None
        self._answered()
        if more or not decided:
            return
        due.when = time.monotonic() + files.every.total_seconds()
        if last:
            self._due.pop(place, None)

    def _outlet(self, output: Output) -> Outlet:  # type: ignore[type-arg]  # of Parquet's rows
        if output.id not in self._outlets:
            assert output.files is not None
            topic = self._app.topics[output.topic]
            place = place_at(output.files.url)
            self._outlets[output.id] = ParquetOutlet(place, self._app.name, output.id, topic.id)
        return self._outlets[output.id]

    def _lost(self, error: FalkirkError) -> None:
        since = datetime.now(UTC) if self._outage is None else self._outage[0]
        self._outage = (since, error)
        if self._reminders.due(time.monotonic()):
            logger.warning("%s; retrying; nothing is lost: the rows wait in Kafka", _words(since, error),
                           extra={"where": error.where, "hint": error.hint})  # fmt: skip

    def _answered(self) -> None:
        if self._outage is not None:
            logger.warning(
                "files are written again; they had to wait since %s", f"{self._outage[0]:%Y-%m-%d %H:%M:%SZ}"
            )
            self._outage, self._reminders = None, Cadence(after=0, every=REMIND)


def publish_rest(app: App, cluster: Cluster, seconds: float = REST) -> None:
    """Publish all that is committed of an app whose workers have left. A task may have moved at the end from one that left to
    one that never ran it, or its worker was killed. Raises AwayError if it is not done in time."""
    places = places_of(app.tasks)
    if not places:
        return
    rest = Publisher(app, cluster)
    rest._follow(places)
    rest._finish(seconds)
    if rest._failed is not None:
        raise rest._failed
    if rest._due:
        raise AwayError(
            f"all is processed, but the last rows of {rest._names()} are not in files yet",
            where=rest.waits(),
            hint="nothing is lost: the rows wait in Kafka, and the app's next run publishes them",
        )


def places_of(tasks: Iterable[BoundTask]) -> Mapping[TopicPartition, Output]:
    """What these tasks write for files."""
    return {
        TopicPartition(output.topic, bound.task.id.partition): output
        for bound in tasks
        for output in bound.stage.outputs
        if output.files is not None
    }


def _words(since: datetime, error: FalkirkError) -> str:
    return f"files wait since {since:%Y-%m-%d %H:%M:%SZ}: {error.what} ({error.where})"
