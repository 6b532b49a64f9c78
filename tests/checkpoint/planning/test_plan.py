"""Who recovers from what, after a host or a worker is gone; and that nobody else is touched is computed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from falkirk.checkpoint.planning import Cost, Kept, Lost, Rates, Replay, Seconds, TaskFacts, plan

A_STEP = Cost(0.01, 0.0)


def stats(**changes: object) -> TaskFacts:
    """A lazy task at step 95, with a version of step 70 in a store that all hosts reach."""
    kept = [Kept("local", 95, on="a"), Kept("copied", 70, Replay(25, 50_000), size=1_000_000)]
    return replace(TaskFacts("stats/0", "lazy", 95, kept, presumed=A_STEP), **changes)  # type: ignore[arg-type]


def test_a_worker_that_dies_leaves_its_store_and_a_host_takes_it_along() -> None:
    whole = Lost(frozenset(["stats/0"]))
    (here,), (elsewhere,) = plan([stats()], [], whole).tasks, plan([stats()], [], replace(whole, host="a")).tasks
    assert here.kept is not None
    assert (here.kept.where, here.seconds.replay, here.seconds.fetch) == ("local", 0.0, 0.0)
    assert elsewhere.kept is not None
    assert (elsewhere.kept.where, elsewhere.back_to) == ("copied", 95)
    assert elsewhere.seconds.replay == pytest.approx(0.25)


def test_of_the_copies_that_are_left_the_newest_is_opened() -> None:
    facts = stats(kept=[Kept("nothing", -1, Replay(96, 96)), Kept("copied", 40, Replay(55, 55)), Kept("copied", 70)])
    (task,) = plan([facts], [], Lost(frozenset(["stats/0"]), "a")).tasks
    assert task.kept is not None
    assert task.kept.step == 70


def test_copies_on_the_disk_of_the_host_that_is_lost_are_lost_with_it() -> None:
    facts = stats(kept=[Kept("local", 95, on="a"), Kept("copied", 70, on="a")])
    found = plan([facts], [], Lost(frozenset(["stats/0"]), "a"))
    assert (found.stuck, found.seconds) == (["stats/0"], 0.0)
    assert plan([facts], [], Lost(frozenset(["stats/0"]), "b")).stuck == []


@pytest.mark.parametrize("seed", range(60))
def test_behind_logged_edges_only_the_failed_tasks_go_back(seed: int) -> None:
    """Any graph, loops included; whoever fails, and whatever is kept of it."""
    by = random.Random(seed)
    names = [f"s/{n}" for n in range(by.randint(1, 7))]
    facts = []
    for name in names:
        last = by.randint(-1, 20)
        kept = [Kept("copied", by.randint(-1, last), Replay(by.randint(1, 9), 1)) for _ in range(by.randint(1, 3))]
        facts.append(TaskFacts(name, "eager", last, kept, order=by.randint(0, 1)))
    sends = {(by.choice(names), by.choice(names)) for _ in range(by.randint(0, 14))}
    failed = frozenset(by.sample(names, by.randint(1, len(names))))
    found = plan(facts, [(src, dst, True) for src, dst in sorted(sends)], Lost(failed), takers=by.randint(1, 3))
    assert found.also == {}
    assert found.stay == len(names) - len(failed)
    assert {t.task: t.back_to for t in found.tasks} == {f.task: f.last for f in facts if f.task in failed}


def chain(**changes: object) -> list[TaskFacts]:
    """Three tasks in a row, of which the one in the middle fails."""
    ends = [Kept("local", 9, on="b")]
    middle = TaskFacts("q/0", "lazy", 5, [Kept("copied", 3, Replay(2, 2))])
    return [TaskFacts("p/0", "eager", 9, ends), replace(middle, **changes), TaskFacts("r/0", "eager", 9, ends)]  # type: ignore[arg-type]


def test_a_sender_whose_messages_are_not_logged_goes_back_with_their_reader() -> None:
    direct, logged = ("p/0", "q/0", False), ("q/0", "r/0", True)
    found = plan(chain(), [direct, logged], Lost(frozenset(["q/0"])))
    assert found.also.keys() == {"p/0"}
    assert plan(chain(), [("p/0", "q/0", True), logged], Lost(frozenset(["q/0"]))).also == {}


def test_a_task_that_cannot_come_to_its_last_step_takes_its_readers_back() -> None:
    """Its log has a gap: what it sends again may be others' messages than the reader has."""
    both = [("p/0", "q/0", True), ("q/0", "r/0", True)]
    found = plan(chain(rolls=False), both, Lost(frozenset(["q/0"])))
    assert [(t.task, t.back_to, t.seconds.replay) for t in found.tasks] == [("q/0", 3, 0.0)]
    assert found.also == {"r/0": -1}
    nothing = plan(chain(kept=[]), both, Lost(frozenset(["q/0"])))
    assert (nothing.stuck, nothing.also) == (["q/0"], {"r/0": -1})


def test_each_worker_recovers_some_tasks_at_a_time_those_with_little_to_do_first() -> None:
    def facts(name: str, steps: int, order: int) -> TaskFacts:
        rates = Rates().saw(
            Seconds(1.0, 0.5, 0.0, 2.0), 0, Replay(200, 0), A_STEP
        )  # 1 s to name, 0.5 s to open, 10 ms a step
        return TaskFacts(name, "lazy", steps, [Kept("nothing", -1, Replay(steps, 0))], rates, A_STEP, order)

    several = [facts("slow/0", 350, 1), facts("slow/1", 350, 1), *(facts(f"quick/{n}", 50, 0) for n in range(4))]
    lost = Lost(frozenset(f.task for f in several))
    alone = plan(several, [], lost, takers=1, slots=2)
    assert [t.task for t in alone.tasks[:4]] == [f"quick/{n}" for n in range(4)]
    assert [t.ends for t in alone.tasks] == pytest.approx([2.0, 2.0, 3.0, 3.0, 7.0, 7.0], abs=0.02)
    assert alone.seconds == pytest.approx(7.0, abs=0.02)
    assert plan(several, [], lost, takers=2, slots=2).seconds == pytest.approx(6.0, abs=0.02)


def test_what_was_not_measured_yet_is_named() -> None:
    (task,) = plan([stats()], [], Lost(frozenset(["stats/0"]), "a")).tasks
    assert list(task.unmeasured) == ["name", "open", "fetch", "replay"]
    rates = Rates().saw(Seconds(0.1, 0.1, 0.0, 1.0), 0, Replay(10, 10), A_STEP)
    (task,) = plan([stats(rates=rates)], [], Lost(frozenset(["stats/0"]), "a")).tasks
    assert list(task.unmeasured) == ["fetch"]


def test_a_task_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing is known of stats/9"):
        plan([stats()], [], Lost(frozenset(["stats/9"])))
