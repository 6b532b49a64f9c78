"""The invariants, as named equations, each a function here.

follows    division(n+1).start = division(n).end; clock(n+1) ≥ clock(n); layout(n+1) ≥ layout(n); one base, or none
chain      steps of a task, in log order, are 0, 1, 2…, and each follows the one before
once       of one owner, one committed step n: a step that is tried again was not committed before
prefix     store.step ≤ last committed step, and a running store has nothing of the steps after its own
names      owners of step records follow the order of names

The protocol checks all but `names` as it runs: a recovery reads too few records to see that one. The simulator checks it
over whole logs, and there also what only all topics together show: committed outputs = outputs of steps 0..last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from falkirk.checkpoint.ids import Nonce
from falkirk.checkpoint.records import Named, StepRecord, TaskRecord
from falkirk.checkpoint.tasks import InvariantError
from falkirk.state.store import Progress


def follows(record: StepRecord, last: StepRecord) -> None:
    """step = last.step + 1, start = last.end in every partition, clock ≥ last.clock, layout ≥ last.layout.
    Raises InvariantError."""
    if record.step != last.step + 1:
        raise InvariantError(f"task {record.task}: step {record.step} does not follow on step {last.step}")
    before = {r.partition: r.end for r in last.division}
    for r in record.division:
        if (r.partition in before and before[r.partition] != r.start) or r.start > r.end:
            raise InvariantError(
                f"task {record.task}, step {record.step}: reads {r.partition.place.topic}[{r.partition.partition}] from "
                f"{r.start} to {r.end}, but step {last.step} ended at {before.get(r.partition)}"
            )
    if missing := before.keys() - {r.partition for r in record.division}:
        raise InvariantError(f"task {record.task}, step {record.step}: its division leaves out {sorted(missing)}")
    if record.clock < last.clock:
        raise InvariantError(f"task {record.task}, step {record.step}: its clock goes back")
    if record.layout < last.layout:
        raise InvariantError(f"task {record.task}, step {record.step}: an older flow's than step {last.step}")
    if record.corrects >= 0 and (record.corrects > last.step or any(r.start != r.end for r in record.division)):
        raise InvariantError(f"task {record.task}, step {record.step}: a correction corrects nothing, or reads")
    if record.base != last.base:
        raise InvariantError(f"task {record.task}, step {record.step}: its base is {record.base}, and was {last.base}")


def chain(records: Iterable[StepRecord]) -> None:
    """Every record follows the one before it. Raises InvariantError."""
    last: StepRecord | None = None
    for record in records:
        if last is not None:
            follows(record, last)
        last = record


def names(records: Sequence[TaskRecord]) -> None:
    """The owners of step records follow the order of names (a record may follow a later name that has not fenced yet)."""
    order: dict[Nonce, int] = {}
    newest = -1
    for record in records:
        if isinstance(record, Named):
            order[record.nonce] = len(order)
        elif isinstance(record, StepRecord):
            place = order.get(record.nonce, -1)
            if place < newest:
                raise InvariantError(f"task {record.task}: step {record.step} of an older owner after a newer one's")
            newest = place


def once(ours: StepRecord, committed: StepRecord) -> None:
    """number and nonce are equal ⇒ the division is equal. Raises InvariantError.

    A step is tried again, perhaps with another division, only if the log has shown that the last attempt did not commit,
    and a new producer makes sure that it never will.
    """
    if ours.division != committed.division:
        raise InvariantError(
            f"task {ours.task}: step {ours.step} was committed with another division by the same owner: {committed.division} "
            f"and not {ours.division}"
        )


def prefix(progress: Progress, last: StepRecord | None) -> None:
    """store.step ≤ last committed step; it has nothing ahead. Raises InvariantError."""
    committed = -1 if last is None else last.step
    if progress.step > committed:
        raise InvariantError(f"the store is at step {progress.step}, but only {committed} is committed")
    if progress.ahead >= 0:
        raise InvariantError(f"the store is at no step: it has a part of what follows step {progress.step}")
