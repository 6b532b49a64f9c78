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
from falkirk.checkpoint.ids import InputPartition, Offset, OwnerId, TopicPartition, after
from falkirk.checkpoint.ports import Failure, Log, Writes
from falkirk.checkpoint.reading import Records
from falkirk.checkpoint.records import Division, Range, StepRecord, encode
from falkirk.connectors.kafka.app_topics.epochs import publisher_log
from falkirk.runtime.app.app import BoundTask
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


def first_steps(
    rescaling: Rescaling, tasks: Sequence[BoundTask], number: int, settings: Settings
) -> dict[TopicPartition, tuple[Offset, StepRecord]]:
    """The first step of each task, with its offset: written, if that is not done yet. Another command that does the same is
    fenced first."""
    app = rescaling.before.app
    owner = OwnerId(f"{app}.rescale")
    places = [bound.task.steps for bound in tasks]
    log = publisher_log(settings.cluster(), owner, settings.transaction_timeout_ms, 1_000_000)
    with closing(log):
        while True:
            run(log.renew())
            there = dict(zip(places, last_records(settings, places), strict=True))
            new = [bound for bound in tasks if last_step(there[bound.task.steps]) is None]
            if not new:
                return {place: _step_in(records) for place, records in there.items()}
            with suppress(Failure):  # then it looks again whether they are there
                run(_write(log, [(b.task.steps, _first(rescaling, b, number, owner)) for b in new]))


def _first(rescaling: Rescaling, bound: BoundTask, number: int, owner: OwnerId) -> StepRecord:
    stage = bound.task.id.stage
    step, clock = rescaling.first(stage)
    base = BASE if bound.task.recovery.keeps_state else Offset(-1)
    return StepRecord(
        str(bound.task.id),
        step,
        fresh_nonce(),
        owner,
        clock,
        _division(rescaling, bound),
        (),
        "",
        base=base,
        layout=number,
    )


def _division(rescaling: Rescaling, bound: BoundTask) -> Division:
    """Where it goes on. What has joined a source since the old tasks have ended joins again."""
    ended = rescaling.ended(bound.task.id.stage)
    at: dict[InputPartition, Offset] = {}
    for i in (*bound.inputs, *bound.shared):
        if i.input.kind == "edge":
            at[i.partition] = Offset(0)
        elif i.partition in ended:
            at[i.partition] = ended[i.partition]
    return tuple(Range(partition, end, end) for partition, end in sorted(at.items()))


async def _write(log: Log, records: Sequence[tuple[TopicPartition, StepRecord]]) -> None:
    """All in one transaction."""
    await log.begin()
    for place, record in records:
        await log.send(Writes(place.topic, [place.partition], [record.task.encode()], [encode(record)]))
    await log.commit()


def _step_in(records: Records) -> tuple[Offset, StepRecord]:
    return next((offset, record) for offset, record in reversed(records) if isinstance(record, StepRecord))


def write_states(
    rescaling: Rescaling, target: Target, now: LayoutRecord, tasks: Sequence[BoundTask],
    first: dict[TopicPartition, tuple[Offset, StepRecord]], settings: Settings, folder: Path, tell: Tell,
) -> None:  # fmt: skip
    """The state of each task as the version of its first step. Those that are there already stay. Raises DiskError,
    AwayError and StateError."""
    for stage in target.plan.planned:
        own = [bound for bound in tasks if bound.task.id.stage == stage.id and bound.task.recovery.keeps_state]
        todo = [
            bound for bound in own if first[bound.task.steps][1].step not in _copies(now, bound, settings).versions()
        ]
        if not todo:
            continue
        with ExitStack() as stack:
            before = list(_states(rescaling, stage, settings, folder, stack))
            divided = _divided(rescaling, target, stage, before)
            for bound in todo:
                pairs = divided(bound.task.id.partition)
                count = _upload(_copies(now, bound, settings), now, bound, first[bound.task.steps], pairs, folder)
                tell(f"task {bound.task.id}: {counted(count, 'row')} of state")


def _divided(
    rescaling: Rescaling, target: Target, stage: PhysicalStage, before: Sequence[Reader]
) -> Callable[[int], Iterator[Pair]]:
    """What each task of a stage has, of the states of the old tasks."""
    was = rescaling.was(stage)
    if was.id != stage.id:
        kept = schema.numbers(was.state).get(TIMES)
        return lambda task: iter(()) if kept is None else source_times(stage, before[task], kept[0])
    moved = target.moved(rescaling.before)
    writers = {o.topic: s.id for s in target.plan.stages for o in s.outputs if o.kind == "edge"}
    others = [edge.id for edge in stage.edges_in if writers[edge.topic] in moved]
    by_topic = reads_sources(was, rescaling.before)
    return Resharding(stage, before, target.tasks[stage.id], others, by_topic=by_topic).pairs


def _states(
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


def _copies(now: LayoutRecord, bound: BoundTask, settings: Settings) -> CheckpointStore:
    return CheckpointStore(connect(settings.checkpoint_url()), _identity(now, bound))


def _identity(now: LayoutRecord, bound: BoundTask) -> Identity:
    stage = bound.stage
    return Identity(now.app, str(bound.task.id), stage.fingerprint, stage.state_schema, now.incarnation)


def _upload(
    copies: CheckpointStore, now: LayoutRecord, bound: BoundTask, first: tuple[Offset, StepRecord],
    pairs: Iterator[Pair], folder: Path,
) -> int:  # fmt: skip
    """Returns how many pairs there are."""
    offset, record = first
    begun = Progress(-1, 0, 0, record.clock, BASE)
    count = 0
    with (
        TemporaryDirectory(dir=folder, prefix="rescaled-") as own,
        closing(RocksStore(Path(own) / "state", _identity(now, bound), Memory(32 * MIB, 32 * MIB))) as store,
    ):
        while some := dict(islice(pairs, AT_ONCE)):
            store.write(some, begun)
            count += len(some)
        store.write({}, begun.at(record.step, after(offset), 0, record.clock))
        version = store.commit()
        copies.upload(store.version_folder(version), store.version_progress(version))
    return count
