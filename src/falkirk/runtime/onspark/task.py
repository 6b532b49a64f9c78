"""What a task of Spark's does: the supervision of one worker, for as long as it is to run.

    the worker is killed, or crashes      another process takes its place, here, under the same identity
    it ends with an error to stay         the task returns it: no repetition mends that
    the task's own process is killed      the worker dies with it, and Spark runs the task again, here or elsewhere
    the order to leave                    SIGTERM, and the task returns when the worker has left

The state directory is the host's: identities and stores are found again by whatever task runs there next. A worker on
another host is another member of the group; the tasks move to it when the session of the one before has ended.
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

from falkirk.errors import DiskError
from falkirk.runtime.announcing import Announcing
from falkirk.runtime.identity import host_name
from falkirk.runtime.news import Ended, Line, News
from falkirk.runtime.onspark.orders import Orders
from falkirk.runtime.onspark.parcel import Parcel
from falkirk.runtime.protocol import BUG, Report, answers, merged
from falkirk.runtime.settings import Settings
from falkirk.runtime.supervisor import Supervisor, WorkerFailed

Failure = tuple[str, int]
"""An error's words, and its exit code."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What every task of a run is given."""

    parcel: Parcel
    settings: Settings
    """With an empty state directory for one of the host's own."""
    control: str
    run: str


def host(slot: int, assignment: bytes) -> Failure | None:
    """Be the host of worker `slot`, until told to leave; or until it fails for good: then how."""
    work: Assignment = pickle.loads(assignment)
    settings = replace(work.settings, state_dir=work.settings.state_dir or str(own_state_dir()))
    cluster = settings.cluster()
    with (
        work.parcel.unpacked() as (folder, target),
        closing(Orders(cluster, work.control, work.run)) as orders,
        closing(Announcing(cluster, work.control, work.run)) as announcing,
    ):
        # Falkirk may be here by spark.submit.pyFiles alone, which the environment does not tell.
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, sys.path)])
        with Supervisor(target, settings, slots=[slot], spare_after=inf) as supervisor:
            try:
                supervisor.run(orders.leave.is_set, Forward(announcing))
            except WorkerFailed as error:
                where = f"\n  where: {host_name()}, and its executor's standard error" if error.exit_code == BUG else ""
                return f"{error}{where}", error.exit_code
    return None


class Forward:
    """A worker's reports to the control topic, summed up; all else to the executor's log."""

    def __init__(self, announcing: Announcing) -> None:
        self._announcing = announcing
        self._reports: list[Report] = []
        self._said: object = None

    def __call__(self, news: News) -> None:
        """Never waits."""
        if isinstance(news, Report):
            self._reports.append(news)
            now = [(t.task, t.phase) for t in news.tasks], answers(news)
            if self._announcing.due() or now != self._said:
                self._announcing.say([merged(self._reports)], ())
                self._reports, self._said = [], now
        elif isinstance(news, Ended | Line):
            print(news, file=sys.stderr, flush=True)  # noqa: T201


def own_state_dir() -> Path:
    """The state directory of this host for workers on Spark, whatever the application. Raises DiskError where it is
    another user's."""
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
