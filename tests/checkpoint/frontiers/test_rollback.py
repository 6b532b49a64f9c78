"""The choice of frontiers is consistent and the greatest: by brute force, and on the figures of seed 000."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from tests.checkpoint.frontiers.small import (
    ALL,
    EPOCHS,
    NOTHING,
    TOTAL,
    choices,
    epochs,
    greatest,
    numbers,
    systems,
)

from falkirk.checkpoint.frontiers import AnyFrontier, Checkpoint, Edge, Frontier, Graph, Monitor, choose, sent_again
from falkirk.checkpoint.frontiers.projections import Around, Enter, Leave, Message, Recorded, Same
from falkirk.checkpoint.frontiers.rollback import after

BEGIN = Checkpoint(NOTHING, NOTHING)


@given(systems())
def test_the_choice_is_the_greatest_consistent_one(system: tuple[Graph, dict[str, list[Checkpoint]]]) -> None:
    graph, available = system
    # What a processor keeps at its beginning is nothing, so all beginnings together are always consistent.
    found = list(choices(graph, available))
    assert choose(graph, available).frontiers == greatest(found)


@given(systems())
def test_what_is_left_after_a_rollback_gives_the_same_choice(
    system: tuple[Graph, dict[str, list[Checkpoint]]],
) -> None:
    graph, available = system
    chosen = choose(graph, available).frontiers
    left = {p: after(kept, chosen[p]) for p, kept in available.items()}
    assert choose(graph, left).frontiers == chosen


@given(systems())
def test_a_processor_that_keeps_nothing_goes_back_as_far_as_one_that_kept_everything(
    system: tuple[Graph, dict[str, list[Checkpoint]]],
) -> None:
    """AnyFrontier stands for a checkpoint at every frontier. Brute force has all of them, by the estimates."""
    graph, available = system
    whole = [BEGIN, *(Checkpoint(epochs(n)) for n in range(1, 4)), Checkpoint(ALL)]
    every = {**available, "p": whole}
    assert choose(graph, {**available, "p": AnyFrontier()}).frontiers == greatest(list(choices(graph, every)))


@given(systems())
def test_the_monitor_says_what_brute_force_says_after_each_checkpoint(
    system: tuple[Graph, dict[str, list[Checkpoint]]],
) -> None:
    graph, available = system
    rng = random.Random(1)
    todo = {p: [c for c in kept if c.frontier not in (NOTHING, ALL)] for p, kept in available.items()}
    saved = {p: [BEGIN] for p in graph.processors}
    monitor = Monitor(graph)
    while any(todo.values()):
        p = rng.choice([p for p, left in todo.items() if left])
        saved[p].append(todo[p].pop(0))
        before = dict(monitor.low)
        raised = monitor.persisted(p, saved[p][-1])
        assert dict(monitor.low) == greatest(list(choices(graph, saved)))
        assert raised == {q: low for q, low in monitor.low.items() if low != before[q]}
        assert all(before[q] <= low for q, low in monitor.low.items()), "a low-watermark went back"
        for q in graph.processors:
            kept = monitor.kept(q)
            assert not isinstance(kept, AnyFrontier)
            assert [c.frontier for c in kept] == [c.frontier for c in saved[q] if monitor.low[q] <= c.frontier]


def test_a_checkpoint_that_does_not_follow_is_rejected() -> None:
    monitor = Monitor(Graph("p", []))
    monitor.persisted("p", Checkpoint(epochs(2)))
    with pytest.raises(ValueError, match="does not follow"):
        monitor.persisted("p", Checkpoint(epochs(1)))


def test_no_consistent_choice_is_an_error() -> None:
    graph = Graph("pq", [Edge("e", "p", "q", Same())])
    with pytest.raises(ValueError, match="no checkpoint that is consistent"):
        choose(graph, {"p": [BEGIN], "q": [Checkpoint(epochs(1))]})


def test_figure_3_a_finished_time_is_kept_and_an_unfinished_one_is_undone() -> None:
    """select ──▶ sum ──▶ buffer, epochs 1 (A, complete) and 2 (B, under way). Only the buffer has state when A is complete,
    and has saved it without B's. The buffer's host dies."""
    graph = Graph(["select", "sum", "buffer"], [Edge("a", "select", "sum", Same()), Edge("b", "sum", "buffer", Same())])
    live = {"select": AnyFrontier(), "sum": AnyFrontier()}
    choice = choose(graph, {**live, "buffer": [BEGIN, Checkpoint(epochs(1))]})
    assert choice.frontiers == dict.fromkeys(graph.processors, epochs(1))


def test_figure_4_a_history_is_filtered_and_what_was_logged_is_sent_again() -> None:
    """p has events at 3, 4 and a later one out of order; it has logged e4, not e3, and goes back to ↓3. q, on e4, has
    processed nothing of epoch 3."""
    logged = [Message((1,), (1,)), Message((4,), (4,)), Message((3,), (3,))]
    assert sent_again(logged, epochs(3), epochs(2)) == [Message((3,), (3,))]
    graph = Graph("pqr", [Edge("e3", "p", "r", Same()), Edge("e4", "p", "q", Same(), logged=True)])
    kept = {
        "p": [BEGIN, Checkpoint(epochs(3))],
        "q": [BEGIN, Checkpoint(epochs(2))],
        "r": [BEGIN, Checkpoint(epochs(3)), Checkpoint(epochs(4))],
    }
    assert choose(graph, kept).frontiers == {"p": epochs(3), "q": epochs(2), "r": epochs(3)}
    unlogged = Graph("pqr", [Edge("e3", "p", "r", Same()), Edge("e4", "p", "q", Same())])
    assert choose(unlogged, kept).frontiers["p"] == NOTHING, "q needs epoch 3 again, and p has discarded it"


def test_figure_5_a_time_that_was_said_to_be_complete_gets_no_new_message() -> None:
    """p and q were notified of 1; p sent a message that r took, and x was then notified of 1. r received nothing from q, so
    messages alone let q begin again; its notification does not, for x has been told that 1 is complete."""
    edges = [Edge("e1", "p", "r", Same()), Edge("e2", "q", "r", Same()), Edge("e3", "r", "x", Same())]
    graph = Graph("pqrx", edges)
    one = epochs(1)
    kept = {
        "p": [BEGIN, Checkpoint(one, discarded={"e1": one})],
        "q": [BEGIN],  # it has failed, and saved nothing
        "r": [BEGIN, Checkpoint(one, NOTHING, {"e1": one, "e2": NOTHING}, {"e3": NOTHING})],
        "x": [BEGIN, Checkpoint(one, one, {"e3": NOTHING})],
    }
    choice = choose(graph, kept)
    assert choice.frontiers == {"p": one, "q": NOTHING, "r": one, "x": NOTHING}
    unaware = {**kept, "x": [BEGIN, Checkpoint(one, NOTHING, {"e3": NOTHING})]}
    assert choose(graph, unaware).frontiers["x"] == one, (
        "the broken choice of the figure, without notification frontiers"
    )


def test_figure_7a_sequence_numbers_with_all_outputs_logged() -> None:
    """p ──▶ x ──▶ q, and x fails: it goes back to its checkpoint, and q to what x had sent by then. p stays."""
    sent = Recorded([(numbers(e1=2), numbers(e2=1)), (numbers(e1=5), numbers(e2=3))])
    graph = Graph("pxq", [Edge("e1", "p", "x", Recorded([]), logged=True), Edge("e2", "x", "q", sent, logged=True)])
    kept = {
        "p": [Checkpoint(ALL, NOTHING)],
        "x": [BEGIN, *(Checkpoint(numbers(e1=n), NOTHING) for n in (2, 5))],
        "q": [BEGIN, Checkpoint(numbers(e2=3), NOTHING), Checkpoint(ALL, NOTHING, {"e2": numbers(e2=6)})],
    }
    assert choose(graph, kept).frontiers == {"p": ALL, "x": numbers(e1=5), "q": numbers(e2=3)}
    quiet = {**kept, "q": [BEGIN, Checkpoint(ALL, NOTHING, {"e2": numbers(e2=3)})]}
    assert choose(graph, quiet).frontiers["q"] == ALL, "a firewall: q has seen no more than x still has sent"


def test_figure_7b_a_processor_that_logs_its_outputs_is_a_firewall() -> None:
    """Like an RDD that is persisted: r ──▶ p ══▶ x ──▶ y and q beside them; y fails, and only x goes back with it."""
    edges = [
        Edge("e1", "r", "p", Same()), Edge("e2", "p", "x", Same(), logged=True), Edge("e3", "x", "y", Same()),
        Edge("e4", "p", "q", Same(), logged=True),
    ]  # fmt: skip
    graph = Graph("rpxyq", edges)

    def live(name: str) -> list[Checkpoint]:
        one = {e.name: epochs(1) for e in edges}
        gone = {e.name: epochs(1) for e in graph.out(name) if not e.logged}
        return [BEGIN, Checkpoint(ALL, epochs(1), one, gone)]

    kept = {**{p: live(p) for p in "rpq"}, "x": live("x"), "y": [BEGIN]}
    assert choose(graph, kept).frontiers == {"r": ALL, "p": ALL, "q": ALL, "x": NOTHING, "y": NOTHING}


def test_figure_7c_a_loop_is_restarted_from_what_its_head_has_logged() -> None:
    """p ──▶ q ══▶ x ──▶ y ──▶ q, and q ──▶ r out of the loop. y fails with ↓(1, 3) saved. q, which counts the rounds and
    logs, keeps ↓(1, 4), and sends its messages of (1, 4) again."""
    edges = [
        Edge("e2", "p", "q", Enter(TOTAL), logged=True), Edge("e4", "q", "x", Same(), logged=True),
        Edge("e6", "x", "y", Same()), Edge("e5", "y", "q", Around(TOTAL)), Edge("e3", "q", "r", Leave(TOTAL), logged=True),
    ]  # fmt: skip
    graph = Graph("pqxyr", edges)

    def at(n: int) -> Frontier:
        return Frontier.below(TOTAL, [(1, n)])

    def saved(*rounds: int) -> list[Checkpoint]:
        return [BEGIN, *(Checkpoint(at(n), delivered={"e2": Frontier.below(TOTAL, [(1, 0)])}) for n in rounds)]

    kept = {
        "p": [Checkpoint(epochs(1))], "q": saved(2, 3, 4, 5), "x": AnyFrontier(), "y": saved(2, 3), "r": [BEGIN],
    }  # fmt: skip
    choice = choose(graph, kept).frontiers
    assert (choice["q"], choice["y"], choice["x"]) == (at(4), at(3), at(3))
    logged = [Message((1, n), (1, n)) for n in range(6)]
    assert sent_again(logged, choice["q"], choice["x"]) == [Message((1, 4), (1, 4))]


def test_several_failures_at_once_and_one_during_recovery() -> None:
    """A second failure before the first rollback is done goes on from what that left: it never finds more."""
    graph = Graph("pqr", [Edge("a", "p", "q", Same()), Edge("b", "q", "r", Same())])
    saved = {
        p: [BEGIN, *(Checkpoint(epochs(n)) for n in kept)] for p, kept in {"p": (1, 2), "q": (1, 2), "r": (1,)}.items()
    }
    live = Checkpoint(ALL, epochs(2), {"a": epochs(3)}, {"a": epochs(3)})
    first = choose(graph, {**saved, "p": [*saved["p"], live]}).frontiers
    assert first == {"p": epochs(1), "q": epochs(1), "r": epochs(1)}
    second = choose(graph, {p: after(kept, first[p]) for p, kept in saved.items()}).frontiers
    assert second == choose(graph, saved).frontiers == first


def test_the_monitor_keeps_little_and_asks_few_on_a_long_run() -> None:
    """A chain of three stages of 8 tasks, each with a checkpoint in turn, for 20 rounds."""
    names = [f"{stage}{n}" for stage in "abc" for n in range(8)]
    edges = [
        Edge(f"{x}{m}{y}{n}", f"{x}{m}", f"{y}{n}", Same()) for x, y in ("ab", "bc") for m in range(8) for n in range(8)
    ]
    monitor = Monitor(Graph(names, edges))
    for epoch in range(1, 21):
        for name in names:
            monitor.persisted(name, Checkpoint(epochs(epoch)))
        assert set(monitor.low.values()) == {epochs(epoch)}
        assert all(len(kept) == 1 for p in names if not isinstance(kept := monitor.kept(p), AnyFrontier))
    assert EPOCHS.leq((20,), next(iter(monitor.low["a0"].times)))
