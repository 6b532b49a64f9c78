"""Which worker has each task of an app, on which host, and what it says of the task.

owner     steps topic         the worker that was named or stepped last; nobody after a release
host      steps topic         its name says it. An old name may be trimmed: then
          reports             its worker's last one, however old
          steps topic         a name of the same worker in another task
report    control topic       some seconds old. It counts only if the group and the records do not contradict it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from falkirk.checkpoint.ids import Nonce, worker_of
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Named, Released
from falkirk.connectors.kafka.admin.members import Group
from falkirk.runtime.messages.protocol import Report, SentReport, TaskReport

FRESH_MS = 20_000
"""The age up to which reports are trusted. They are sent every five seconds."""


class TaskOwner(NamedTuple):
    """What is known of one task beside its progress."""

    worker: str | None = None
    host: str | None = None
    report: Report | None = None
    """The owner's report, if it is trusted and has the task."""
    said: TaskReport | None = None
    """The task in it."""
    silent_ms: int | None = None
    """The age of the owner's last report, if it is too old to be trusted although the owner is a member of the group."""


def owners_of(
    tasks: Sequence[str], histories: Sequence[Records], group: Group, heard: Mapping[str, SentReport], now: int
) -> list[TaskOwner]:
    """The owner of each task. `tasks` are in the order of their partitions in the steps topic, and so are `histories`, their
    last records. `heard`: the last reports, by worker. `now`: milliseconds since 1970."""
    names = [r for records in histories for _, r in records if isinstance(r, Named) and r.host]
    by_nonce = {name.nonce: name.host for name in names}
    by_worker = {worker_of(name.owner): name.host for name in names}
    found = []
    for partition, (task, records) in enumerate(zip(tasks, histories, strict=True)):
        if (owner := _owner(records)) is None:
            found.append(TaskOwner())
            continue
        worker, nonce = owner
        sent = heard.get(worker)
        host = by_nonce.get(nonce) or (sent.host if sent is not None else None) or by_worker.get(worker)
        if sent is None or not _has(group, worker, partition):
            found.append(TaskOwner(worker, host))
        elif now - sent.at >= FRESH_MS:
            found.append(TaskOwner(worker, host, silent_ms=now - sent.at))
        else:
            said = next((t for t in sent.report.tasks if t.task == task), None)
            found.append(TaskOwner(worker, host, sent.report if said is not None else None, said))
    return found


def _owner(records: Records) -> tuple[str, Nonce] | None:
    """The worker that was named or stepped last, and the ownership; None after a release."""
    last = records[-1][1] if records else None
    return None if last is None or isinstance(last, Released) else (worker_of(last.owner), last.nonce)


def _has(group: Group, worker: str, partition: int) -> bool:
    """Whether the worker may have the task, by the group. During a rebalance it does not say what each member has."""
    member = group.members.get(worker)
    return member is not None and (not group.stable or partition in member.partitions)
