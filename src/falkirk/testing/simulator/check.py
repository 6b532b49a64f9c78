"""What must hold for every run, computed from the log alone, as equations.

chain      the committed step records of a task are 0, 1, 2…, each begins where the last one stopped, and the first
           where the backfill ends, if one is complete, else at the start
names      owners of step records follow the order of names
cover      ⋃ divisions = the input, and no two overlap
output     visible output = Σ circuit(division(n), clock(n), state(n−1)), in this order, for n = 0..last
           of steps that were corrected, all together: Σ circuit′(division(n), …), where circuit′ is that which corrected them
store      the owner's store = fold of the circuit over divisions 0..last; no store is ever ahead of the commits
disk       what is left on any disk, if it claims to be at step n = fold of the circuit over divisions 0..n
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import zip_longest

from falkirk.checkpoint import invariants
from falkirk.checkpoint.bundles import BUNDLE, parts_of
from falkirk.checkpoint.digest import digest
from falkirk.checkpoint.epochs import Complete, Epochs, Opened, decoded
from falkirk.checkpoint.ids import Offset, TaskId
from falkirk.checkpoint.overlay import EmptyReader, Overlay
from falkirk.checkpoint.records import Named, StepRecord, TaskRecord, decode
from falkirk.checkpoint.steps import HEADER
from falkirk.checkpoint.tasks import Phase
from falkirk.state.store import Progress
from falkirk.testing.simulator.cluster.broker import SimBroker
from falkirk.testing.simulator.cluster.partition import Entry
from falkirk.testing.simulator.plan import FOREVER, Expel, LateJoin, Leave, Move, Plan
from falkirk.testing.simulator.toy import Toy, signed
from falkirk.testing.simulator.world import World

BUDGET = 2_500
"""Turns in which a run ends. Without faults it takes a few hundred."""

PROMPT = 400
"""Turns in which tasks leave that nothing disturbs, also with a lazy broker: a commit, a version, a release."""


class Broken(AssertionError):
    """A run broke an invariant: which one, and how."""


@dataclass(slots=True)
class Expected:
    """The required result of a chain of step records."""

    state: dict[bytes, bytes] = field(default_factory=dict)
    visible: dict[int, list[tuple[object, ...]]] = field(default_factory=dict)
    """By partition of the output: (key, value, provenance)."""


def records(broker: SimBroker, toy: Toy, t: int) -> list[TaskRecord]:
    """The committed records of a task."""
    return [decode(e.value) for e in broker.decided(toy.task(t).steps) if e.value is not None]


def steps(broker: SimBroker, toy: Toy, t: int) -> list[StepRecord]:
    """The committed step records of a task."""
    return [r for r in records(broker, toy, t) if isinstance(r, StepRecord)]


def backfilled(broker: SimBroker) -> Complete | None:
    """The backfill that counts, by its log."""
    epochs, openings = Epochs(), next(iter(broker.partitions("epochs")), None)
    for entry in broker.decided(openings.name) if openings is not None else ():
        if entry.value is not None:
            epochs.admit(Offset(entry.offset), decoded(entry.value, Offset(entry.offset)))
    return epochs.kept[-1] if epochs.kept else None


def based(broker: SimBroker, toy: Toy, t: int, opened: Opened) -> dict[bytes, bytes]:
    """The state that a backfill must make for a task."""
    overlay, own = Overlay(EmptyReader()), set(toy.reads(t))
    ranges = [r for r in opened.division if r.partition in own]
    toy.run(broker, ranges, opened.clock, overlay)
    return {key: value for key, value in overlay.changes.items() if value is not None}


def fold(broker: SimBroker, toy: Toy, t: int, upto: int = FOREVER) -> Expected:
    """Run the circuit over the recorded divisions, of steps up to `upto`. Raises Broken if an output's digest differs."""
    overlay, expected = Overlay(EmptyReader()), Expected()
    if (filled := backfilled(broker)) is not None:
        overlay.changes.update(based(broker, toy, t, filled.opened))
    chain = steps(broker, toy, t)
    for record in chain:
        if record.corrects >= 0 or record.step > upto:
            continue
        over = [c.layout for c in chain if 0 <= c.corrects <= record.step < c.step]
        ran = toy.running(max(over, default=record.layout))
        outputs = ran.again(broker, record, overlay)
        if not over and digest([o.writes for o in outputs]) != record.digest:
            raise Broken(f"output: step {record.step} of task {t} recorded another digest")
        for output in outputs:
            w, count = output.writes, Counter[int]()
            for p, key, value in zip(w.partitions, w.keys, w.values, strict=True):
                origin = f"{toy.task(t).id} {record.step} {count[p]}".encode()
                expected.visible.setdefault(p, []).append((key, value, origin))
                count[p] += 1
    expected.state = {k: v for k, v in overlay.changes.items() if v is not None}
    return expected


def chain(broker: SimBroker, toy: Toy, t: int) -> None:
    """The records of a task are a chain that begins at step 0, at the start of the input. Raises Broken."""
    found = steps(broker, toy, t)
    try:
        invariants.chain(found)
        invariants.names(records(broker, toy, t))
    except Exception as error:
        raise Broken(f"chain: {error}") from error
    filled = backfilled(broker)
    own = set(toy.reads(t))
    begins = {} if filled is None else {r.partition: r.end for r in filled.opened.division}
    if found and (
        found[0].step != 0
        or any(r.start != begins.get(r.partition, 0) for r in found[0].division if r.partition in own)
    ):
        raise Broken(f"chain: task {t} begins with {found[0]}, and the backfill is {filled}")
    if found and found[0].base != (-1 if filled is None else filled.opening):
        raise Broken(f"chain: task {t} begins with base {found[0].base}, and the backfill is {filled}")


def covered(broker: SimBroker, toy: Toy, t: int) -> bool:
    """Whether all of the task's input is in committed steps."""
    found = steps(broker, toy, t)
    return bool(found) and toy.ends(broker, t).items() <= {r.partition: r.end for r in found[-1].division}.items()


def output(broker: SimBroker, toy: Toy) -> None:
    """Visible output = the fold's, task by task, in order. Raises Broken."""
    for t in range(toy.tasks):
        expected = fold(broker, toy, t).visible
        for p in broker.partitions(toy.says(t)):
            found: list[tuple[object, ...]] = [
                (e.key, value, made)
                for e in p.committed(0, p.end, trimmed=True)[0]
                for made, value in parts(e)
                if made.startswith(f"{toy.task(t).id} ".encode())
            ]
            due = expected.get(p.name.partition, [])
            if any(record.corrects >= 0 for record in steps(broker, toy, t)):
                found, due = net(found), net(due)
            if found != due:
                same = [a == b for a, b in zip_longest(found, due)]
                at = same.index(False)
                raise Broken(
                    f"output: task {t}, partition {p.name.partition}, record {at}: "
                    f"{found[at : at + 1]} is visible where {due[at : at + 1]} is due"
                )


def net(records: list[tuple[object, ...]]) -> list[tuple[object, ...]]:
    """Records with their total weight, no matter which step has written them."""
    weights: Counter[tuple[bytes, bytes]] = Counter()
    for key, value, _ in records:
        assert isinstance(key, bytes)
        assert isinstance(value, bytes)
        plain, weight = signed(value)
        weights[key, plain] += weight
    return sorted((*record, weight) for record, weight in weights.items() if weight)


def atomic(broker: SimBroker, toy: Toy) -> None:
    """A step's output and its record are of one transaction: a reader never sees one without the other. Raises Broken."""
    recorded = {
        f"{r.task} {r.step}".encode(): e.txn
        for t in range(toy.tasks)
        for e in broker.decided(toy.task(t).steps)
        if e.value is not None and isinstance(r := decode(e.value), StepRecord)
    }
    for topic in {toy.says(t): None for t in range(toy.tasks)}:
        for p in broker.partitions(topic):
            for e in broker.decided(p.name):
                for step in (made.rpartition(b" ")[0] for made, _ in parts(e)):
                    if recorded.get(step) != e.txn:
                        raise Broken(
                            f"atomic: output of {step.decode()} in {e.txn}, its record in {recorded.get(step)}"
                        )


def parts(entry: Entry) -> list[tuple[bytes, bytes | None]]:
    """The parts of a record, each with the header that names its maker."""
    headers = dict(entry.headers)
    if BUNDLE not in headers:
        return [(headers[HEADER], entry.value)]
    return list(zip(headers[BUNDLE].split(b"\n"), parts_of(entry.value), strict=True))


def store_is_not_ahead(broker: SimBroker, toy: Toy, task: TaskId, progress: Progress) -> None:
    """store.step ≤ last committed step, whenever a store is written. Raises Broken."""
    last = max((r.step for r in steps(broker, toy, task.partition)), default=-1)
    if progress.step > last:
        raise Broken(f"store: {task} is written at step {progress.step}, but {last} is committed")


def stores(world: World) -> None:
    """Every task has one running owner, and its store is the fold. Raises Broken."""
    for t in range(world.toy.tasks):
        running = [
            owned
            for host in world.hosts
            if host.process is not None
            if (owned := host.process.worker.owned(t)) is not None and owned.phase is Phase.RUNNING
        ]
        if len(running) != 1:
            raise Broken(f"store: task {t} is run by {len(running)} workers")
        owned, last = running[0], steps(world.broker, world.toy, t)[-1]
        store, state = owned.opened(), fold(world.broker, world.toy, t).state
        found = dict(store.scan(b"", b"\xff"))
        if store.progress.step != last.step:
            raise Broken(f"store: of task {t}: is at {store.progress}, but step {last.step} is committed")
        if wrong := {
            k: (found.get(k), state.get(k)) for k in found.keys() | state.keys() if found.get(k) != state.get(k)
        }:
            raise Broken(f"store: of task {t}: holds, and should hold: {wrong}")


def disks(world: World) -> None:
    """A store that claims to be at a step is the fold up to it. Raises Broken. (Except corrections: a store may be from the
    earlier code.)"""
    chains = {t: steps(world.broker, world.toy, t) for t in range(world.toy.tasks)}
    for host in world.hosts:
        for task, store in host.disk.stores.items():
            step, chain = store.progress.step, chains[task.partition]
            if (
                store.progress.ahead >= 0
                or step < 0
                or any(r.corrects >= 0 or r.layout != chain[0].layout for r in chain)
            ):
                continue
            if dict(store.scan(b"", b"\xff")) != fold(world.broker, world.toy, task.partition, step).state:
                raise Broken(f"disk: the store of {task} on {host.name} is not what steps 0 to {step} leave")


def clean(world: World) -> None:
    """If the group asks for tasks once and nothing else happens, nobody fences a worker that ran. Raises Broken.

    If asked twice, it may begin a generation while a worker writes `released`, which is then refused.
    """
    if len(world.plan.faults) > 1 or not all(isinstance(f, Move | Leave) for f in world.plan.faults):
        return
    unfinished = set()
    for t in range(world.toy.tasks):
        steps = world.broker[world.toy.task(t).steps]
        found = [decode(e.value) for e in steps.entries if e.value is not None]
        ran = {r.nonce for r in found if isinstance(r, StepRecord)}
        unfinished |= {r.owner for r in found if isinstance(r, Named) and r.nonce not in ran}
    if rude := [f for f in world.fences if f[1] not in unfinished]:
        raise Broken(f"clean: {rude[0][0]} fences {rude[0][1]}")


def prompt(world: World) -> None:
    """The group waits for the last steps of the tasks that leave, and for nothing else. Raises Broken."""
    if not all(isinstance(f, Move | Expel | LateJoin) for f in world.plan.faults):
        return
    for host in world.hosts:
        if host.process is not None and (waited := host.process.worker.kept_waiting) > PROMPT:
            raise Broken(f"prompt: {host.name} keeps the group waiting for {waited} turns")


def run(toy: Toy, plan: Plan, world: World | None = None) -> World:
    """Run a plan to its end, wake the sleepers, continue, and check. Raises Broken, and what the protocol raises.

    >>> len(run(Toy(), Plan()).fences)
    0
    """
    world = world or World(toy, plan)
    world.on_write = lambda task, progress: store_is_not_ahead(world.broker, toy, task, progress)

    def finished() -> bool:
        toy.holds(world, ended=False)
        return world.deserted() or (world.quiet() and all(covered(world.broker, toy, t) for t in range(toy.tasks)))

    try:
        for _ in range(len(plan.faults) + 1):  # to the end; with the sleepers awake; and as often as they pause again
            ended = world.run_until(finished, BUDGET)
            for t in range(toy.tasks):
                chain(world.broker, toy, t)
            if not ended:
                raise Broken(f"finish: the run has not ended after {BUDGET} turns")
            atomic(world.broker, toy)
            output(world.broker, toy)
            if not world.wake():
                break
        stores(world)
        disks(world)
        toy.holds(world, ended=True)
        clean(world)
        prompt(world)
    finally:
        world.close()
    return world
