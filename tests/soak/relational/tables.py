"""The final tables, from all bids at once: in SQL by DuckDB, and where the last bid of each auction is enough, from those.

DuckDB keeps its rows in a file, so that a soak of hours needs no more memory than one of minutes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from typing import Any

import duckdb
import orjson
import pyarrow as pa
from tests.soak.check.oracle import Row
from tests.soak.check.seen import Tp
from tests.soak.relational.oracle import BEGINNING, GAP_MS, HIGH, LATE_MS, LOWER_MS, NODES, TOP, UPPER_MS

AT_ONCE = 50_000
"""Rows that wait in Python for DuckDB."""

VISITS = f"""
with marked as (
  select auction, ms, coalesce(ms - lag(ms) over (partition by auction order by ms) > {GAP_MS}, true) as first from bids
), numbered as (
  select auction, sum(first::int) over (partition by auction order by ms rows unbounded preceding) as session from marked
), sessions as (
  select auction, count(*) as n from numbered group by auction, session
)
select auction, count(*) as sessions, sum(n)::bigint as bids, max(n) as longest from sessions group by auction
"""
"""A session begins behind a pause. Rows of one time have no pause between them, so their order does not matter."""

PAIRED = f"""
with low as (select rowid as place, * from bids where price < {HIGH}),
high as (select *, ms // {UPPER_MS - LOWER_MS} as span from bids where price >= {HIGH}),
near as (
  select *, unnest([(ms + {LOWER_MS}) // {UPPER_MS - LOWER_MS}, (ms + {LOWER_MS}) // {UPPER_MS - LOWER_MS} + 1]) as span
  from low
), met as (
  select place, count(*) as n, sum(high.price - near.price) as gain
  from near join high on near.bidder = high.bidder and near.span = high.span
    and high.ms between near.ms + {LOWER_MS} and near.ms + {UPPER_MS}
  group by place
)
select bidder, sum(coalesce(n, 1))::bigint as n, sum(coalesce(gain, 0))::bigint as gain
from low left join met using (place) group by bidder
"""
"""What is near a low bid lies in two spans as long as that. Without spans, all bids of a bidder would be compared."""


class OnTime:
    """Which bids are not late, by the order of their partitions."""

    def __init__(self) -> None:
        self._greatest: dict[Tp, int] = {}

    def takes(self, row: Row, tp: Tp) -> bool:
        """Whether the next row of a partition is one of them."""
        before = self._greatest.get(tp, BEGINNING)
        self._greatest[tp] = max(before, row["at"])
        return row["at"] >= before - LATE_MS


class Queried:
    """A query over all bids that are not late. Its first column is the key."""

    def __init__(self, query: str, columns: Sequence[str]) -> None:
        self.query, self.columns, self.on_time = query, columns, OnTime()
        self.waiting: list[tuple[Any, ...]] = []
        self.folder = tempfile.TemporaryDirectory(prefix="falkirk-soak-")
        self.rows = duckdb.connect(f"{self.folder.name}/bids", config={"threads": 2, "memory_limit": "1GB"})
        self.names = ["ms" if c == "at" else c for c in columns]  # DuckDB has its own use for AT
        self.rows.execute(f"create table bids ({', '.join(f'{name} bigint' for name in self.names)})")

    def fold(self, row: Row, tp: Tp) -> None:
        """Take one bid in."""
        if self.on_time.takes(row, tp):
            self.waiting.append(tuple(row[c] for c in self.columns))
            if len(self.waiting) >= AT_ONCE:
                self._write()

    def table(self) -> dict[bytes, Any]:
        """The answer, by key."""
        self._write()
        found = self.rows.execute(self.query)
        names = [column[0] for column in found.description or ()]
        return {orjson.dumps(row[0]): dict(zip(names, row, strict=True)) for row in found.fetchall()}

    def _write(self) -> None:
        if self.waiting:
            columns = zip(*self.waiting, strict=True)
            block = pa.table({c: pa.array(v, pa.int64()) for c, v in zip(self.names, columns, strict=True)})
            self.rows.execute("insert into bids select * from block")
            self.waiting = []
            del block


class LastBids:
    """The last bid of each auction that is not late."""

    def __init__(self) -> None:
        self.on_time, self.rows = OnTime(), dict[int, Row]()

    def fold(self, row: Row, tp: Tp) -> None:
        """Take one bid in."""
        if self.on_time.takes(row, tp):
            known = self.rows.get(row["auction"], row)
            self.rows[row["auction"]] = max(known, row, key=lambda bid: (bid["at"], bid["id"]))


class BestTable(LastBids):
    """Of each bidder's, the dearest."""

    def table(self) -> dict[bytes, Any]:
        """By bidder and rank."""
        bidders: dict[int, list[Row]] = {}
        for row in sorted(self.rows.values(), key=lambda bid: (-bid["price"], -bid["auction"])):
            bidders.setdefault(row["bidder"], []).append({c: row[c] for c in ("auction", "bidder", "price")})
        ranked = [(rank, row) for rows in bidders.values() for rank, row in enumerate(rows[:TOP], 1)]
        return {orjson.dumps([row["bidder"], rank]): {**row, "rank": rank} for rank, row in ranked}


class NearTable(LastBids):
    """Which nodes each node leads to: each has one link at most, so a way is followed until it comes back."""

    def table(self) -> dict[bytes, Any]:
        """By both nodes."""
        nexts = {row["auction"]: row["bidder"] % NODES for row in self.rows.values() if row["auction"] < NODES}
        pairs: set[tuple[int, int]] = set()
        for node, first in nexts.items():
            to: int | None = first
            while to is not None and (node, to) not in pairs:
                pairs.add((node, to))
                to = nexts.get(to)
        return {orjson.dumps(pair): {"node": pair[0], "to": pair[1]} for pair in pairs}


def visits() -> Queried:
    """The table `visits`."""
    return Queried(VISITS, ("auction", "at"))


def paired() -> Queried:
    """The table `paired`."""
    return Queried(PAIRED, ("bidder", "at", "price"))
