"""Which worker runs a task, as the workers of an app report it on the control topic.

A report is some seconds old, and may be wrong: whoever is asked says so (`falkirk.runtime.query.router`).
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import NamedTuple

from falkirk.checkpoint.ids import TopicPartition
from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.app_topics.control import REPORTS, Tail
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.errors import FalkirkError
from falkirk.runtime.messages.protocol import REBUILDING, SentReport
from falkirk.runtime.messages.reports import WORKER, announced

LOOK, HURRY = 1.0, 0.1
"""Seconds between two looks; and at least, if what is known was wrong."""


class Owner(NamedTuple):
    """A worker that has reported that it runs a task."""

    worker: str
    host: str
    url: str
    """Where it answers; "": nowhere."""


class Owners:
    """Of all tasks of an app. Listens in its own thread: a cluster that does not answer blocks nothing else."""

    def __init__(self) -> None:
        self._reports: dict[str, SentReport] = {}
        self._closed = threading.Event()
        self._look = threading.Event()

    def listen(self, cluster: Cluster, control: str) -> None:
        """Begin."""
        threading.Thread(target=self._listen, args=(cluster, control), name="falkirk-owners", daemon=True).start()

    def take(self, record: LogRecord) -> None:
        """A record of the control topic."""
        key = (record.key or b"").decode(errors="replace")
        if not key.startswith(WORKER):
            return
        reports = {owner: sent for owner, sent in self._reports.items() if owner != key.removeprefix(WORKER)}
        if (sent := announced(record)) is not None:
            reports[sent.report.owner] = sent
        self._reports = reports  # whoever reads the old one may go on

    def of(self, task: str) -> Owner | None:
        """The worker that reported last that it runs the task; None if none did, or none still does.

        >>> import msgspec
        >>> from falkirk.runtime.messages.protocol import Report, TaskReport
        >>> owners = Owners()
        >>> for worker, url in (("a", "http://h:1"), ("b", "http://h:2")):
        ...     report = Report(0, worker, 1, [TaskReport("stats/0", "running")], query=url)
        ...     owners.take(LogRecord(0, b"worker/" + worker.encode(), msgspec.json.encode(SentReport("h", 0, report))))
        >>> owners.of("stats/0"), owners.of("stats/1")
        (Owner(worker='b', host='h', url='http://h:2'), None)
        >>> owners.take(LogRecord(1, b"worker/b", None))
        >>> owners.of("stats/0").worker
        'a'
        """
        for sent in reversed(self._reports.values()):
            if any(t.task == task and t.phase in ("running", REBUILDING) for t in sent.report.tasks):
                return Owner(sent.report.owner, sent.host, sent.report.query)
        return None

    def hurry(self) -> None:
        """What is known was wrong: look now."""
        self._look.set()

    def close(self) -> None:
        """Stop listening."""
        self._closed.set()
        self._look.set()

    def _listen(self, cluster: Cluster, control: str) -> None:
        with closing(Tail(cluster, TopicPartition(control, REPORTS))) as tail:
            while not self._closed.is_set():
                try:
                    for record in tail.look():
                        self.take(record)
                except FalkirkError as error:
                    logger.debug("the owners of tasks are not known: %s", error)
                self._closed.wait(HURRY)
                self._look.wait(LOOK - HURRY)
                self._look.clear()
