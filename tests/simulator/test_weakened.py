"""Every clause of the protocol is needed: without it, the smallest schedule found breaks a run that it else stands."""

from __future__ import annotations

import pytest

from falkirk.testing.simulator.__main__ import table
from falkirk.testing.simulator.weakened.weaken import WEAKENINGS, broken, lacking


@pytest.mark.parametrize("name", WEAKENINGS)
def test_without_its_clause_the_protocol_breaks(name: str) -> None:
    schedule = WEAKENINGS[name].breaks
    assert schedule.attempt() is None, "the schedule breaks the whole protocol too"
    assert broken(name), f"look for another: python -m falkirk.testing.simulator --weaken {name} --seeds 0:4000"


@pytest.mark.parametrize("name", [name for name in WEAKENINGS if WEAKENINGS[name].lacks_too])
def test_where_two_clauses_guard_either_is_enough(name: str) -> None:
    schedule = WEAKENINGS[name].breaks
    for left_out in (name, *WEAKENINGS[name].lacks_too):
        with lacking(left_out):
            assert schedule.attempt() is None


@pytest.mark.slow
def test_the_table_shows_every_weakening() -> None:
    shown = table()
    assert all(f"| {name}" in shown for name in WEAKENINGS)
    assert "HOLDS" not in shown
