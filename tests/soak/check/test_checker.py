"""The checker finds nothing in a sound log, and in each spoilt one what was done to it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.soak.check.checker import Checker, Source
from tests.soak.check.findings import Findings, Kind
from tests.soak.check.seen import Seen, Tp
from tests.soak.check.world import SPOILS, Spoil, World, make


def check(world: World, rng: random.Random, *, chatty: bool = True) -> Findings:
    """Hand the world's visible records to a checker, the partitions in a random order."""
    checker = Checker(world.spec, world.counts())
    logs = {tp: list(enumerate(log)) for tp, log in world.logs.items()}
    ends = {tp: len(log) for tp, log in world.logs.items()}
    while left := [tp for tp, log in logs.items() if log]:
        tp = rng.choice(left)
        offset, entry = logs[tp].pop(0)
        if entry.visible:
            checker.see(Seen(tp, offset, entry.key, entry.value, entry.timestamp, entry.mark, 0.0))
        if not logs[tp]:
            checker.reach(tp, ends[tp])
        if chatty and rng.random() < 0.2:
            if checker.barrier():
                checker.ends_are(ends if rng.random() < 0.8 else None)
            checker.advance()
    return checker.finish(ends, {world.spec.sources[0]: world.sent})


def test_what_the_generator_sends_again_is_input_too() -> None:
    source, tp = Source(), Tp("bids", 0)
    assert [source.see(tp, number) for number in (0, 2, 3, 2, 3, 5)] == [None] * 6
    assert source.see(tp, 4) == "record 4 comes after 5"
    assert (source.count, source.sum) == (5, 14)


def test_a_reader_that_reads_twice_is_at_fault_itself() -> None:
    world = make(random.Random(1))
    source = Tp(world.spec.sources[0], 0)
    checker = Checker(world.spec, world.counts())
    for offset in (0, 1, 2, 0):
        entry = world.logs[source][offset]
        checker.see(Seen(source, offset, entry.key, entry.value, entry.timestamp, entry.mark, 0.0))
    assert f"input: {source}: it was read to 3, and is read again from 0" in list(checker.found)


seeds = st.integers(0, 2**32)


@given(seeds, st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_sound_log_is_passed(seed: int, chatty: bool) -> None:
    rng = random.Random(seed)
    assert list(check(make(rng), rng, chatty=chatty)) == []


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
@given(seed=seeds, chatty=st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_spoilt_log_is_found_out(spoil: Spoil, seed: int, chatty: bool) -> None:
    rng = random.Random(seed)
    world = make(rng)
    expected = spoil(world, rng)
    found = check(world, rng, chatty=chatty)
    assert expected is None or found.counts[expected] > 0, list(found)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("lose_one", {Kind.LOST: 1}),
        ("double_one", {Kind.DOUBLED: 1}),
        ("repeat_later", {Kind.DOUBLED: 1}),
        ("swap_neighbours", {Kind.OUT_OF_ORDER: 1}),
        ("change_a_value", {Kind.WRONG: 1}),
    ],
)
def test_one_fault_in_a_sink_counts_once(name: str, counts: dict[Kind, int]) -> None:
    for seed in range(20):
        rng = random.Random(seed)
        world = make(rng)
        stage = world.spec.stages[1]  # its sink is nobody's input, so a fault has no others in its wake
        alone = World(world.spec, world.partitions, world.sent, dict(world.logs))
        for tp in [tp for tp in alone.logs if tp.topic != stage.outputs[0].topic]:
            del alone.logs[tp]
        (spoil,) = (s for s in SPOILS if s.__name__ == name)
        assert spoil(alone, rng) is not None
        found = check(World(world.spec, world.partitions, world.sent, world.logs | alone.logs), rng)
        assert {k: n for k, n in found.counts.items() if n and k is not Kind.TABLE} == counts, (seed, list(found))


def test_memory_is_bounded_by_keys() -> None:
    rng = random.Random(7)
    world = make(rng, rows=2000)
    checker = Checker(world.spec, world.counts())
    ends = {tp: len(log) for tp, log in world.logs.items()}
    for tp, log in sorted(world.logs.items()):
        for offset, entry in enumerate(log):
            checker.see(Seen(tp, offset, entry.key, entry.value, entry.timestamp, entry.mark, 0.0))
    checker.advance()
    assert checker.consumed(ends)
    assert all(not rows for inputs in checker.inputs.values() for rows in inputs.rows.values())
    assert all(not task.waiting for task in checker.tasks.values())
    assert all(not track.held for task in checker.tasks.values() for track in task.tracks.values())


def test_an_input_record_that_went_missing_is_the_harness_fault() -> None:
    rng = random.Random(3)
    world = make(rng)
    assert check(World(world.spec, world.partitions, world.sent + 1, world.logs), rng).counts[Kind.INPUT] == 1


def test_a_record_without_provenance_is_torn() -> None:
    rng = random.Random(4)
    world = make(rng)
    tp = Tp("stats", 0)
    world.logs[tp].append(world.logs[tp][0].__class__(b"1", b"{}"))
    assert check(world, rng).counts[Kind.TORN] == 1
