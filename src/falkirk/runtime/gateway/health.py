"""Whether the app can answer now, as its control topic says: the requests of people, and the reports of workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from contextlib import closing

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.http.messages import Reply, refused
from falkirk.connectors.kafka.app_topics.control import LAYOUT, REPORTS, Tail
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.errors import FalkirkError
from falkirk.runtime.messages.protocol import REBUILDING, STOPPED, Report
from falkirk.runtime.messages.reports import WORKER, announced
from falkirk.runtime.messages.requests import CurrentRequests

LOOK = 0.5
"""Seconds between two looks."""

MOMENT = 0.05
"""Seconds."""

SILENT = 15.0
"""Seconds without a report, after which a worker does not count. They report every five."""


class Health:
    """Of one app. Listens in its own thread; what it has heard is read by others."""

    def __init__(self) -> None:
        self._requests = CurrentRequests()
        self._reports: Mapping[str, tuple[float, Report]] = {}
        """By worker, with the time from which on they count as silent."""
        self._closed = threading.Event()
        self._said: dict[Collection[str], tuple[float, Reply | None]] = {}

    def listen(self, cluster: Cluster, control: str) -> None:
        """Begin."""
        threading.Thread(target=self._listen, args=(cluster, control), name="falkirk-health", daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()

    def take_request(self, record: LogRecord) -> None:
        """A record of the first partition of the control topic."""
        self._requests = self._requests.after(record)

    def take_report(self, record: LogRecord, now: float, date: float | None = None) -> None:
        """A record of the second one. `now`: seconds of a clock that only goes on. `date`: seconds since 1970, for a record
        that is not new: it counts from its own date."""
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(WORKER):
            return
        reports = {owner: known for owner, known in self._reports.items() if owner != key.removeprefix(WORKER)}
        if (sent := announced(record)) is not None:
            age = 0.0 if date is None else max(0.0, date - sent.at / 1000)
            reports[sent.report.owner] = (now - age + SILENT, sent.report)
        self._reports = reports  # whoever reads the old one may go on

    def lately(self, now: float, stages: frozenset[str]) -> Reply | None:
        """`why_not`, not older than a moment: it is asked for each request."""
        since, said = self._said.get(stages, (-1.0, None))
        if now - since > MOMENT:
            said = self.why_not(now, stages)
            self._said[stages] = (now, said)
        return said

    def why_not(self, now: float, stages: Collection[str]) -> Reply | None:
        """Why the app does not take requests that pass these stages; None: it does. What other stages do is none of their
        business. (A stage that has another name in the app than in the flow tells nothing: it is not waited for.)

        >>> import msgspec
        >>> from falkirk.runtime.messages.protocol import SentReport, TaskReport
        >>> health = Health()
        >>> health.why_not(0.0, {"shop"}).body
        b'{"error":"no worker of the app runs"}'
        >>> for phase in ("rolling", "running"):
        ...     report = Report(0, "a", 1, [TaskReport("shop/0", phase)], member=True)
        ...     health.take_report(LogRecord(0, b"worker/a", msgspec.json.encode(SentReport("h", 0, report))), 10.0)
        ...     health.why_not(11.0, {"shop"}), health.why_not(11.0, {"other"})
        (Reply(status=503, body=b'{"error":"the app recovers"}', again=1), None)
        (None, None)
        >>> health.take_request(LogRecord(0, b"asked/pause", b'{"by":"ann@h","at":7}'))
        >>> health.why_not(11.0, {"shop"}).body
        b'{"error":"the app is paused"}'
        >>> health.take_request(LogRecord(1, b"asked/pause", None))
        >>> health.why_not(11.0, {"shop"}), health.why_not(26.0, {"shop"}).status
        (None, 503)
        """
        if self._requests.pause is not None:
            return refused(503, "the app is paused", again=5)
        tasks = [task for silent, report in self._reports.values() if now < silent for task in report.tasks]
        if not tasks:
            return refused(503, "no worker of the app runs", again=5)
        phases = {task.phase for task in tasks if task.task.rpartition("/")[0] in stages}
        if STOPPED in phases or not self._requests.stopped().keys().isdisjoint(stages):
            return refused(503, "a part of the app has stopped", again=30)
        if phases - {"running", REBUILDING}:
            return refused(503, "the app recovers", again=1)
        return None

    def _listen(self, cluster: Cluster, control: str) -> None:
        first = True
        with (
            closing(Tail(cluster, TopicPartition(control, LAYOUT))) as asked,
            closing(Tail(cluster, TopicPartition(control, REPORTS))) as reports,
        ):
            while not self._closed.is_set():
                try:
                    for record in asked.look():
                        self.take_request(record)
                    for record in reports.look():
                        self.take_report(record, time.monotonic(), time.time() if first else None)
                    first = False
                except FalkirkError as error:
                    logger.debug("the state of the app is not known: %s", error)
                self._closed.wait(LOOK)
