from __future__ import annotations

from collections.abc import Mapping, Sequence

from falkirk.checkpoint import driver
from falkirk.checkpoint.ids import Millis, Nonce, Offset, OwnerId, Step, TaskId, TopicPartition
from falkirk.checkpoint.ports import LogRecord, Ranges, Read
from falkirk.checkpoint.records import Named, Released, StepRecord, TaskRecord, encode
from falkirk.checkpoint.takeover import admit, recover
from falkirk.checkpoint.tasks import Owned, Phase, Task
from falkirk.state.memory import MemoryStore
from falkirk.state.store import Changes, Identity, Store

ME = OwnerId("w0")


class History:
    """The log of tasks that have done one step or, not begun, none, were released, and are named anew: read-only."""

    owner = ME

    def __init__(self, tasks: Sequence[Owned], *, begun: bool = True) -> None:
        self.tasks, self.begun = tasks, begun

    def records(self, p: TopicPartition) -> list[LogRecord]:
        owned = self.tasks[p.partition]
        name, before = str(owned.task.id), Nonce("before")
        history: list[TaskRecord] = [
            StepRecord(name, Step(0), before, ME, Millis(1), (), (), ""),
            Released(before),
            Named(owned.nonce, ME),
        ]
        return [LogRecord(Offset(i), None, encode(r)) for i, r in enumerate(history[not self.begun :])]

    async def start(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return dict.fromkeys(partitions, Offset(0))

    async def end(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, Offset]:
        return {p: Offset(2 + self.begun if p.topic == "steps" else 1) for p in partitions}

    async def read_committed(self, ranges: Ranges) -> Mapping[TopicPartition, Read]:
        return {p: Read(self.records(p)[start:end], end) for p, (start, end) in ranges.items()}

    read_uncommitted = read_committed

    async def read_changes(self, partition: TopicPartition, start: Offset, end: Offset) -> tuple[Changes, Offset]:
        return {b"k": b"v"}, end


class Stores:
    async def open(self, task: TaskId) -> Store:
        return MemoryStore(Identity("app", str(task), ""))

    async def backfilled(self) -> None:
        return None


class Clock:
    def now(self) -> Millis:
        return Millis(2)


def test_a_task_whose_companion_is_revoked_meanwhile_is_rolled_forward_all_the_same() -> None:
    tasks = [
        Owned(
            Task(TaskId("s", i), TopicPartition("steps", i), TopicPartition("changelog", i)),
            Phase.FENCING,
            Nonce(f"n{i}"),
        )
        for i in range(3)
    ]
    tasks[1].revoked = True
    rolled: list[list[Owned]] = []
    driver.run(recover(History(tasks), Stores(), None, Clock(), tasks, rolled.append))  # type: ignore[arg-type]
    assert rolled == [tasks]
    assert [admit(owned) for owned in tasks] == [True, False, True]
    for owned in (tasks[0], tasks[2]):
        assert owned.last is not None
        assert owned.last.step == owned.opened().progress.step == 0
    assert tasks[1].phase is Phase.IDLE


def test_tasks_that_run_no_step_again_do_not_wait_for_those_that_do() -> None:
    """Fenced together, they are rolled in turn, and each part is told while the next ones are not rolled yet."""
    steps = [TopicPartition("steps", p) for p in range(4)]
    lazy, other = Task(TaskId("lazy", 0), steps[0]), Task(TaskId("lazy", 1), steps[1])
    eager = Task(TaskId("eager", 0), steps[2], TopicPartition("changelog", 0))
    without = Task(TaskId("without", 0), steps[3], stateful=False)
    tasks = [Owned(task, Phase.FENCING, Nonce("n")) for task in (lazy, other, eager, without)]
    told: list[tuple[list[Task], list[Task]]] = []

    def rolled(part: list[Owned]) -> None:
        told.append(([o.task for o in part], [o.task for o in tasks if o.phase is Phase.FENCING]))

    history = History(tasks, begun=False)
    driver.run(recover(history, Stores(), None, Clock(), tasks, rolled))  # type: ignore[arg-type]
    assert told == [([eager, without], [lazy, other]), ([lazy], [other]), ([other], [])]
