"""Recorded steps run again (lazy regime): the same records, at the same clock, through the same circuit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from falkirk.checkpoint.ids import Step, TaskId, places_in
from falkirk.checkpoint.overlay import Overlay
from falkirk.checkpoint.ports import Output
from falkirk.checkpoint.records import SelectiveCheckpoint, StepRecord
from falkirk.checkpoint.tasks import Owned, ends
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.connectors.kafka.client.errors import Words
from falkirk.errors import SourceError, StateError
from falkirk.runtime.app.app import BoundTask
from falkirk.runtime.app.divisions import DivisionReaders
from falkirk.runtime.worker.emissions import moving_of, outputs_of
from falkirk.runtime.worker.reading.read_back import KafkaOutputReader, OutputReader, published_records
from falkirk.stream.dataflow.circuit import Circuit, Evolution, OutputRecord, OutputRecords, StepInput, StepOutput
from falkirk.stream.stages.plan import Stage
from falkirk.wording import counted

LOST = Words(
    "the records of a recorded step are gone",
    "bring back the state directory or the checkpoint store with the newest version, or give the flow another name: it then "
    "starts from scratch; a lazy regime's retention must outlast the time between versions",
    SourceError,
)


@dataclass(slots=True)
class KafkaReplayer:
    """`falkirk.checkpoint.ports.Replayer` for one recovery."""

    cluster: Cluster
    bound: BoundTask
    circuit: Circuit
    owned: Owned
    """Tells when the group has taken the task away: a replay may wait for a cluster that is away, and then ends."""
    corrects: bool = False
    _last: Step = Step(-1)
    """The last one that was run again."""
    _divisions: DivisionReaders = field(init=False)

    def __post_init__(self) -> None:
        self._divisions = DivisionReaders(self.cluster, LOST)

    async def replay(self, task: TaskId, record: StepRecord, state: Overlay) -> list[Output]:
        """Read the division, run the circuit at the record's clock; return its output."""
        division = record.division if record.move is None else record.move.again
        if record.step <= self._last:  # a selective rollback has failed, and all steps run again
            self._divisions.forget(task)
        self._last = record.step
        slices = self._divisions.read(self.bound, division, self.owned.go_on)
        if record.step == 0 and not slices:
            return []
        if record.move is None and record.rows != sum(len(s.records) for s in slices):
            raise SourceError(
                f"step {record.step} of task {task} read {counted(record.rows, 'record')}, of which "
                f"{sum(len(s.records) for s in slices)} are left",
                where=", ".join(str(r) for r in division if r.end > r.start),
                hint="the lazy regime reads its inputs again: bring back the state directory or the checkpoint store with "
                "the newest version, or give the flow another name: it then starts from scratch",
            )
        # The failures of the steps before may have been forgotten when this one ran: they must not stop it now.
        self.circuit.rewind()
        step = StepInput(record.clock, slices, places=places_in(ends(record)))
        result = rerun(self.circuit, self.bound.stage.evolution(self.circuit), record, step, state)
        return outputs_of(result.emitted)

    def selective(self, task: TaskId, state: Overlay) -> SelectiveCheckpoint | None:
        """The selective checkpoint of a state."""
        return self.circuit.selective(state)

    async def difference(
        self, task: TaskId, records: Sequence[StepRecord], should: Sequence[Output], state: Overlay
    ) -> list[Output]:
        """The records that correct the difference between what the steps published and what they should have published."""
        topics = KafkaOutputReader(self.cluster.of(""))
        return difference(
            task,
            self.bound.stage,
            self.bound.stage.evolution(self.circuit),
            topics,
            records,
            should,
            state,
            self.owned.go_on,
        )

    def close(self) -> None:
        """Close the readers."""
        self._divisions.close()


def difference(
    task: TaskId,
    stage: Stage,
    evolution: Evolution,
    topics: OutputReader,
    records: Sequence[StepRecord],
    should: Sequence[Output],
    state: Overlay,
    go_on: Callable[[], None] = lambda: None,
) -> list[Output]:
    """The records to write so that the published output of the steps becomes the expected output. Logs the difference.
    Raises DivergenceError if the difference is unknown."""
    names = {o.id: o.topic for o in stage.outputs}
    have = published_records(topics, task, records, names, evolution.tables(), go_on)
    corrected = evolution.correct(output_records(should), have, records[-1].clock, state)
    first, last = records[0].step, records[-1].step
    told = {"task": str(task), "step": last}
    written = (
        ", ".join(f"{counted(len(e.values), 'record')} to {e.output}" for e in corrected.emitted)
        or "nothing is written"
    )
    logger.warning("task %s: steps %s to %s now give other output than they published; correcting it: %s",
                   task, first, last, written, extra=told)  # fmt: skip
    for output, count in corrected.left.items():
        logger.warning("task %s: what steps %s to %s wrote to %s cannot be retracted: %s wrong records stay in it",
                       task, first, last, output, f"{count:,}", extra=told)  # fmt: skip
    return outputs_of(corrected.emitted)


def output_records(outputs: Sequence[Output]) -> OutputRecords:
    """The records of the output of steps."""
    found: dict[str, list[OutputRecord]] = {}
    for output in outputs:
        w = output.writes
        times = w.timestamps or [0] * len(w)
        headers: Sequence[list[tuple[str, bytes]] | None] = w.headers or [None] * len(w)
        columns = zip(w.partitions, w.keys, w.values, times, headers, strict=True)
        found.setdefault(output.name, []).extend(OutputRecord(*record) for record in columns)
    return found


def rerun(circuit: Circuit, evolution: Evolution, record: StepRecord, step: StepInput, state: Overlay) -> StepOutput:
    """What a recorded step does, once more. Raises StateError for a step of a flow whose operators were rebuilt since: the
    new flow gives another result."""
    if record.move is not None:
        return evolution.move(step, state, moving_of(record.move, ends(record)))
    if evolution.moving(state):
        raise StateError(
            f"step {record.step} of task {record.task} is to be run again, and was made by the flow of before, whose "
            "operators are being rebuilt",
            hint="bring back the state directory or the checkpoint store that the flow of before ended with",
        )
    return circuit.run(step, state)
