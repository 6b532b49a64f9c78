"""A broadcast table that batch epochs write: whoever looks sees one epoch, whole, whatever was read of the others by then."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import falkirk as fk
from falkirk.checkpoint.epochs import Abandoned, Completed, EpochRecord, Opened, OutputEnds
from falkirk.checkpoint.ids import Epoch, Millis, Offset
from falkirk.checkpoint.publishing import HEADER
from falkirk.runtime.worker.reading.broadcast import TableCopy
from falkirk.state.rocks import RocksStore
from falkirk.state.store import Identity
from falkirk.stream.circuit.broadcast import Arrivals, Keeper
from falkirk.stream.dataflow.circuit import SharedRows
from falkirk.stream.dataflow.records import Records
from falkirk.stream.stages.stage import SharedTable
from falkirk.testing.memory import DictState

KEYS = [f"k{i}" for i in range(6)]
Table = dict[str, int]


@cache
def table() -> SharedTable:
    """A flow's table of its own batch part's result."""
    flow = fk.Flow("f")
    bids = flow.source("bids", key="k", value=fk.Json({"k": fk.String, "x": fk.Int64}))
    daily = bids.with_regime(fk.Batch(every=None)).group_by("k", id="daily").agg(x=fk.max("x"))
    daily.sink("daily", key="k", value=fk.Json())
    table = flow.table("daily", key="k", value=fk.Json({"x": fk.Int64}), broadcast=True)
    bids.lookup(table, columns={"x": "usual"}).sink("out", key="k", value=fk.Json())
    (shared,) = flow.plan().shared
    assert shared.epochs == "falkirk.f.epochs.daily"
    return shared


class Batches:
    """Epochs as a batch part leaves them: the records of a topic, and what the epochs topic says of them."""

    def __init__(self, rng: random.Random, partitions: int = 2) -> None:
        self.logs: list[list[tuple[bytes, bytes | None, int]]] = [[] for _ in range(partitions)]
        self.said: list[EpochRecord] = []
        self.tables: dict[int, Table] = {-1: {}}
        shown: set[str] = set()
        for epoch in range(rng.randint(1, 6)):
            table = {k: epoch * 10 + rng.randint(0, 9) for k in KEYS if rng.random() < 0.7}
            rows: list[tuple[str, int | None]] = [*table.items(), *((k, None) for k in shown - table.keys())]
            rng.shuffle(rows)
            self.said.append(Opened(Epoch(epoch), Millis(0), (), (), "f"))
            whole = rng.random() < 0.7
            for key, x in rows if whole else rows[: rng.randint(0, len(rows))]:
                value = None if x is None else msgspec.json.encode({"x": x})
                self.logs[KEYS.index(key) % partitions].append((key.encode(), value, epoch))
                shown.add(key)
            if whole:
                ends = OutputEnds("daily", "id", tuple(Offset(len(log)) for log in self.logs))
                self.said.append(Completed(Epoch(epoch), Millis(0), (ends,), len(rows)))
                self.tables[epoch] = table
                shown = set(table)
            else:
                self.said.append(Abandoned(Epoch(epoch), Millis(0), "no"))


def seen(keeper: Keeper, state: DictState, visible: int) -> Table:
    rows, places = keeper.seen(state, visible).find([k.encode() for k in KEYS])
    return {k: rows["x"][place] for k, place in zip(KEYS, places, strict=True) if place is not None}


@pytest.mark.slow
@settings(max_examples=120)
@given(seed=st.integers(0, 2**32), restart=st.booleans())
def test_at_every_moment_one_epoch_is_seen_and_none_before_it_again(seed: int, restart: bool) -> None:
    rng = random.Random(seed)
    batches, kept, state = Batches(rng), Keeper(table()), DictState()
    arrivals = Arrivals("daily", kept.about(state))
    at, told, newest = [0, 0], 0, -1
    while told < len(batches.said) or any(at[p] < len(log) for p, log in enumerate(batches.logs)):
        where = rng.randint(0, 2)
        if where == 2 and told < len(batches.said):
            arrivals.admit(Offset(told), batches.said[told])
            told += 1
        elif where < 2 and at[where] < len(batches.logs[where]):
            end = rng.randint(at[where] + 1, len(batches.logs[where]))
            some = batches.logs[where][at[where] : end]
            headers: Any = [[(HEADER, str(epoch).encode())] for _, _, epoch in some]
            keys, values = [key for key, _, _ in some], [value for _, value, _ in some]
            arrivals.offer(where, Records(list(range(at[where], end)), keys, values, [0] * len(some), headers))
            at[where] = end
        for run in arrivals.take():
            kept.keep(run, state, arrivals.about.visible)
        kept.tell(state, arrivals.about)
        visible = arrivals.about.visible
        assert visible >= newest
        newest = visible
        assert seen(kept, state, visible) == batches.tables[visible]
        if restart and rng.random() < 0.1:
            # Positions are kept with the rows; what waited is read again, and the epochs from their beginning.
            arrivals = Arrivals("daily", kept.about(state))
            at, told = [int(arrivals.about.positions.get(p, 0)) for p in range(2)], 0
    assert newest == max(batches.tables)


@pytest.mark.parametrize("topic_id", ["id", "another id"])
def test_rows_of_a_deleted_app_hide_no_epoch_of_the_next(topic_id: str) -> None:
    """The topic of a deleted app's results is kept. In the next app of that name the epochs begin with 0 again."""
    kept, state = Keeper(table()), DictState()
    arrivals = Arrivals("daily", kept.about(state), topic_id)

    def read(first: int, *rows: tuple[str, int, int]) -> Table:
        if rows:
            keys, values = [k.encode() for k, _, _ in rows], [msgspec.json.encode({"x": x}) for _, x, _ in rows]
            headers: Any = [[(HEADER, b"%d" % epoch)] for _, _, epoch in rows]
            numbers = list(range(first, first + len(rows)))
            arrivals.offer(0, Records(numbers, keys, values, [0] * len(rows), headers))
        for run in arrivals.take():
            kept.keep(run, state, arrivals.about.visible)
        return seen(kept, state, arrivals.about.visible)

    def ends(offset: int) -> tuple[OutputEnds]:
        return (OutputEnds("daily", "id", (Offset(offset),)),)

    former, now = {"k0": 0, "k1": 2}, {"k0": 10, "k2": 10}
    assert not read(0, ("k0", 0, 0), ("k1", 1, 1), ("k1", 2, 7), ("k0", 0, 0), ("k0", 10, 0), ("k2", 10, 0))
    arrivals.admit(Offset(0), Opened(Epoch(0), Millis(0), (), ends(4), "f"))
    assert read(6) == (former if topic_id == "id" else {}), "an earlier topic's ends say nothing"
    arrivals.admit(Offset(1), Completed(Epoch(0), Millis(0), ends(6), 2))
    if topic_id == "id":
        assert read(6) == {**former, **now}
        arrivals.admit(Offset(2), Opened(Epoch(1), Millis(0), (), ends(6), "f"))
        assert read(6, ("k0", 11, 1)) == {**former, **now}
        arrivals.admit(Offset(3), Completed(Epoch(1), Millis(0), ends(7), 1))
        assert read(7) == {**former, **now, "k0": 11}


def test_a_result_that_would_be_seen_row_by_row_is_refused() -> None:
    flow = fk.Flow("f")
    bids = flow.source("bids", key="k", value=fk.Json({"k": fk.String}))
    bids.with_regime(fk.Batch(every=None)).group_by("k").agg(n=fk.len()).sink("daily", key="k", value=fk.Json())
    bids.lookup(flow.table("daily", key="k", value=fk.Json({"n": fk.Int64}))).sink("out", key="k", value=fk.Json())
    with pytest.raises(fk.FalkirkError, match="would be seen row by row"):
        flow.plan()


def test_a_table_shows_the_epochs_of_one_batch_part() -> None:
    flow = fk.Flow("f")
    bids = flow.source("bids", key="k", value=fk.Json({"k": fk.String}))
    for part in ("a", "b"):
        new = bids.with_regime(fk.Batch(every=None, history="new"), id=part).group_by("k", id=f"n-{part}")
        new.agg(n=fk.len()).sink(part, topic="daily", key="k", value=fk.Json())
    table = flow.table("daily", key="k", value=fk.Json({"n": fk.Int64}), broadcast=True)
    bids.lookup(table).sink("out", key="k", value=fk.Json())
    with pytest.raises(fk.FalkirkError, match="each counts its own epochs"):
        flow.plan()


def test_a_step_in_a_thread_of_its_own_sees_one_epoch_while_the_table_goes_on(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "table", Identity("f", "table", ""))
    copy, at, told = TableCopy(table(), 1, store, store.held), 0, 0

    def epoch(n: int, keys: Sequence[str], *, whole: bool = True) -> None:
        nonlocal at, told
        copy.arrivals.admit(Offset(told), Opened(Epoch(n), Millis(0), (), (), "f"))
        values = [msgspec.json.encode({"x": n})] * len(keys)
        offsets = list(range(at, at := at + len(keys)))
        headers = [[(HEADER, b"%d" % n)]] * len(keys)
        copy.arrivals.offer(0, Records(offsets, [k.encode() for k in keys], values, [0] * len(keys), headers))
        if whole:
            ends = OutputEnds("daily", "id", (Offset(at),))
            copy.arrivals.admit(Offset(told + 1), Completed(Epoch(n), Millis(0), (ends,), len(keys)))
        told += 2
        copy.keep()

    def found(seen: SharedRows) -> list[int | None]:
        rows, places = seen.find([key.encode() for key in KEYS])
        return [None if place is None else rows["x"][place] for place in places]

    epoch(0, KEYS)
    held = copy.seen(held=True)
    epoch(1, KEYS)
    epoch(2, KEYS[:3], whole=False)
    assert found(held) == [0] * len(KEYS)
    assert found(copy.seen()) == [1] * len(KEYS)
    del held
    store.close()
