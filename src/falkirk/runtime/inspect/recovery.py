"""Plans the recovery from a failure that has not happened: reads what is kept of each task that it would touch.

last steps, owners, rates      the app's topics and its workers' reports (`falkirk.runtime.inspect.status`)
what is replayed               the step records after a state, and the ends of the changelog: as a take-over reads them
versions                       the checkpoint store that the workers copy to
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing

from falkirk.checkpoint.ids import Millis, Offset, TopicPartition
from falkirk.checkpoint.planning import Kept, Rates, TaskFacts, plan
from falkirk.checkpoint.planning.plan import Sends
from falkirk.checkpoint.reading import decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.regimes import LogBounds, Recovery
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.failure import Answer, Failure, answer, failure, takers
from falkirk.runtime.inspect.status import TaskStatus, read_status
from falkirk.runtime.layout.app_lookup import layout_of
from falkirk.runtime.layout.layout import LayoutRecord, StageRecord
from falkirk.runtime.messages.protocol import Report
from falkirk.runtime.messages.reports import read_reports
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.objects import connect
from falkirk.state.remote import RemoteVersion
from falkirk.state.store import EMPTY, Identity
from falkirk.stream.definition.names import control_topic, log_topic, steps_topic

Steps = Sequence[tuple[Offset, StepRecord]]


def if_dies(app: str, name: str, settings: Settings, topics: Topics) -> Answer:
    """What happens to an app if a host, a worker, or the worker of a task dies. Raises ConfigError for a name that the app
    does not have, ClusterError, and AwayError and StateError for a checkpoint store that cannot be read."""
    status, layout = read_status(app, settings, topics), layout_of(app, settings, topics)
    dies = failure(name, status)
    heard = read_reports(settings.cluster(), control_topic(settings.prefix, app)).workers
    reports = {owner: sent.report for owner, sent in heard.items()}
    rates = _rates(reports, takers(status, dies))
    with closing(BoundedReader(settings.cluster())) as reader:
        of = Facts(layout, settings, reader, dies, reports)
        facts = [of.task(task, rates) for task in status.tasks]
    found = plan(facts, edges(layout), dies.lost, len(takers(status, dies)))
    sessions = [reports[w].session_ms / 1000 for w in dies.workers if w in reports]
    noticed = max(sessions, default=0.0) if dies.kind == "host" else 0.0
    return answer(status, dies, found, noticed, of.logs)


def _rates(reports: Mapping[str, Report], by: Sequence[str]) -> dict[str, Rates]:
    """Of the workers that take over, by stage; of all that report, where these have measured nothing."""
    found: dict[str, Rates] = {}
    for some in ([reports[w] for w in by if w in reports], list(reports.values())):
        for stage in {stage for report in some for stage in report.rates}:
            found.setdefault(stage, Rates.together(r.rates[stage] for r in some if stage in r.rates))
    return found


def edges(layout: LayoutRecord) -> list[Sends]:
    """The edges between tasks: each task of a sender writes to all partitions, of which each reader has one. They are topics,
    and so logged."""
    found = []
    for sender in layout.stages:
        for reader in layout.stages:
            if any(
                layout.topics[t].role == "edge" for t in {*sender.outputs} & {*reader.inputs} & layout.topics.keys()
            ):
                pairs = [(p, q) for p in range(sender.tasks) for q in range(reader.tasks)]
                found += [(f"{sender.id}/{p}", f"{reader.id}/{q}", True) for p, q in pairs]
    return found


class Facts:
    """Reads what is known of tasks."""

    def __init__(
        self,
        layout: LayoutRecord,
        settings: Settings,
        reader: BoundedReader,
        dies: Failure,
        reports: Mapping[str, Report],
    ) -> None:
        self._layout, self._settings, self._reader = layout, settings, reader
        self._dies, self._reports = dies, reports
        self._stages = {stage.id: stage for stage in layout.stages}
        self.logs: dict[str, str] = {}
        """The changelogs of the tasks that would be taken over."""

    def task(self, status: TaskStatus, rates: Mapping[str, Rates]) -> TaskFacts:
        """One task. Only of those that would be taken over more is read than their status has."""
        stage_id, _, number = status.task.rpartition("/")
        stage, last = self._stages[stage_id], -1 if status.step is None else status.step
        kept = [Kept("local", last)]
        if status.task in self._dies.tasks:
            kept = self._kept(stage, int(number), last)
        recovery = stage.recovery
        regime = stage.regime if stage.stateful else f"{stage.regime}, no state"
        return TaskFacts(
            status.task, regime, last, kept, rates.get(stage_id, Rates()), recovery.presumed, recovery.order
        )

    def _kept(self, stage: StageRecord, number: int, last: int) -> list[Kept]:
        """What is left of a task that has lost its worker. (A host takes the task's store along.)"""
        if last < 0 or not stage.stateful:
            return [Kept("nothing", last)]
        if self._dies.kind == "worker":
            return [Kept("local", last)]
        version, (recovery, bounds) = self._version(stage, number, last), self._log(stage, number)
        steps = self._steps(stage, number, 0 if version is None else version.progress.step_offset)
        found: list[Kept] = []
        log = None
        if recovery.log_partitions:
            place = recovery.log_partitions[0]
            self.logs[f"{stage.id}/{number}"], log = f"{place.topic}[{place.partition}]", bounds.ends[place]
        now = Millis(int(time.time() * 1000))
        if version is not None and not recovery.outdated(version.progress, steps, now):
            at = version.progress
            begins = None if log is None else (max(at.applied, bounds.begins[place]), log)
            replay = recovery.replay(at, steps, bounds)
            found.append(Kept("copied", version.step, replay, version.size, log=begins))
        elif recovery.leads(steps):
            begins = None if log is None else (bounds.begins[place], log)
            found.append(Kept("nothing", -1, recovery.replay(EMPTY, steps, bounds), log=begins))
        return found

    def _url(self) -> str:
        """The checkpoint store that workers copy to; "": a folder of their own state directories."""
        if self._settings.checkpoints:
            return self._settings.checkpoints
        urls = {r.checkpoints for w, r in self._reports.items() if w in self._dies.workers}
        return next(iter(urls), "") if len(urls) == 1 else ""

    def _version(self, stage: StageRecord, number: int, last: int) -> RemoteVersion | None:
        """The newest copied version that can be used; None if there is none that another host reaches."""
        if not (url := self._url()):
            return None
        name, layout = f"{stage.id}/{number}", self._layout
        whose = Identity(layout.app, name, stage.fingerprint, stage.state, layout.incarnation)
        return CheckpointStore(connect(url), whose).newest_readable(last)

    def _log(self, stage: StageRecord, number: int) -> tuple[Recovery, LogBounds]:
        """A task's recovery, and its part of the regime's topics."""
        app, prefix = self._layout.app, self._settings.prefix
        logged = [TopicPartition(log_topic(prefix, app, kind, stage.id), number) for kind in stage.recovery.needs]
        begins, ends = (self._reader.watermarks(logged, end=end) for end in (False, True))
        return stage.recovery(tuple(logged)), LogBounds(begins, ends)

    def _steps(self, stage: StageRecord, number: int, since: int) -> Steps:
        """The step records from an offset on."""
        place = TopicPartition(
            steps_topic(self._settings.prefix, self._layout.app), self._layout.numbers[stage.id][number]
        )
        at, end = (self._reader.watermarks([place], end=end)[place] for end in (False, True))
        at, found = max(at, Offset(since - 1)), []
        while at < end:
            read = self._reader.read({place: (at, end)}, committed=True)[place]
            if read.position == at:
                break  # a transaction is open there
            found += [(offset, r) for offset, r in decoded(read) if isinstance(r, StepRecord)]
            at = read.position
        return found
