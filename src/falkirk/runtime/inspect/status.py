"""The status of an app, read from its topics by anyone, without asking its workers.

layout      control topic, partition 0     stages, tasks, inputs
progress    steps topic, last records      step, owner, positions of each task
low         steps topic, first records     how far back a failure takes each task (`falkirk.runtime.inspect.low`)
workers     the app's group, and what they report on the control topic, partition 1
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from falkirk.checkpoint.ids import TopicPartition, cluster_of
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Range
from falkirk.checkpoint.tasks import Phase
from falkirk.connectors.kafka.admin.members import Member
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.held import SAY_AFTER, held
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.inputs import InputStatus, TopicsNow, inputs_left, topics_now
from falkirk.runtime.inspect.low import Facts, LowWatermark, low_watermarks, unwritten
from falkirk.runtime.inspect.owners import FRESH_MS, TaskOwner, owners_of
from falkirk.runtime.layout.app_lookup import layout_of
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord
from falkirk.runtime.layout.progress import first_steps, last_records, last_step
from falkirk.runtime.messages.epochs import EpochStatus, batch_part
from falkirk.runtime.messages.parts import StoppedPart
from falkirk.runtime.messages.protocol import Request, SentEpochReport, SentReport
from falkirk.runtime.messages.reports import read_reports
from falkirk.runtime.messages.requests import current_requests
from falkirk.stream.definition.names import control_topic, drivers, steps_topic


class TaskStatus(msgspec.Struct, frozen=True):
    """One task."""

    task: str
    owner: str | None
    """The worker that was named last; null: released, so none."""
    host: str | None
    phase: str | None
    """From its worker's report; null: there is none, or it cannot be true any more (`falkirk.runtime.inspect.owners`)."""
    step: int | None
    step_age_s: float | None
    version: int | None
    version_behind_s: float | None
    """By how much the version is older than the last step."""
    lag: int
    inputs: list[InputStatus]
    done: float | None = None
    """The finished part of a phase that has an end: 0 to 1."""
    waits: str | None = None
    """What it waits for and since when, if it cannot be taken over yet."""
    hot: list[HotKeyStatus] = []
    """Keys that have most of the rows of its operators: no number of tasks divides them."""
    watermarks: list[WatermarkStatus] = []
    """Of its sources with `late=`."""
    silent_s: float | None = None
    """Since when its worker has not reported, if that is too long. The group still counts it as a member."""


class WatermarkStatus(msgspec.Struct, frozen=True):
    """How far a source is in event time, in one task."""

    source: str
    at: int | None
    """Milliseconds since 1970. Null: no time is complete yet."""
    held_by: str
    """The partition that holds it back; "" if all partitions are idle."""


class HotKeyStatus(msgspec.Struct, frozen=True):
    """A key that has most of an operator's rows in its task."""

    operator: str
    key: str
    share: float
    """Of the task's rows: 0 to 1."""


class StageStatus(msgspec.Struct, frozen=True):
    """One stage."""

    stage: str
    regime: str
    stateful: bool
    tasks: int
    running: int
    lag: int
    records_per_s: float


class WorkerStatus(msgspec.Struct, frozen=True):
    """One worker."""

    worker: str
    host: str
    pid: int | None
    member: bool
    """Whether it is a member of the app's group."""
    tasks: int
    records_per_s: float | None = None
    step_ms: float | None = None
    commit_ms: float | None = None
    commits_per_s: float | None = None
    reported_s_ago: float | None = None
    clock_ahead_ms: int | None = None
    """By how much its host's clock is ahead of the broker's, at least."""
    waits: str = ""
    """What its transactions wait for; "" if nothing is unusual."""
    query: str = ""
    """Where it answers questions about its state; "": nowhere."""


class HeldStatus(msgspec.Struct, frozen=True):
    """A partition of a source that cannot be read to its end, because a transaction is open in it."""

    topic: str
    partition: int
    stable: int
    """The last stable offset."""
    end: int
    since_s: float | None
    """The age of the transaction's first record. Null: it cannot be read."""
    words: str
    """The same for people, and what to do."""


class PartStatus(msgspec.Struct, frozen=True):
    """A part that has stopped by itself (`on_failure="part"`)."""

    part: str
    by: str
    """The worker or driver that has stopped it."""
    at: int
    """Milliseconds since 1970, UTC."""
    what: str
    """The error."""
    where: str
    hint: str
    exit_code: int


class ProblemStatus(msgspec.Struct, frozen=True):
    """What keeps an app from running."""

    what: str
    where: str
    hint: str
    exit_code: int
    by: str | None = None
    """Who ran the app, and on which host, if a run has ended with this error. Null: it was found now."""
    at: int | None = None
    """When that run ended: milliseconds since 1970, UTC."""


class Status(msgspec.Struct, frozen=True):
    """An app."""

    app: str
    state: str
    """running: every task runs · degraded: every task runs, except those of parts that have stopped by themselves ·
    paused: all workers are paused · recovering: some tasks are missing · stopped: no worker."""
    group: str
    layout: int
    falkirk: str
    """The version that recorded the layout."""
    lag: int
    stages: list[StageStatus]
    tasks: list[TaskStatus]
    workers: list[WorkerStatus]
    batches: list[EpochStatus] = []
    paused: Request | None = None
    """Who has paused the app, whether its workers run or not."""
    silent: list[str] = []
    """The clusters that do not answer, of those that the app reads from beside its own: nothing counts as left there."""
    held: list[HeldStatus] = []
    """Partitions of sources in which a transaction has been open for some time."""
    parts: list[PartStatus] = []
    """The parts that have stopped by themselves, while the others go on."""
    problems: list[ProblemStatus] = []
    """The error that a run has ended with, if none has begun since; and what else would end one."""
    low: list[LowWatermark] = []
    """How far back a failure takes each task, in their order, and each batch part; and what holds that back."""


def read_status(name: str, settings: Settings, topics: Topics) -> Status:
    """Ask the clusters. Raises ClusterError if the app's own does not answer, ConfigError if it has no such app."""
    layout = layout_of(name, settings, topics)
    group = topics.group(name)
    members = group.members
    driving = bool(topics.group(drivers(name)).members)
    heard = read_reports(settings.cluster(), control_topic(settings.prefix, name))
    announced = heard.workers
    steps = steps_topic(settings.prefix, name)
    names = [f"{stage.id}/{p}" for stage in layout.stages for p in range(stage.tasks)]
    places = [TopicPartition(steps, i) for i in range(len(names))]
    there = topics_now(layout, topics)
    firsts, histories = first_steps(settings, places), last_records(settings, places)
    by_task = [stage for stage in layout.stages for _ in range(stage.tasks)]
    now = time.time_ns() // 1_000_000
    divisions = [
        [r for r in step.division if r.partition.place.topic in stage.inputs]  # broadcast tables belong to its worker
        if (step := last_step(records)) is not None
        else []
        for records, stage in zip(histories, by_task, strict=True)
    ]
    read = inputs_left(divisions, there, settings.cluster(), topics)
    owners = owners_of(names, histories, group, announced, now)
    tasks = [
        _task(task, records, inputs, owner, now)
        for task, records, inputs, owner in zip(names, histories, read, owners, strict=True)
    ]
    pairs = list(zip(tasks, owners, strict=True))
    stages = [_stage(s, [pair for pair in pairs if pair[0].task.rpartition("/")[0] == s.id]) for s in layout.stages]
    asked = current_requests(settings.cluster(), control_topic(settings.prefix, name))
    paused, parts = asked.pause, _parts(layout, asked.stopped())
    running = all(s.running == s.tasks for s in stages if s.stage not in {p.part for p in parts})
    quiet = paused is not None and all(o in announced and announced[o].report.paused for o in members)
    batches = _batches(name, layout, settings, topics, heard.epochs, now)
    facts = map(Facts, names, by_task, map(last_step, histories), firsts, owners)
    # The group keeps the members of a run that has ended with an error for a session.
    over = asked.ended is not None and not announced
    up = ("paused" if quiet else "degraded" if parts else "running") if running else "recovering"
    return Status(
        app=name,
        state="stopped" if over or not (members or (driving and not layout.stages)) else up,
        group=name,
        layout=layout.number,
        falkirk=layout.falkirk,
        lag=sum(s.lag for s in stages),
        stages=stages,
        tasks=tasks,
        workers=[
            _worker(owner, members.get(owner), announced.get(owner), now) for owner in _workers(members, announced, now)
        ],
        batches=batches,
        paused=paused,
        silent=there.silent,
        held=_held(layout, read, settings, now),
        parts=parts,
        problems=_problems(asked.ended, there, divisions),
        low=low_watermarks(layout, list(facts), unwritten(layout, topics), batches, {p.part for p in parts}, now),
    )


def _parts(layout: LayoutRecord, stopped: Mapping[str, StoppedPart]) -> list[PartStatus]:
    """Those that the present flow has."""
    names = {*(stage.id for stage in layout.stages), *layout.batches}
    return [
        PartStatus(part, s.by, s.at, s.what, s.where, s.hint, s.exit_code)
        for part, s in sorted(stopped.items())
        if part in names
    ]


def _problems(ended: StoppedPart | None, there: TopicsNow, divisions: Sequence[Sequence[Range]]) -> list[ProblemStatus]:
    found = [] if there.error is None else [there.error]
    found += [error for division in divisions for error in there.deleted(division)]
    said = (
        []
        if ended is None
        else [ProblemStatus(ended.what, ended.where, ended.hint, ended.exit_code, ended.by, ended.at)]
    )
    same = {problem.what for problem in said}
    return [*said, *(ProblemStatus(e.what, e.where, e.hint, e.exit_code) for e in found if e.what not in same)]


def _batches(
    name: str, layout: LayoutRecord, settings: Settings, topics: Topics, heard: Mapping[str, SentEpochReport], now: int
) -> list[EpochStatus]:
    found = []
    for stage in layout.batches:
        with batch_part(name, stage, settings, topics) as part:
            status = part.look()
        said = heard.get(stage)
        if said is not None and status.state == "open" and now - said.at < FRESH_MS:
            status = msgspec.structs.replace(status, spark_ui=said.report.ui or None)
        found.append(status)
    return found


def _task(task: str, records: Records, inputs: list[InputStatus], owner: TaskOwner, now: int) -> TaskStatus:
    step, said = last_step(records), owner.said
    return TaskStatus(
        task=task,
        owner=owner.worker,
        host=owner.host,
        phase=None if said is None else said.phase,
        step=None if step is None else step.step,
        step_age_s=None if step is None else max(0, now - step.clock) / 1000,
        version=None if said is None or not said.version else said.version,
        version_behind_s=None if said is None or not said.version else said.behind,
        lag=sum(i.lag or 0 for i in inputs),
        inputs=inputs,
        done=None if said is None or not said.total else round(said.done / said.total, 3),
        waits=None if said is None else said.waits or None,
        hot=[] if said is None else [HotKeyStatus(operator, *found) for operator, found in said.hot.items()],
        watermarks=[]
        if said is None
        else [WatermarkStatus(source, *found) for source, found in said.watermarks.items()],
        silent_s=None if owner.silent_ms is None else owner.silent_ms / 1000,
    )


def _stage(stage: StageRecord, tasks: Sequence[tuple[TaskStatus, TaskOwner]]) -> StageStatus:
    rate = sum(o.said.rows / o.report.seconds for _, o in tasks if o.said is not None and o.report is not None)
    running = sum(t.phase == Phase.RUNNING.value for t, _ in tasks)
    return StageStatus(
        stage.id, stage.regime, stage.stateful, stage.tasks, running, sum(t.lag for t, _ in tasks), round(rate, 1)
    )


def _workers(members: Mapping[str, Member], announced: Mapping[str, SentReport], now: int) -> list[str]:
    return sorted(members.keys() | {owner for owner, a in announced.items() if now - a.at < FRESH_MS})


def _worker(owner: str, member: Member | None, announced: SentReport | None, now: int) -> WorkerStatus:
    tasks = len(member.partitions) if member is not None else 0
    if announced is None:
        host = member.host if member is not None else ""
        return WorkerStatus(owner, host, None, member is not None, tasks)
    r = announced.report
    return WorkerStatus(
        worker=owner,
        host=announced.host,
        pid=r.pid,
        member=member is not None,
        tasks=tasks,
        records_per_s=round(sum(t.rows for t in r.tasks) / r.seconds, 1),
        step_ms=round(r.step_ms, 1),
        commit_ms=round(r.commit_ms, 1),
        commits_per_s=round(r.commits / r.seconds, 1),
        reported_s_ago=max(0, now - announced.at) / 1000,
        clock_ahead_ms=r.ahead_ms,
        waits=r.waits,
        query=r.query,
    )


def _held(
    layout: LayoutRecord, read: Iterable[Iterable[InputStatus]], settings: Settings, now: int
) -> list[HeldStatus]:
    """Those that have been open for some seconds: others come and go."""
    sources = {name for name, topic in layout.topics.items() if topic.role == "source"}
    places = {
        TopicPartition(i.topic, i.partition)
        for inputs in read
        for i in inputs
        if i.topic in sources and i.lag is not None
    }
    cluster = settings.cluster()
    found = []
    for one in held(cluster, places):
        age = None if one.since is None else max(0, now - one.since) / 1000
        if age is None or age >= SAY_AFTER:
            words = one.words(cluster.of(cluster_of(one.place.topic)).brokers)
            found.append(HeldStatus(*one.place, one.stable, one.end, age, words))
    return found
