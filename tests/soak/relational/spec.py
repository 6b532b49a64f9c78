"""What the checker must know of the relational flow: its stages, and who says what they emit."""

from __future__ import annotations

from collections.abc import Callable

from tests.soak.check.oracle import Oracle
from tests.soak.check.seen import Seen, rows_of_batch
from tests.soak.check.spec import Entry, Output, Spec, Stage
from tests.soak.relational.oracle import HIGH, Best, Last, Links, Near, OnTime, Pairs, Sent, Sessions
from tests.soak.relational.tables import BestTable, NearTable, paired, visits

APP = "soak-relational"
TIME, WEIGHT = "__falkirk_ts", "__falkirk_weight"
OF_A_BID = ("bidder", "id", "at", "price")


def edge(name: str, column: str, columns: tuple[str, ...]) -> Output:
    """An edge by a column; all rows of one without a column are together. Rows of a change are in no order."""
    changes = "weight" in columns

    def unpack(seen: Seen) -> list[Entry]:
        rows = [{**row, "weight": row[WEIGHT]} if changes else row for row in rows_of_batch(seen)]
        keys = [str(row[column]).encode() if column else b"" for row in rows]
        return [Entry(key, {c: row[c] for c in columns}, row[TIME]) for key, row in zip(keys, rows, strict=True)]

    return Output(name, f"falkirk.{APP}.edge.{name}", unpack, place=None, ordered=not changes)


def _from_bids(*parts: Callable[[], Oracle], late: str = "") -> Callable[[], Oracle]:
    return lambda: OnTime(*(part() for part in parts), late=late)


_best = edge("best", "bidder", ("auction", "bidder", "price", "weight"))
_links = edge("links", "auction", ("auction", "bidder", "weight"))
_near = edge("near", "", ("node", "to", "weight"))
_low, _high = edge("pairs.0", "bidder", OF_A_BID), edge("pairs.1", "bidder", OF_A_BID)

relational = Spec(
    APP,
    ("bids",),
    (
        Stage(
            "sessions",
            ("bids",),
            (
                Output("sessions", "sessions"),
                Output("visits", "visits", whole=visits),
                Output("sessions-final", "sessions-final"),
                Output("late-bids", "late-bids"),
                _best,
                _links,
            ),
            _from_bids(Sessions, Last, late="late-bids"),
        ),
        Stage("best", (_best.topic,), (Output("best", "best", whole=BestTable),), Best),
        Stage(
            "lazily",
            ("bids",),
            (_low, _high),
            _from_bids(
                lambda: Sent("pairs.0", "bidder", OF_A_BID, high=HIGH),
                lambda: Sent("pairs.1", "bidder", OF_A_BID, low=HIGH),
            ),
        ),
        Stage(
            "pairs",
            (_low.topic, _high.topic),
            (Output("pairs", "pairs"), Output("paired", "paired", whole=paired)),
            Pairs,
        ),
        Stage("links", (_links.topic,), (_near,), Links),
        Stage("near", (_near.topic,), (Output("near", "near", whole=NearTable),), Near),
    ),
    f"falkirk.{APP}.steps",
)
