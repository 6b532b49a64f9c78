"""What a failure would touch, and what a recovery from it would take, in a form for people and programs."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from falkirk.checkpoint.planning import Lost, RecoveryPlan, TaskPlan
from falkirk.errors import ConfigError
from falkirk.runtime.inspect.status import Status
from falkirk.wording import counted, listed


class Failure(NamedTuple):
    """What dies, and with it."""

    kind: Literal["host", "worker"]
    name: str
    workers: frozenset[str]
    tasks: frozenset[str]
    """That these workers own."""

    @property
    def lost(self) -> Lost:
        """A host takes its disk along. A worker does not: a spare on its host has the same stores."""
        return Lost(self.tasks, self.name if self.kind == "host" else "")


class Work(msgspec.Struct, frozen=True):
    """What a take-over takes, in seconds. A version is fetched while the task is named."""

    name: float
    open: float
    fetch: float
    replay: float


class TaskRecovery(msgspec.Struct, frozen=True):
    """One task that would be taken over."""

    task: str
    regime: str
    worker: str | None
    back_to: int
    """The step that it continues after; −1: its beginning."""
    begins_with: Literal["local", "copied", "nothing"] | None
    """Its store on the host, a copied version, or an empty store. Null: nothing is left that leads to its last step."""
    version: int | None
    """The step of that state; null: no step."""
    bytes: int
    """To fetch."""
    steps: int
    """To run again."""
    records: int
    """To read again: of the recorded steps, or of the changelog; of the latter at most."""
    log: str
    """Where they are; "": nothing is replayed."""
    work: Work
    runs_s: float
    """Seconds until it runs, after the failure was noticed, with the wait for others."""
    presumed: list[str]
    """The parts of `work` that no take-over has shown yet."""


class Back(msgspec.Struct, frozen=True):
    """Another task that must go back, too."""

    task: str
    back_to: int


class Answer(msgspec.Struct, frozen=True):
    """The plan of a recovery, without a failure."""

    app: str
    dies: str
    kind: str
    workers: list[str]
    """Those that end."""
    takers: list[str]
    """Those that take their tasks over; empty: nobody is left to."""
    noticed_s: float
    """Seconds until the failure is noticed, at most."""
    seconds: float
    """Until all that can run again do, after that."""
    tasks: list[TaskRecovery]
    also: list[Back]
    stay: int
    """How many tasks are not touched."""


def failure(name: str, status: Status) -> Failure:
    """What a name means: a task stands for its worker, because that is what dies. Raises ConfigError if the app has no such
    host, task or worker."""
    hosts: dict[str, set[str]] = {}
    for worker in status.workers:
        hosts.setdefault(worker.host, set()).add(worker.worker)
    for task in status.tasks:
        if task.host is not None and task.owner is not None:
            hosts.setdefault(task.host, set()).add(task.owner)
    workers = {w for some in hosts.values() for w in some}
    shorts = {w.removeprefix(f"{status.app}."): w for w in sorted(workers)}
    owner = {t.task: t.owner for t in status.tasks}
    if name in owner:
        if (worker_ := owner[name]) is None:
            raise ConfigError(
                f"task {name} has no worker now", where=f"app {status.app}", hint="falkirk status shows who owns what"
            )
        return _of("worker", worker_, {worker_}, owner)
    if name in shorts or name in workers:
        return _of("worker", shorts.get(name, name), {shorts.get(name, name)}, owner)
    if name in hosts:
        return _of("host", name, hosts[name], owner)
    raise _unknown(name, status.app, [*hosts, *owner, *shorts])


def _of(
    kind: Literal["host", "worker"], name: str, workers: Collection[str], owner: Mapping[str, str | None]
) -> Failure:
    return Failure(kind, name, frozenset(workers), frozenset(t for t, worker in owner.items() if worker in workers))


MOST = 12
"""So many names are listed in an error."""


def _unknown(name: str, app: str, known: Sequence[str]) -> ConfigError:
    near = difflib.get_close_matches(name, known, 1)
    return ConfigError(
        f"app {app!r} has no host, task or worker {name!r}",
        where="--if-dies",
        hint=f"did you mean {near[0]}?" if near else f"it has: {listed(known, MOST) or 'none that runs'}",
    )


def answer(status: Status, dies: Failure, plan: RecoveryPlan, noticed: float, logs: Mapping[str, str]) -> Answer:
    """The answer. `logs`: the changelog of each task that has one."""
    owner = {t.task: t.owner for t in status.tasks}
    return Answer(
        status.app,
        dies.name,
        dies.kind,
        sorted(dies.workers),
        takers(status, dies),
        noticed,
        round(plan.seconds, 3),
        [_task(t, owner.get(t.task), logs.get(t.task, "")) for t in plan.tasks],
        [Back(task, step) for task, step in plan.also.items()],
        plan.stay,
    )


def takers(status: Status, dies: Failure) -> list[str]:
    """The workers that take the tasks over: the spare that becomes the worker, or those of other hosts."""
    if dies.kind == "worker":
        return sorted(dies.workers)
    return [w.worker for w in status.workers if w.member and w.worker not in dies.workers]


def _task(plan: TaskPlan, worker: str | None, log: str) -> TaskRecovery:
    kept = plan.kept
    replay = kept.replay if kept is not None and any(kept.replay) else None
    changes = replay is not None and kept is not None and kept.log is not None
    where = ""
    if kept is not None and replay is not None:
        where = f"{log} {kept.log[0]}..{kept.log[1]}" if kept.log else f"steps {kept.step + 1}..{plan.back_to}"
    return TaskRecovery(
        task=plan.task,
        regime=plan.regime,
        worker=worker,
        back_to=plan.back_to,
        begins_with=None if kept is None else kept.where,
        version=None if kept is None or kept.step < 0 or kept.where == "nothing" else kept.step,
        bytes=0 if kept is None else kept.size,
        steps=0 if replay is None or changes else replay.parts,
        records=0 if replay is None else replay.records,
        log=where,
        work=Work(*(round(part, 3) for part in plan.seconds)),
        runs_s=round(plan.ends, 3),
        presumed=list(plan.unmeasured),
    )


def head(found: Answer) -> list[str]:
    """What happens, in sentences.

    >>> found = Answer("app", "b-2", "host", ["app.x-0"], ["app.y-0", "app.y-1"], 10.0, 3.1, [], [], 8)
    >>> print("\\n".join(head(found)))
    app: host b-2 dies, with 1 worker
    0 tasks are taken over by 2 workers; 8 tasks stay as they are
    noticed after up to 10.0 s; then all run again within 3.1 s
    """
    gone = len(found.tasks)
    by = counted(len(found.takers), "worker") if found.kind == "host" else "the spare of its host"
    lines = [
        f"{found.app}: {found.kind} {found.dies} dies"
        + (f", with {counted(len(found.workers), 'worker')}" if found.kind == "host" else "")
    ]
    if found.takers:
        lines.append(
            f"{counted(gone, 'task')} {'is' if gone == 1 else 'are'} taken over by {by}; "
            f"{counted(found.stay, 'task')} {'stays as it is' if found.stay == 1 else 'stay as they are'}"
        )
    else:
        lines.append(f"{counted(gone, 'task')} wait until a worker starts on another host: no other has one")
    noticed = f"noticed after up to {found.noticed_s:.1f} s; then" if found.noticed_s else "noticed at once; then"
    can = [t for t in found.tasks if t.begins_with is not None]
    all_run = "all run again" if len(can) == gone else f"{len(can)} of them run again"
    lines.append(f"{noticed} {all_run} within {found.seconds:.1f} s")
    return lines
