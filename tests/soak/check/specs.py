"""What the checker must know of the flows in flows.py, and what their operators should compute."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from tests.soak.check.oracle import Arrived, Due, Emits, Exchange, GroupBy, Oracle, Passed, Readable, Together, group_by
from tests.soak.check.seen import Seen, rows_of_batch
from tests.soak.check.spec import Entry, Output, Spec, Stage
from tests.soak.daily import avro_entry, letter_entry, parse
from tests.soak.relational import spec as incremental

COLUMNS = ("bidder", "price")
"""What of a bid the stage behind the edge reads: no more is sent there."""
TIME = "__falkirk_ts"
QUIET_MS = 300


class Auctions:
    """The state machine of flows.py: state and one timer for each auction, on the step's clock."""

    def __init__(self, output: str) -> None:
        self.output = output
        self.known: dict[int, list[int]] = {}
        self.quiet_at: dict[int, int] = {}

    def run(self, clock: int, rows: Iterable[Arrived]) -> Emits:
        """Timers that are due come first, then rows."""
        emits: dict[bytes, list[Due]] = {}

        def emit(auction: int, event: str, n: int, leader: int, at: int) -> None:
            value = {"auction": auction, "event": event, "n": n, "leader": leader}
            emits.setdefault(str(auction).encode(), []).append(Due(value, at))

        for auction, at in [(a, at) for a, at in self.quiet_at.items() if at <= clock]:
            del self.quiet_at[auction]
            n, _, leader = self.known.pop(auction)
            emit(auction, "quiet", n, leader, at)
        for _, timestamp, row in rows:
            auction = row["auction"]
            known = self.known.setdefault(auction, [0, -1, -1])
            known[0] += 1
            if row["price"] > known[1]:
                known[1:] = row["price"], row["bidder"]
                emit(auction, "leads", known[0], known[2], timestamp)
            self.quiet_at[auction] = clock + QUIET_MS
        return {self.output: emits} if emits else {}


def edge(app: str, name: str) -> Output:
    """The topic between two stages, by bidder; where a bidder's task is, is the system's affair, but it stays there."""
    return Output(name, f"falkirk.{app}.edge.{name}", unpack=batch_of_bids, place=None)


def batch_of_bids(seen: Seen) -> list[Entry]:
    """The rows of a batch, by bidder, each with its timestamp."""
    rows = rows_of_batch(seen)
    return [Entry(str(row["bidder"]).encode(), {c: row[c] for c in COLUMNS}, row[TIME]) for row in rows]


def passed_bids(seen: Seen) -> list[Entry]:
    """The same of an edge without an exchange: what a task sends goes to its own partition, whatever bidder it is of."""
    return [entry._replace(key=b"") for entry in batch_of_bids(seen)]


def avro(output: Output) -> Output:
    """The same, in Avro."""
    return replace(output, unpack=avro_entry)


def counted(by: str, name: str) -> Output:
    """A sink of `count` in flows.py."""
    return Output(name, name, whole=group_by(by, name))


def _spec(app: str, *stages: Stage) -> Spec:
    return Spec(app, ("bids",), stages, f"falkirk.{app}.steps")


def _first(app: str, name: str, *parts: Callable[[], Oracle], outputs: tuple[Output, ...] = ()) -> Stage:
    return Stage(name, ("bids",), (counted("auction", name), *outputs), lambda: Together(*(part() for part in parts)))


def _bidders(app: str, name: str) -> Stage:
    return Stage(name, (edge(app, name).topic,), (counted("bidder", name),), group_by("bidder", name))


def _sent(name: str) -> Callable[[], Oracle]:
    return lambda: Exchange("bidder", name, COLUMNS)


relational = incremental.relational
eager = _spec("soak-eager", _first("soak-eager", "eager", group_by("auction", "eager")))
lazy = _spec("soak-lazy", _first("soak-lazy", "lazy", group_by("auction", "lazy")))

_APP = "soak-mixed"
mixed = _spec(
    _APP,
    _first(
        _APP, "eager", group_by("auction", "eager"), lambda: Auctions("events"), _sent("eager-bidders"),
        outputs=(Output("events", "events"), edge(_APP, "eager-bidders")),
    ),
    _bidders(_APP, "eager-bidders"),
    _first(
        _APP, "lazy", group_by("auction", "lazy"), _sent("lazy-bidders"), outputs=(edge(_APP, "lazy-bidders"),)
    ),
    _bidders(_APP, "lazy-bidders"),
)  # fmt: skip

_APP = "soak-daily"
_LETTERS = Output("dead letters", f"falkirk.{_APP}.dead-letters", unpack=letter_entry, place=None)
_lazily = Output("lazily", f"falkirk.{_APP}.edge.lazily", unpack=passed_bids, place=None)
daily = Spec(
    _APP,
    ("bids",),
    (
        Stage(
            "eager", ("bids",), (avro(counted("auction", "eager")), _LETTERS, _lazily),
            lambda: Readable(
                Together(GroupBy("auction", "eager"), Passed("lazily", COLUMNS)), "dead letters", "sales:bids", "auction"
            ),
        ),
        Stage("lazily", (_lazily.topic,), (edge(_APP, "lazy-bidders"),), _sent("lazy-bidders")),
        replace(_bidders(_APP, "lazy-bidders"), outputs=(avro(counted("bidder", "lazy-bidders")),)),
    ),
    f"falkirk.{_APP}.steps",
    parse,
)  # fmt: skip
