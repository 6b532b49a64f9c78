"""Frontiers are sets: each operation is the set's, time by time."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.frontiers.small import ALL, EPOCHS, INSIDE, LOOP, NOTHING, PROJECTIONS, frontiers, times_of

from falkirk.checkpoint.frontiers import FOREVER, Domain, Frontier, Sequences, Structured
from falkirk.checkpoint.frontiers.projections import Message, Projection, Recorded, Same, check

DOMAINS: list[Domain] = [EPOCHS, *INSIDE, Sequences()]


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@given(data=st.data())
def test_a_frontier_is_a_downward_closed_set(domain: Domain, data: st.DataObject) -> None:
    f, g = data.draw(frontiers(domain)), data.draw(frontiers(domain))
    times = times_of(domain)
    for t, u in product(times, repeat=2):
        assert not (domain.leq(t, u) and u in f) or t in f
    members = {t for t in times if t in f}, {t for t in times if t in g}
    assert {t for t in times if t in f | g} == members[0] | members[1]
    assert {t for t in times if t in f & g} == members[0] & members[1]
    assert not f <= g or members[0] <= members[1]
    assert (f <= g and g <= f) == (f == g)
    assert f & g <= f <= f | g
    assert NOTHING <= f <= ALL


@pytest.mark.parametrize("domain", DOMAINS, ids=repr)
@given(data=st.data())
def test_equal_sets_are_equal_frontiers(domain: Domain, data: st.DataObject) -> None:
    times = data.draw(st.lists(st.sampled_from(times_of(domain)), min_size=1, max_size=4))
    below = [t for t in times_of(domain) if any(domain.leq(t, u) for u in times)]
    assert Frontier.below(domain, times) == Frontier.below(domain, below)
    assert hash(Frontier.below(domain, times)) == hash(Frontier.below(domain, below))


def test_a_time_of_another_domain_is_rejected() -> None:
    with pytest.raises(ValueError, match="not a time of 2 numbers"):
        Frontier.below(LOOP, [(1,)])
    with pytest.raises(ValueError, match="edge, number"):
        Frontier.below(Sequences(), [(1, 2)])
    with pytest.raises(ValueError, match="different domains"):
        Frontier.below(EPOCHS, [(1,)]) & Frontier.below(LOOP, [(1, 2)])


@pytest.mark.parametrize(("phi", "before", "behind"), PROJECTIONS, ids=repr)
@given(data=st.data())
def test_projections_are_monotone_and_within_is_the_adjoint_of_sends(
    phi: Projection, before: Domain, behind: Domain, data: st.DataObject
) -> None:
    f, g, h = data.draw(frontiers(before)), data.draw(frontiers(before)), data.draw(frontiers(behind))
    assert phi(f) <= phi(f | g)
    assert phi.sends(f) <= phi.sends(f | g)
    assert (phi.sends(f) <= h) == (f <= phi.within(h))


@pytest.mark.parametrize("inside", INSIDE, ids=repr)
@given(data=st.data())
def test_loops_keep_the_contract_on_all_that_they_may_send(inside: Structured, data: st.DataObject) -> None:
    for phi, before, _ in PROJECTIONS:
        if getattr(phi, "inside", None) != inside:
            continue
        causes = [t for t in times_of(before) if FOREVER not in t]
        match type(phi).__name__:
            case "Enter":
                history = [Message(t, (*t, 0)) for t in causes]
            case "Leave":
                history = [Message(t, t[:-1]) for t in causes]
            case _:
                history = [Message(t, (*t[:-1], int(t[-1]) + 1)) for t in causes]
        assert check(phi, history, [data.draw(frontiers(before))]) is None


@pytest.mark.parametrize("inside", INSIDE, ids=repr)
def test_projections_of_loops_are_as_large_as_they_may_be(inside: Structured) -> None:
    """One more time would break the contract, for frontiers below a time."""
    for phi, before, behind in PROJECTIONS:
        if getattr(phi, "inside", None) != inside:
            continue
        step = {"Enter": lambda t: (*t, 0), "Leave": lambda t: t[:-1], "Around": lambda t: (*t[:-1], t[-1] + 1)}
        sent = step[type(phi).__name__]
        wide = [*product((*range(5), 9), repeat=len(times_of(before)[0]))]
        for top in times_of(before):
            f = Frontier.below(before, [top])
            may = [sent(t) for t in wide if t not in f]  # type: ignore[no-untyped-call]
            for t in times_of(behind):
                if FOREVER not in t:
                    safe = not any(behind.leq(m, t) for m in may)
                    assert (t in phi(f)) == safe, (phi, f, t)


def test_a_message_sent_back_in_time_is_found() -> None:
    history = [Message((1,), (1,)), Message((3,), (2,))]
    cut = [Frontier.below(EPOCHS, [(n,)]) for n in range(4)]
    assert check(Same(), history, cut) == Message((3,), (2,))
    assert check(Same(), history[:1], cut) is None


def test_a_change_of_domain_answers_from_what_was_recorded() -> None:
    """Figure 2(a) and section 3.2: 73 messages in epoch 1, 100 up to epoch 2; and back, by count."""
    sent = [Frontier.below(Sequences(), [("e", n)]) for n in (73, 100)]
    done = [Frontier.below(EPOCHS, [(n,)]) for n in (1, 2)]
    forth, back = Recorded([*zip(done, sent, strict=True)]), Recorded([*zip(sent, done, strict=True)])
    assert [forth(f) for f in (NOTHING, *done, ALL)] == [NOTHING, *sent, ALL]
    assert back(Frontier.below(Sequences(), [("e", 99)])) == done[0], "epoch 2 is not complete"
    assert forth.within(Frontier.below(Sequences(), [("e", 80)])) == done[0]
    assert forth.within(NOTHING) == NOTHING
