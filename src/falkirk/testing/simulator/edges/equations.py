"""What must hold for an edge and its readers, computed from the log alone, as equations.

kept     start(edge partition) ≤ the least offset that a recovery of its reader reads again, or reads next:
             if its logs alone hold the state     end of the last committed division
             else                                 end of division(v), v = the oldest store that it may begin with
once     for each key, the second stage's output numbers the counts 1, 2, … as the first stage did, and their origins are the
         records of the input, each once
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.records import StepRecord, decode
from falkirk.checkpoint.tasks import ends
from falkirk.testing.simulator.check import Broken, steps
from falkirk.testing.simulator.toy import INPUTS_PER_TASK

if TYPE_CHECKING:
    from falkirk.testing.simulator.edges.stages import TwoStages
    from falkirk.testing.simulator.world import World


def kept(world: World, toy: TwoStages) -> None:
    """Nothing that a recovery needs is trimmed. Raises Broken."""
    for t in range(toy.counters, toy.tasks):
        for place, need in needed(world, toy, t).items():
            if (start := world.broker[place].start) > need:
                raise Broken(f"kept: {place.topic}-{place.partition} begins at {start}, and task {t} needs {need}")


def needed(world: World, toy: TwoStages, t: int) -> dict[TopicPartition, Offset]:
    """The least offset of each of its edges that task t may read."""
    chain = steps(world.broker, toy, t)
    if toy.task(t).recovery.rebuilds:
        at = {} if not chain else ends(chain[-1])
    else:
        oldest = min(beginnings(world, toy, t), default=-1)
        at = next((ends(r) for r in chain if r.step == oldest), {})
    return {place: at.get(i, Offset(0)) for i, place in toy.edges(t).items()}


def beginnings(world: World, toy: TwoStages, t: int) -> Iterator[int]:
    """The steps of the stores that a recovery of task t may begin with: the copies that can be read, and what a crash leaves
    on each disk, if the step records reach back to it. (If they do not, it is replaced by a copy.)"""
    task, partition = toy.task(t), world.broker[toy.task(t).steps]
    kept = partition.committed(partition.start, partition.end)[0]
    first = min((r.step for e in kept if e.value and isinstance(r := decode(e.value), StepRecord)), default=0)
    yield from (s for s in world.copies.versions.get(task.id, ()) if (task.id, s) not in world.copies.damaged)
    for host in world.hosts:
        store = host.disk.stores.get(task.id)
        if store is not None and store.durable.step >= first - 1:
            yield store.durable.step


def once(world: World, toy: TwoStages) -> None:
    """The second stage's output is that of the input, through both stages. Raises Broken."""
    found: dict[bytes, list[tuple[int, int, tuple[int, int]]]] = {}
    for p in world.broker.partitions("out"):
        for e in p.committed(0, p.end)[0]:
            m, count, _ = msgspec.json.decode(e.value or b"", type=tuple[int, tuple[int, int, int, int], int])
            found.setdefault(e.key or b"", []).append((m, count[0], count[1:3]))
    for key, due in counted(toy).items():
        seen = found.pop(key, [])
        numbers = [(m, n) for m, n, _ in seen]
        if numbers != [(n, n) for n in range(1, len(due) + 1)] or {origin for *_, origin in seen} != due:
            raise Broken(f"once: of key {key!r}, which has {len(due)} records, the output is {seen}")
    if found:
        raise Broken(f"once: nobody has sent the keys {sorted(found)}")


def counted(toy: TwoStages) -> dict[bytes, set[tuple[int, int]]]:
    """By key: the records of the input that have it, as (partition, offset)."""
    found: dict[bytes, set[tuple[int, int]]] = {}
    for p in range(toy.counters * INPUTS_PER_TASK):
        for i in range(toy.inputs):
            found.setdefault(toy.key_of(p, i), set()).add((p, i))
    return found
