"""Whatever a reader does with its place, each record counts once, in order; and what cannot be told is an error."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

import falkirk as fk
from falkirk.errors import ConfigError, SourceError, StateError


@dataclass(frozen=True)
class Written:
    """A record as a consumer hands it over."""

    the_offset: int
    header: tuple[str, bytes] | None
    the_partition: int = 0

    def topic(self) -> str:
        return "out"

    def partition(self) -> int:
        return self.the_partition

    def offset(self) -> int:
        return self.the_offset

    def headers(self) -> list[tuple[str, bytes]] | None:
        return None if self.header is None else [self.header]


def by(task: int, step: int, sequence: int, offset: int, partition: int = 0) -> Written:
    return Written(offset, ("falkirk", b"stats/%d %d %d" % (task, step, sequence)), partition)


@st.composite
def logs(draw: st.DrawFn) -> list[Written]:
    """A partition that several tasks write: steps in turn, some of which write nothing here, with markers between."""
    found, offset, steps = [], 0, [0, 0, 0]
    for task, skipped, count in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)), max_size=12)
    ):
        steps[task] += 1 + skipped
        for sequence in range(count):
            found.append(by(task, steps[task], sequence, offset))
            offset += 1
        offset += 1  # the transaction's marker
    return found


@given(logs(), st.randoms(use_true_random=False))
def test_each_record_once_and_in_order_through_rewinds_and_crashes(log: list[Written], rng: random.Random) -> None:
    once, kept, results, at = fk.Once(), fk.Once().state(), list[Written](), 0
    committed = 0
    while at < len(log) or committed < len(results):
        for record in once.only_new(log[at : at + rng.randint(1, 5)]):
            results.append(record)
            at = max(at, log.index(record) + 1)
        match rng.randrange(4):
            case 0:  # the process dies: what it had not committed is gone, and its place may be further back still
                del results[committed:]
                once, at = fk.Once(kept), rng.randint(0, min(committed, len(log)))
            case 1:
                at = rng.randint(0, at)
            case _:
                kept, committed = once.state(), len(results)
                at = max(at, committed)
    assert results == log
    assert once.positions() == ({("out", 0): log[-1].offset() + 1} if log else {})


@given(logs(), st.randoms(use_true_random=False))
def test_a_copy_with_repeats_gives_each_record_once(log: list[Written], rng: random.Random) -> None:
    copy: list[Written] = []
    at = 0
    while at < len(log):  # a mirror that dies goes on from where it had last noted its place
        upto = rng.randint(at + 1, len(log))
        copy += [Written(len(copy) + i, record.header) for i, record in enumerate(log[at:upto])]
        at = upto if upto == len(log) else rng.randint(at, upto)
        if rng.random() < 0.5 and at == 0:
            at = upto
    once = fk.Once(copied=True)
    assert [record.header for record in once.only_new(copy)] == [record.header for record in log]


def test_records_of_batch_parts_and_of_others_are_told_by_their_offsets() -> None:
    epoch, other = Written(3, ("falkirk-epoch", b"4")), Written(5, None)
    once = fk.Once()
    assert [once.new(record) for record in (epoch, other, epoch, other)] == [True, True, False, False]
    with pytest.raises(SourceError, match="no step of a stream wrote it"):
        fk.Once(copied=True).new(epoch)


def test_an_app_that_was_made_anew_is_an_error_until_a_person_has_said_that_it_counts() -> None:
    once = fk.Once()
    old, new = [by(0, step, 0, step) for step in range(5)], [by(0, step, 0, 10 + step) for step in range(3)]
    assert all(map(once.new, old))
    with pytest.raises(SourceError, match=r"task stats/0 began again: step 0 follows on step 4\n  where: out:0:10"):
        once.new(new[0])
    once.begin_again(new[0])
    assert all(map(once.new, new))
    again = fk.Once(once.state())
    assert not any(map(again.new, [*old, *new]))  # back across the beginning
    assert again.new(by(0, 3, 0, 13))
    with pytest.raises(ConfigError, match="no task begins again at out:0:13"):
        again.begin_again(by(0, 3, 0, 13))


def test_a_topic_that_was_made_anew_is_an_error() -> None:
    once = fk.Once()
    assert all(once.new(by(0, step, 0, step)) for step in range(5))
    with pytest.raises(SourceError, match="was read already, but step 5 of task stats/0 was not"):
        once.new(by(0, 5, 0, 0))


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(StateError, match="not the state of a reader"):
        fk.Once(b"{}")
    with pytest.raises(ConfigError, match="copied=False"):
        fk.Once(fk.Once().state(), copied=True)
