"""What a run must refuse or survive that is no fault at a point: rivals, operators that are no functions, lost input."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from falkirk.checkpoint.regimes import Eager, Lazy, Recovery
from falkirk.errors import DivergenceError
from falkirk.state.store import State
from falkirk.stream.dataflow.circuit import StepInput, StepOutput
from falkirk.testing.simulator import check
from falkirk.testing.simulator.plan import Crash, Plan
from falkirk.testing.simulator.toy import Counts, Toy
from falkirk.testing.simulator.world import World

COMMITTED = "committer: sends EndTxn(commit): done"


@pytest.mark.parametrize("recovery", [Eager, Lazy])
def test_of_two_processes_with_one_identity_the_older_ends_and_nothing_is_doubled(recovery: type[Recovery]) -> None:
    for turn in range(0, 240, 5):
        world = World(Toy(recovery=recovery, inputs=4), Plan(lazy_broker=bool(turn % 2)))
        assert world.run_until(lambda world=world, turn=turn: world.turn >= turn, 1_000)  # type: ignore[misc]
        older, younger = world.hosts[0], world.add(0)
        check.run(world.toy, world.plan, world)
        assert older.process is None
        assert younger.process is not None


class Counted(Counts):
    """Counts, and puts into its output how often it was run: no function of its input."""

    def __init__(self) -> None:
        self.runs = count()

    def run(self, step: StepInput, state: State) -> StepOutput:
        result = super().run(step, state)
        for emitted in result.emitted:
            emitted.values = [(value or b"") + b" %d" % next(self.runs) for value in emitted.values]
        return result


def test_a_lazy_task_that_gives_another_output_when_it_is_run_again_is_stopped() -> None:
    toy = Toy(tasks=1, recovery=Lazy, inputs=4, circuit=Counted())
    with pytest.raises(DivergenceError, match="counts/0: step 1"):
        check.run(toy, Plan((Crash(worker=0, on=COMMITTED, at=1),)))


def test_a_lazy_task_whose_input_was_compacted_is_stopped() -> None:
    """This is why the lazy regime refuses compacted sources."""
    toy = Toy(tasks=1, recovery=Lazy, inputs=4)
    world = World(toy, Plan((Crash(worker=0, on=COMMITTED, at=1),)))
    assert world.run_until(lambda: world.hosts[0].process is None, 1_000)
    for partition in world.broker.partitions("in"):
        partition.compact(world.broker.now, 0)
    with pytest.raises(DivergenceError, match="counts/0: step 1"):
        world.run_until(world.quiet, 1_000)


def test_an_eager_task_does_not_read_its_input_again() -> None:
    make = partial(Toy, tasks=1, recovery=Eager, inputs=4)
    world = World(make(), Plan((Crash(worker=0, on=COMMITTED, at=1),)))
    assert world.run_until(lambda: world.hosts[0].process is None, 1_000)
    ended = check.steps(world.broker, world.toy, 0)[-1].division
    for r in ended:
        world.broker.partitions("in")[r.partition.partition].delete(r.end)
    assert world.run_until(world.quiet, 1_000)
    assert check.covered(world.broker, world.toy, 0)
