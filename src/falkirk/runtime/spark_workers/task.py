"""The work of a Spark task: the supervision of one worker, as long as that is to run.

    the worker is killed, or crashes      another process takes its place, here, under the same identity
    it ends with a lasting error          the task returns it: no retry can fix it
    the task's own process is killed      the worker dies with it, and Spark runs the task again, here or elsewhere
    the order to leave                    SIGTERM, and the task returns when the worker has left

The state directory belongs to the host: the next task there, whichever it is, finds identities and stores again. A worker on
another host is another member of the group; the tasks move to it when the session of the earlier one has ended.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from falkirk.errors import DiskError, FalkirkError
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Ended, Line, WorkerEvent
from falkirk.runtime.messages.orders import LeaveListener
from falkirk.runtime.messages.protocol import BUG, Report, answers, lost, merged
from falkirk.runtime.messages.reports import ReportSender
from falkirk.runtime.processes.supervisor import Supervisor
from falkirk.runtime.spark_workers.parcel import Parcel

Failure = tuple[str, str, int]
"""An error's class, its words, and its exit code."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every task of a run is given."""

    parcel: Parcel
    settings: Settings
    """An empty state directory means one of the host's own."""
    control: str
    run: str


def host(slot: int, assignment: bytes) -> Failure | None:
    """Be the host of worker `slot`, until told to leave; or until it fails for good: then returns how."""
    work: Assignment = pickle.loads(assignment)
    settings = replace(work.settings, state_dir=work.settings.state_dir or str(own_state_dir()))
    cluster = settings.cluster()
    with (
        work.parcel.unpacked() as (folder, target),
        closing(LeaveListener(cluster, work.control, work.run)) as orders,
        closing(ReportSender(cluster, work.control, work.run)) as announcing,
    ):
        # Falkirk may come only from spark.submit.pyFiles, which the environment does not show.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
        with Supervisor(target, settings, slots=[slot], spare_after=inf) as supervisor:
            try:
                supervisor.run(orders.leave.is_set, Forward(announcing))
            except FalkirkError as error:
                where = f"\n  where: {host_name()}, and its executor's standard error" if error.exit_code == BUG else ""
                return type(error).__name__, f"{error}{where}", error.exit_code
    return None


class Forward:
    """Sends a worker's reports to the control topic, combined; all else to the executor's log."""

    def __init__(self, announcing: ReportSender) -> None:
        self._announcing = announcing
        self._reports: list[Report] = []
        self._last: Report | None = None
        self._said: object = None

    def __call__(self, news: WorkerEvent) -> None:
        """Never waits."""
        if isinstance(news, Report):
            self._reports.append(news)
            self._last = news
            now = [(t.task, t.phase) for t in news.tasks], answers(news)
            if self._announcing.due() or now != self._said:
                self._announcing.say([merged(self._reports)], ())
                self._reports, self._said = [], now
        elif isinstance(news, Ended | Line):
            if isinstance(news, Ended) and news.slot is not None and self._last is not None:
                if self._reports:
                    self._announcing.say([merged(self._reports)], ())
                self._announcing.say([lost(self._last)], ())
                self._reports, self._last, self._said = [], None, None
            print(news, file=sys.stderr, flush=True)  # noqa: T201


def own_state_dir() -> Path:
    """The state directory of this host for workers on Spark, for any application. Raises DiskError if it is another
    user's."""
    folder = Path(tempfile.gettempdir(), f"falkirk-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        ours = folder.stat().st_uid == os.getuid()
    except OSError as error:
        raise DiskError(f"cannot use the state directory: {error.strerror}", where=str(folder)) from error
    if not ours:
        raise DiskError(
            "the state directory is another user's", where=str(folder), hint="choose another with --state-dir"
        )
    return folder
