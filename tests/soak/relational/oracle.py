"""What each step of the relational flow must emit, in plain Python: rows by key, with lists and dicts.

Rows that can be taken back have a `weight`. A change is what a table has after the step and had not before, and the reverse.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from tests.soak.check.oracle import Arrived, Due, Emits, Oracle, Row

LATE_MS = 90
GAP_MS = 200
LOWER_MS, UPPER_MS = -200, 600
HIGH = 5_000
"""The least price of the join's right side."""
TOP = 2
NODES = 32
KEPT_MS = 1_000_000
"""How far in event time one task may be behind another: rows that are older find no partner. A bid is a millisecond, and a
task that puts out nothing for two minutes fails the soak."""

BEGINNING = -(1 << 62)


class OnTime:
    """Operators behind a source with a watermark. Late rows go to an output of their own, if it has a name.

    >>> first, late = ({"id": i, "auction": 7, "at": at} for i, at in ((0, 500), (1, 400)))
    >>> OnTime(Sent("on"), late="late").run(0, [Arrived(0, 9, first), Arrived(1, 9, late)])["late"]
    {b'7': [Due(value={'id': 1, 'auction': 7, 'at': 400}, timestamp=400)]}
    """

    def __init__(self, *behind: Oracle, late: str = "") -> None:
        self.behind, self.late, self.greatest = behind, late, BEGINNING

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """A row is dated by its own time, and late if it is far behind the greatest before it."""
        kept: list[Arrived] = []
        left: dict[bytes, list[Due]] = {}
        for offset, _, row in rows:
            if row["at"] >= self.greatest - LATE_MS:
                kept.append(Arrived(offset, row["at"], row))
            else:
                left.setdefault(_key(row["auction"]), []).append(Due(row, row["at"]))
            self.greatest = max(self.greatest, row["at"])
        emits: Emits = {self.late: left} if left and self.late else {}
        for part in self.behind:
            emits |= part.run(clock, kept)
        return emits


class Sent:
    """Rows go over an edge: by a column, or all together."""

    def __init__(self, output: str, column: str = "", columns: tuple[str, ...] = (), low: int = 0, high: int = 1 << 62):
        self.output, self.column, self.columns, self.low, self.high = output, column, columns, low, high

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """Those with low ≤ price < high."""
        sent: dict[bytes, list[Due]] = {}
        for _, timestamp, row in rows:
            if self.low <= row.get("price", 0) < self.high:
                key = _key(row[self.column]) if self.column else b""
                sent.setdefault(key, []).append(Due({c: row[c] for c in self.columns}, timestamp))
        return {self.output: sent} if sent else {}


@dataclass(slots=True, eq=False)
class Session:
    """Bids of one auction with no pause between them. A session that a bid joins is another one."""

    start: int
    end: int
    n: int
    top: int
    latest: int
    """The greatest time of a bid of this step."""

    def row(self, auction: int, **more: int) -> Row:
        labels = {"auction": auction, "window_start": self.start, "window_end": self.end}
        return {**labels, "n": self.n, "top": self.top, **more}


class Sessions:
    """Sessions of each auction: as they change, when they are complete, and their number, which outlives them."""

    def __init__(self) -> None:
        self.open: dict[int, list[Session]] = {}
        self.lengths: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self.greatest = BEGINNING

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """A row joins all sessions that it touches. Then those are complete that no row can touch any more."""
        changed, complete, visits = dict[bytes, list[Due]](), dict[bytes, list[Due]](), dict[bytes, list[Due]]()
        for auction, bids in _by(rows, "auction").items():
            self.greatest = max(self.greatest, *(bid["at"] for bid in bids))
            before = self.open.get(auction, [])
            after = _united(before, bids)
            self.open[auction] = after
            lengths = self.lengths[auction]
            for session in (s for s in after if s not in before):
                for old in (s for s in before if session.start <= s.start and s.end <= session.end):
                    _add(changed, [auction, old.start], old.row(auction, weight=-1), session.latest)
                    lengths[old.n] -= 1
                lengths[session.n] += 1
                _add(changed, [auction, session.start], session.row(auction, weight=1), session.latest)
            there = +lengths
            sums = {
                "sessions": there.total(),
                "bids": sum(n * often for n, often in there.items()),
                "longest": max(there),
            }
            _add(visits, auction, {"auction": auction, **sums}, max(bid["at"] for bid in bids))
        for end, auction, session in sorted(self._complete(), key=lambda found: found[:2]):
            _add(complete, auction, session.row(auction), end - 1)
            self.open[auction].remove(session)
        found = {"sessions": changed, "sessions-final": complete, "visits": visits}
        return {name: emits for name, emits in found.items() if emits}

    def _complete(self) -> Iterator[tuple[int, int, Session]]:
        for auction, sessions in self.open.items():
            yield from ((s.end, auction, s) for s in sessions if s.end < self.greatest - LATE_MS)


def _united(before: list[Session], bids: list[Row]) -> list[Session]:
    """The sessions with these bids in them. Those that no bid touches are the same objects as before."""
    sessions = list(before)
    for bid in bids:
        start, end, latest = bid["at"], bid["at"] + GAP_MS, bid["at"]
        n, top = 1, bid["price"]
        for other in [s for s in sessions if s.start <= end and start <= s.end]:
            sessions.remove(other)
            # The times of bids of earlier steps do not count.
            latest = max(latest, other.latest) if other not in before else latest
            start, end, n, top = min(start, other.start), max(end, other.end), n + other.n, max(top, other.top)
        sessions.append(Session(start, end, n, top, latest))
    return sorted(sessions, key=lambda s: s.start)


class Last:
    """The last bid of each auction, which replaces the one before it: over two edges."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """Both rows of each change."""
        changes: list[Arrived] = []
        for auction, bids in _by(rows, "auction").items():
            old = self.rows.get(auction)
            new = max([*bids, *([old] if old else [])], key=lambda bid: (bid["at"], bid["id"]))
            if new != old:
                at = max(bid["at"] for bid in bids)
                changes += [Arrived(0, at, {**row, "weight": weight}) for row, weight in ((old, -1), (new, 1)) if row]
            self.rows[auction] = new
        links = [change for change in changes if change.row["auction"] < NODES]
        by_bidder = Sent("best", "bidder", ("auction", "bidder", "price", "weight")).run(clock, changes)
        return by_bidder | Sent("links", "auction", ("auction", "bidder", "weight")).run(clock, links)


class Best:
    """The dearest of the auctions in which a bidder was last."""

    def __init__(self) -> None:
        self.rows: defaultdict[int, Counter[tuple[int, int]]] = defaultdict(Counter)

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """Each rank whose row is another."""
        changed: dict[bytes, list[Due]] = {}
        latest = _latest(rows := list(rows), "bidder")
        for bidder, changes in _by(rows, "bidder").items():
            before = self._top(bidder)
            for row in changes:
                self.rows[bidder][row["price"], row["auction"]] += row["weight"]
            after = self._top(bidder)
            for rank in before.keys() | after.keys():
                if before.get(rank) != after.get(rank):
                    _add(changed, [bidder, rank], after.get(rank), latest[bidder])
        return {"best": changed} if changed else {}

    def _top(self, bidder: int) -> dict[int, Row]:
        self.rows[bidder] = there = +self.rows[bidder]
        best = sorted(there.elements(), reverse=True)[:TOP]
        return {
            rank: {"bidder": bidder, "auction": auction, "price": price, "rank": rank}
            for rank, (price, auction) in enumerate(best, 1)
        }


Placed = tuple[int, int, int]
"""Time, number and price of a bid."""


@dataclass(slots=True)
class Sides:
    """The bids of one bidder, each side in the order of time."""

    low: list[Placed] = field(default_factory=list)
    high: list[Placed] = field(default_factory=list)


class Pairs:
    """Each low bid with the high ones near it in time, or alone; and the sums of both, by bidder."""

    def __init__(self) -> None:
        self.sides: defaultdict[int, Sides] = defaultdict(Sides)
        self.sums: dict[int, tuple[int, int]] = {}

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """What becomes of the low bids that came, and of those near a high one that came."""
        changed, sums = dict[bytes, list[Due]](), dict[bytes, list[Due]]()
        for bidder, bids in _by(rows, "bidder").items():
            change, latest = self._change(self.sides[bidder], [(bid["at"], bid["id"], bid["price"]) for bid in bids])
            n, gain = known = self.sums.get(bidder, (0, 0))
            for (low, high), weight in change.items():
                row = {"bidder": bidder, "id": low[1], "at": low[0], "price": low[2]}
                at, number, price = high or (None, None, None)
                row |= {"id_right": number, "at_right": at, "price_right": price, "weight": weight}
                _add(changed, [bidder, low[1], number], row, latest[low, high])
                n, gain = n + weight, gain + (weight * (high[2] - low[2]) if high else 0)
            if (n, gain) != known:
                self.sums[bidder] = n, gain
                _add(sums, bidder, {"bidder": bidder, "n": n, "gain": gain}, max(latest.values()))
        found = {"pairs": changed, "paired": sums}
        return {name: emits for name, emits in found.items() if emits}

    @staticmethod
    def _change(sides: Sides, bids: list[Placed]) -> tuple[Counter[Any], dict[Any, int]]:
        """The change of a bidder's pairs, and its timestamps."""
        low, high = [b for b in bids if b[2] < HIGH], [b for b in bids if b[2] >= HIGH]
        change: Counter[Any] = Counter()
        latest: dict[Any, int] = {}

        def emit(one: Placed, other: Placed | None, weight: int, at: int) -> None:
            change[one, other] += weight
            latest[one, other] = at

        came = sorted(high)
        for one in _between(sides.low, min(b[0] for b in came) - UPPER_MS, came[-1][0] - LOWER_MS) if came else ():
            found = _partners(came, one)
            if found and not _partners(sides.high, one):
                emit(one, None, -1, max(one[0], found[-1][0]))
            for other in found:
                emit(one, other, 1, max(one[0], other[0]))
        for bid in high:
            insort(sides.high, bid)
        for one in low:
            found = _partners(sides.high, one)
            for other in found:
                emit(one, other, 1, max(one[0], other[0]))
            if not found:
                emit(one, None, 1, one[0])
            insort(sides.low, one)
        for side in (sides.low, sides.high):
            if side and side[0][0] < side[-1][0] - 2 * KEPT_MS:
                del side[: bisect_left(side, (side[-1][0] - KEPT_MS,))]
        return change, latest


def _between(side: list[Placed], first: int, last: int) -> list[Placed]:
    """The bids with first ≤ time ≤ last."""
    return side[bisect_left(side, (first,)) : bisect_right(side, (last + 1,))]


def _partners(high: list[Placed], one: Placed) -> list[Placed]:
    return _between(high, one[0] + LOWER_MS, one[0] + UPPER_MS)


class Links:
    """Each change of a last bid, as one of a link between nodes."""

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """One for each."""
        links = [
            row._replace(row={"node": row.row["auction"], "to": row.row["bidder"] % NODES, "weight": row.row["weight"]})
            for row in rows
        ]
        return Sent("near", columns=("node", "to", "weight")).run(clock, links)


class Near:
    """Which nodes each node leads to."""

    def __init__(self) -> None:
        self.links: Counter[tuple[int, int]] = Counter()
        self.pairs: set[tuple[int, int]] = set()

    def run(self, _clock: int, rows: Iterable[Arrived]) -> Emits:
        """The pairs that are new, and those that are gone."""
        latest = 0
        for _, timestamp, row in rows:
            self.links[row["node"], row["to"]] += row["weight"]
            latest = max(latest, timestamp)
        self.links = +self.links
        before, self.pairs = self.pairs, _reached(self.links)
        changed: dict[bytes, list[Due]] = {}
        for pair in before ^ self.pairs:
            value = {"node": pair[0], "to": pair[1]} if pair in self.pairs else None
            _add(changed, list(pair), value, latest)
        return {"near": changed} if changed else {}


def _reached(links: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """All pairs of nodes that a way leads between.

    >>> sorted(_reached([(1, 2), (2, 1), (3, 1)]))
    [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2)]
    """
    nexts: defaultdict[int, set[int]] = defaultdict(set)
    for node, to in links:
        nexts[node].add(to)
    pairs: set[tuple[int, int]] = set()
    for node in list(nexts):
        ahead = list(nexts[node])
        while ahead:
            to = ahead.pop()
            if (node, to) not in pairs:
                pairs.add((node, to))
                ahead += nexts.get(to, ())
    return pairs


def _by(rows: Iterable[Arrived], column: str) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for _, _, row in rows:
        found.setdefault(row[column], []).append(row)
    return found


def _latest(rows: Iterable[Arrived], column: str) -> Mapping[int, int]:
    found: dict[int, int] = {}
    for _, timestamp, row in rows:
        found[row[column]] = max(timestamp, found.get(row[column], 0))
    return found


def _add(emits: dict[bytes, list[Due]], key: Any, value: Row | None, timestamp: int) -> None:
    emits.setdefault(_key(key), []).append(Due(value, timestamp))


def _key(value: Any) -> bytes:
    """A column as its text, several as a JSON array."""
    return orjson.dumps(value)
