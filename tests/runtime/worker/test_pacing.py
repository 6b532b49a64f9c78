"""Large steps where commits are slow whatever their size, small ones where their size is what makes them slow."""

from __future__ import annotations

import pytest

from falkirk.runtime.worker.pacing import PROMPT, Pacer

MOST = 1000


def paced(fixed: float, row: float, pacer: Pacer | None = None) -> Pacer:
    """After some commits, each of as many rows as may be, which take so many seconds, and so many more for each row."""
    pacer = pacer or Pacer(limit=0.1, max_rows=MOST, max_bytes=1 << 20)
    for _ in range(80):
        pacer.committed(fixed + row * pacer.most, pacer.most)
    return pacer


@pytest.mark.parametrize("fixed", [1.2, 3.0, 8.0])
def test_steps_are_as_large_as_ever_where_each_commit_is_slow_whatever_its_size(fixed: float) -> None:
    assert paced(fixed, row=0.0001).most == MOST


@pytest.mark.parametrize("fixed", [1.2, 3.0, 8.0])
def test_steps_that_had_become_small_grow_again_though_each_commit_is_slow(fixed: float) -> None:
    pacer = Pacer(limit=0.1, max_rows=MOST, max_bytes=1 << 20)
    pacer.slow(8)
    assert pacer.most == 1
    assert paced(fixed, row=0.0001, pacer=pacer).most == MOST


def test_steps_are_small_where_each_row_is_slow() -> None:
    pacer = paced(fixed=0.05, row=0.1)
    assert pacer.most < MOST / 10
    assert 0.05 + 0.1 * pacer.most <= PROMPT


def test_a_step_does_not_close_before_the_commit_that_it_would_wait_for_is_nearly_over() -> None:
    pacer = paced(fixed=0.3, row=0.0)
    pacer.running = 0.02

    def closes(rows: int, age: float, committing: float | None) -> bool:
        return pacer.closes(rows=rows, size=rows, age=age, drained=False, committing=committing)

    assert not closes(5, age=9.0, committing=0.2)
    assert closes(5, age=9.0, committing=0.29)  # just early enough to have run when the commit ends
    assert closes(5, age=9.0, committing=None)
    assert not closes(5, age=0.01, committing=0.29)
    assert closes(MOST, age=0.0, committing=0.0)  # no more may be read


def test_a_bad_hour_is_forgotten() -> None:
    pacer = paced(fixed=8.0, row=0.0)
    for _ in range(20):
        pacer.committed(0.02, 200)
    assert paced(fixed=0.02, row=0.01, pacer=pacer).most * 0.01 <= PROMPT
