"""What the processes of an app report about themselves on its control topic, for `falkirk status` and others.

worker/OWNER    Announced         the last seconds of a worker
driver/STAGE    AnnouncedEpoch    an epoch that is under way, and where its engine shows it
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from falkirk.checkpoint.ports import LogRecord
from falkirk.connectors.kafka.app_topics.control import REPORTS, Announcer, ControlTopic
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.messages.protocol import EpochReport, Report, SentEpochReport, SentReport

WORKER, DRIVER = "worker/", "driver/"


class ReportSender:
    """Reports every few seconds, at best effort, and reports at the end that it is over."""

    def __init__(self, cluster: Cluster, control: str, run: str = "") -> None:
        """`run`: which run on Spark its workers belong to."""
        self._announcer, self._run = Announcer(cluster, control), run
        self._keys: set[str] = set()

    def due(self) -> bool:
        """Whether it is time to report."""
        return self._announcer.due()

    def say(self, workers: Iterable[Report], epochs: Iterable[EpochReport]) -> None:
        """The present state of workers and epochs. Never waits."""
        host, now = host_name(), WallClock().now()
        records: dict[str, bytes | None] = {
            WORKER + r.owner: msgspec.json.encode(SentReport(host, now, r, self._run)) for r in workers
        }
        for e in epochs:
            over = e.state in ("complete", "abandoned")
            if not over or DRIVER + e.stage in self._keys:
                records[DRIVER + e.stage] = None if over else msgspec.json.encode(SentEpochReport(host, now, e))
        self._keys = (self._keys | records.keys()) - {key for key, record in records.items() if record is None}
        if records:
            self._announcer.announce(records)

    def close(self) -> None:
        """Report that the workers have left and no longer drive the epochs. Waits a moment at most."""
        self._announcer.announce(dict.fromkeys(self._keys))
        self._announcer.close()


@dataclass(frozen=True, slots=True)
class ReceivedReports:
    """The last reports that were not withdrawn."""

    workers: dict[str, SentReport] = field(default_factory=dict)
    """By owner."""
    epochs: dict[str, SentEpochReport] = field(default_factory=dict)
    """By batch part."""


def read_reports(cluster: Cluster, control: str) -> ReceivedReports:
    """All reports on the control topic."""
    topic, heard = ControlTopic(cluster, control), ReceivedReports()
    try:
        records = topic.read(REPORTS)
    finally:
        topic.close()
    for record in records:
        key, value = (record.key or b"").decode(), record.value or b""
        # The app's state can be known without the reports of other versions of Falkirk.
        with suppress(msgspec.DecodeError):
            if key.startswith(WORKER):
                heard.workers.pop(owner := key.removeprefix(WORKER), None)
                heard.workers[owner] = _decode_announced(value)
            elif key.startswith(DRIVER):
                heard.epochs.pop(stage := key.removeprefix(DRIVER), None)
                heard.epochs[stage] = _decode_epoch(value)
    return heard


def announced(record: LogRecord) -> SentReport | None:
    """A worker's report, if the record is one."""
    if (record.key or b"").startswith(WORKER.encode()):
        with suppress(msgspec.DecodeError):
            return _decode_announced(record.value or b"")
    return None


# Made at import: the first decoding of a type builds its type information, and two threads that do so at once can crash.
_decode_announced = msgspec.json.Decoder(SentReport).decode
_decode_epoch = msgspec.json.Decoder(SentEpochReport).decode
