"""The beginning of each new task: its first step, which reads nothing, and its state as a version of that step.

    first step    number     after the last of any old task of the stage: readers of outputs see steps go on
                  division   sources where the old tasks have ended; edges from their beginning
                  base       0: the state is not in the changelog, which begins after it
    version       the old states, as `falkirk.stream.evolution.resharding` divides them

A take-over finds what it would find if the task had always been there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.ids import InputPartition, Offset, OwnerId, TaskId, TopicPartition, after
from falkirk.checkpoint.ports import Failure, Log, Writes
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Division, Range, RecordedStep, StepRecord, encode
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.app_topics.epochs import publisher_log
from falkirk.runtime.app.app import BoundTask, lay_out
from falkirk.runtime.host.identity import fresh_nonce
from falkirk.runtime.host.open_files import raise_file_limit
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.compatibility import TIMES
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.runtime.layout.progress import last_records, last_step
from falkirk.runtime.rescale.ends import copies_of, reads_sources
from falkirk.runtime.rescale.record import Rescaling
from falkirk.runtime.rescale.target import Target
from falkirk.state import schema
from falkirk.state.checkpoints import CheckpointStore
from falkirk.state.engine import MIB, Memory, files_each
from falkirk.state.memory import MemoryStore
from falkirk.state.objects import connect
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity, Progress, Reader
from falkirk.stream.access.stored_state import opened
from falkirk.stream.evolution.resharding import Pair, Resharding, source_times
from falkirk.stream.stages.stage import PhysicalStage
from falkirk.wording import counted

BASE = Offset(0)
"""Of the states: the logs of the new tasks begin after them."""
AT_ONCE = 20_000
"""Pairs of one write."""

Tell = Callable[[str], None]


class NewTasks:
    """The tasks of an app after a rescaling, before any of them runs."""

    def __init__(self, rescaling: Rescaling, target: Target, now: LayoutRecord, settings: Settings) -> None:
        """`now`: the layout that has been recorded of them."""
        self._rescaling, self._target, self._now, self._settings = rescaling, target, now, settings
        self._moved = target.moved(rescaling.before)
        infos = {name: TopicInfo(name, topic.id, topic.partitions) for name, topic in now.topics.items()}
        self._tasks = lay_out(target.plan, settings, now.number, target.tasks, infos)
        self._first: dict[TaskId, RecordedStep] = {}

    def begin(self) -> None:
        """Write the first step of each, if that is not done yet. Another command that does the same is fenced first."""
        owner, places = OwnerId(f"{self._now.app}.rescale"), [bound.task.steps for bound in self._tasks]
        timeout = self._settings.transaction_timeout_ms
        with closing(publisher_log(self._settings.cluster(), owner, timeout, 1_000_000)) as log:
            while True:
                run(log.renew())
                there = [*zip(self._tasks, last_records(self._settings, places), strict=True)]
                new = [bound for bound, records in there if last_step(records) is None]
                if not new:
                    self._first = {bound.task.id: _step_in(records) for bound, records in there}
                    return
                with suppress(Failure):  # then it looks again whether they are there
                    run(_write(log, [(bound.task.steps, self._first_step(bound, owner)) for bound in new]))

    def write_states(self, folder: Path, tell: Tell) -> None:
        """Make the state of each the version of its first step. Those that are there already stay. `folder`: for copies that
        are needed meanwhile. Raises DiskError, AwayError and StateError."""
        for stage in self._target.plan.planned:
            own = [b for b in self._tasks if b.task.id.stage == stage.id and b.task.recovery.keeps_state]
            todo = [b for b in own if self._first[b.task.id][1].step not in self._copies(b).versions()]
            if not todo:
                continue
            with ExitStack() as stack:
                before = [*old_states(self._rescaling, stage, self._settings, folder, stack)]
                divided = self._divided(stage, before)
                for bound in todo:
                    count = self._upload(bound, divided(bound.task.id.partition), folder)
                    tell(f"task {bound.task.id}: {counted(count, 'row')} of state")

    def _first_step(self, bound: BoundTask, owner: OwnerId) -> StepRecord:
        task = bound.task
        step, clock = self._rescaling.first(task.id.stage)
        base = BASE if task.recovery.keeps_state else Offset(-1)
        division = self._division(bound)
        return StepRecord(
            str(task.id), step, fresh_nonce(), owner, clock, division, (), "", base=base, layout=self._now.number
        )

    def _division(self, bound: BoundTask) -> Division:
        """Where it goes on. What has joined a source since the old tasks have ended joins again."""
        ended = self._rescaling.ended(bound.task.id.stage)
        at: dict[InputPartition, Offset] = {}
        for i in (*bound.inputs, *bound.shared):
            if i.input.kind == "edge":
                at[i.partition] = Offset(0)
            elif i.partition in ended:
                at[i.partition] = ended[i.partition]
        return tuple(Range(partition, end, end) for partition, end in sorted(at.items()))

    def _divided(self, stage: PhysicalStage, before: Sequence[Reader]) -> Callable[[int], Iterator[Pair]]:
        """What each task of a stage has, of the states of the old tasks."""
        was = self._rescaling.was(stage)
        if was.id != stage.id:
            kept = schema.numbers(was.state).get(TIMES)
            return lambda task: iter(()) if kept is None else source_times(stage, before[task], kept[0])
        writers = {o.topic: s.id for s in self._target.plan.stages for o in s.outputs if o.kind == "edge"}
        others = [edge.id for edge in stage.edges_in if writers[edge.topic] in self._moved]
        by_topic = reads_sources(was, self._rescaling.before)
        return Resharding(stage, before, self._target.tasks[stage.id], others, by_topic=by_topic).pairs

    def _upload(self, bound: BoundTask, pairs: Iterator[Pair], folder: Path) -> int:
        """Returns how many pairs there are."""
        offset, record = self._first[bound.task.id]
        begun, count = Progress(-1, 0, 0, record.clock, BASE), 0
        with (
            TemporaryDirectory(dir=folder, prefix="rescaled-") as own,
            closing(RocksStore(Path(own) / "state", self._identity(bound), Memory(32 * MIB, 32 * MIB))) as store,
        ):
            while some := dict(islice(pairs, AT_ONCE)):
                store.write(some, begun)
                count += len(some)
            store.write({}, begun.at(record.step, after(offset), 0, record.clock))
            version = store.commit()
            self._copies(bound).upload(store.version_folder(version), store.version_progress(version))
        return count

    def _copies(self, bound: BoundTask) -> CheckpointStore:
        return CheckpointStore(connect(self._settings.checkpoint_url()), self._identity(bound))

    def _identity(self, bound: BoundTask) -> Identity:
        stage, now = bound.stage, self._now
        return Identity(now.app, str(bound.task.id), stage.fingerprint, stage.state_schema, now.incarnation)


def old_states(
    rescaling: Rescaling, stage: PhysicalStage, settings: Settings, folder: Path, stack: ExitStack
) -> Iterator[Reader]:
    """The last state of each old task of a stage. All of them are open at once: they share memory and files."""
    was, store = rescaling.was(stage), connect(settings.checkpoint_url())
    steps = rescaling.ends[was.id].steps
    memory = Memory(64 * MIB, 4 * MIB, files_each(raise_file_limit(), len(steps)))
    for task, step in enumerate(steps):
        if step < 0 or not was.stateful:
            yield MemoryStore(Identity(rescaling.before.app, f"{was.id}/{task}", ""))
        else:
            version = copies_of(rescaling.before, was, task, settings).read(step)
            yield stack.enter_context(opened(store, version, folder, memory))


async def _write(log: Log, records: Sequence[tuple[TopicPartition, StepRecord]]) -> None:
    """All in one transaction."""
    await log.begin()
    for place, record in records:
        await log.send(Writes(place.topic, [place.partition], [record.task.encode()], [encode(record)]))
    await log.commit()


def _step_in(records: Records) -> RecordedStep:
    return next((offset, record) for offset, record in reversed(records) if isinstance(record, StepRecord))
