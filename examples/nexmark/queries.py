"""NexMark's queries as flows, one function each: `flow(9)` is the flow of query 9.

The same queries in DuckDB's SQL are in answers.py, events that they can read in events.py. Not here: 10
and 21, which the answers do not have either.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import falkirk as fk

PERSON = fk.Json(
    {
        "id": fk.Int64, "name": fk.String, "email": fk.String, "credit_card": fk.String, "city": fk.String,
        "state": fk.String, "ts": fk.Int64,
    }
)  # fmt: skip
AUCTION = fk.Json(
    {
        "id": fk.Int64, "item": fk.String, "initial_bid": fk.Int64, "reserve": fk.Int64, "ts": fk.Int64,
        "expires": fk.Int64, "seller": fk.Int64, "category": fk.Int64,
    }
)  # fmt: skip
BID = fk.Json(
    {
        "auction": fk.Int64, "bidder": fk.Int64, "price": fk.Int64, "channel": fk.String, "url": fk.String,
        "ts": fk.Int64,
    }
)  # fmt: skip
SIDE_INPUT = fk.Json({"key": fk.Int64, "value": fk.String})
DAY, WINDOW = 86_400_000, 10_000
"""Milliseconds."""

DEAR = """
    select auction, bidder, price * 908 // 1000 as price,
        case when ts // 3600000 % 24 between 8 and 18 then 'day'
            when ts // 3600000 % 24 <= 6 or ts // 3600000 % 24 >= 20 then 'night' else 'other' end as part_of_day,
        length(url) - length(replace(url, 'c', '')) as c_counts
    from bid where price * 908 // 1000 between 1000001 and 49999999
"""
KNOWN = """
    select b.auction, b.bidder, b.price, b.channel, b.ts, a.item, a.seller, a.initial_bid, a.reserve
    from bid b join auction a on b.auction = a.id where a.category = 10
"""


@dataclass(frozen=True, slots=True)
class Streams:
    """What the queries read: the three topics, as far as a query needs them."""

    flow: fk.Flow

    @property
    def person(self) -> Any:
        return self.flow.source("person", key="id", value=PERSON, time="ts", late="4s")

    @property
    def auction(self) -> Any:
        return self.flow.source("auction", key="id", value=AUCTION, time="ts", late="4s")

    @property
    def bid(self) -> Any:
        return self.flow.source("bid", key="auction", value=BID, time="ts", late="4s")

    @property
    def side_input(self) -> Any:
        return self.flow.table("side_input", key="key", value=SIDE_INPUT, broadcast=True)


Result = tuple[Any, str | list[str] | None]
"""A stream, and the columns that identify its rows; None if rows are only added."""


def q0(s: Streams) -> Result:
    """All bids, as they are."""
    return s.bid.select("auction", "bidder", "price", "ts"), None


def q1(s: Streams) -> Result:
    """Prices in another currency."""
    return s.bid.select("auction", "bidder", price=fk.col("price") * 908 // 1000, ts=fk.col("ts")), None


def q2(s: Streams) -> Result:
    """Bids on some auctions."""
    return s.bid.filter(fk.col("auction") % 123 == 0).select("auction", "price"), None


def q3(s: Streams) -> Result:
    """Who sells in a category and some states."""
    auctions = s.auction.filter(fk.col("category") == 10).select("id", "seller")
    people = s.person.filter(fk.col("state").is_in(["OR", "ID", "CA"])).select("id", "name", "city", "state")
    sold = people.select("name", "city", "state", seller=fk.col("id")).join(auctions, on="seller", id="sold")
    return sold.select("name", "city", "state", "id"), None


def winning(s: Streams) -> Any:
    """The best bid of each auction while it was open."""
    auctions = s.auction.select("id", "item", "seller", "category", "ts", "expires")
    bids = s.bid.select("auction", "bidder", "price", bid_ts=fk.col("ts"))
    found = auctions.join(bids, left_on="id", right_on="auction", id="bids")  # both topics are keyed so: no exchange
    valid = found.filter(fk.col("bid_ts").is_between("ts", "expires"))
    rows = valid.select("id", "item", "seller", "category", "bidder", "price", ts=fk.col("bid_ts"))
    best = rows.group_by("id", id="winning").top_k(1, by=["price", "ts", "bidder"], reverse=[False, True, True])
    return best.select(fk.col("id").alias("auction"), "item", "seller", "category", "bidder", "price", "ts")


def q4(s: Streams) -> Result:
    """The mean price of what was sold, by category."""
    return winning(s).group_by("category", id="means").agg(final=fk.mean("price")), "category"


def q5(s: Streams) -> Result:
    """The auctions with the most bids, in windows that overlap."""
    counts = s.bid.group_by("auction", fk.hopping("ts", "10s", every="2s"), id="counts").agg(bids=fk.len())
    counts = counts.select("window_start", "auction", "bids")
    most = counts.group_by("window_start", id="most").agg(bids=fk.max("bids"))
    return counts.join(most, on=["window_start", "bids"], id="hottest"), ["window_start", "bids", "auction"]


def q6(s: Streams) -> Result:
    """The mean price of the last ten things that each seller sold."""
    last = winning(s).group_by("seller", id="last").top_k(10, by=["ts", "auction"])
    return last.group_by("seller", id="means").agg(price=fk.mean("price")), "seller"


def q7(s: Streams) -> Result:
    """The highest bids of each window."""
    start = (fk.col("ts") // WINDOW * WINDOW).alias("window_start")
    bids = s.bid.select(start, "auction", "bidder", "price", "ts")
    best = bids.group_by("window_start", id="best").top_k(1, by="price", ties=True)
    return best, ["window_start", "price", "auction", "bidder", "ts"]


def q8(s: Streams) -> Result:
    """Who registered and sold something in the same window."""
    start = (fk.col("ts") // WINDOW * WINDOW).alias("window_start")
    sellers = s.auction.select(start, id=fk.col("seller"))
    return s.person.select("id", "name", start).join(sellers, on=["id", "window_start"], how="semi", id="new"), None


def q9(s: Streams) -> Result:
    """The winning bid of each auction."""
    return winning(s), "auction"


def q11(s: Streams) -> Result:
    """How often each person bids in a session, which ends when there is no bid for ten seconds."""
    counts = s.bid.group_by("bidder", fk.session("ts", "10s"), id="sessions").agg(bids=fk.len())
    return counts.select("bidder", "window_start", "window_end", "bids"), ["bidder", "window_start"]


def q12(s: Streams) -> Result:
    """How often each person bids in a window."""
    counts = s.bid.group_by("bidder", fk.tumbling("ts", "10s"), id="counts").agg(bids=fk.len())
    return counts.select("bidder", "window_start", "bids"), ["bidder", "window_start"]


def q13(s: Streams) -> Result:
    """Bids, with a column of a table that lies beside them."""
    bids = s.bid.select("auction", "bidder", "price", key=fk.col("auction") % 10_000)
    return bids.lookup(s.side_input, "key", how="inner").select("auction", "bidder", "price", "value"), None


def q14(s: Streams) -> Result:
    """Dear bids, and the time of the day."""
    return s.flow.sql(DEAR, bid=s.bid, id="dear"), None


def _counted(s: Streams) -> Any:
    price = fk.col("price")
    return s.bid.with_columns(
        day=fk.col("ts") // DAY,
        cheap=(price < 10_000).cast(fk.Int64),
        usual=price.is_between(10_000, 999_999).cast(fk.Int64),
        dear=(price >= 1_000_000).cast(fk.Int64),
    )


COUNTS = {
    "total_bids": fk.len(),
    "rank1_bids": fk.sum("cheap"),
    "rank2_bids": fk.sum("usual"),
    "rank3_bids": fk.sum("dear"),
}


def q15(s: Streams) -> Result:
    """Bids, bidders and auctions of each day."""
    found = _counted(s).group_by("day", id="days")
    return found.agg(**COUNTS, bidders=fk.n_unique("bidder"), auctions=fk.n_unique("auction")), "day"


def q16(s: Streams) -> Result:
    """The same of each channel."""
    found = _counted(s).group_by("channel", "day", id="channels")
    return found.agg(**COUNTS, bidders=fk.n_unique("bidder"), auctions=fk.n_unique("auction")), ["channel", "day"]


def q17(s: Streams) -> Result:
    """The prices of each auction and day."""
    found = _counted(s).group_by("auction", "day", id="auctions")
    prices = {"min_price": fk.min("price"), "max_price": fk.max("price"), "avg_price": fk.mean("price")}
    return found.agg(**COUNTS, **prices, sum_price=fk.sum("price")), ["auction", "day"]


def q18(s: Streams) -> Result:
    """The last bid of each person on each auction."""
    bids = s.bid.select("auction", "bidder", "price", "channel", "ts").group_by("auction", "bidder", id="last")
    return bids.top_k(1, by=["ts", "price", "channel"]), ["auction", "bidder"]


def q19(s: Streams) -> Result:
    """The ten highest bids on each auction."""
    bids = s.bid.select("auction", "bidder", "price", "ts").group_by("auction", id="best")
    best = bids.top_k(10, by=["price", "ts", "bidder"], reverse=[False, True, True], rank="rank")
    return best, ["auction", "rank"]


def q20(s: Streams) -> Result:
    """Bids, with what is known of their auction."""
    return s.flow.sql(KNOWN, bid=s.bid, auction=s.auction, id="known"), None


def q22(s: Streams) -> Result:
    """The folders of each address."""
    parts = (fk.col("url") + "//").str.split("/")  # a missing folder is an empty one
    folders = {f"dir{n}": parts.list.get(n + 2) for n in (1, 2)}
    return s.bid.select("auction", "bidder", "price", "channel", **folders), None


QUERIES: dict[int, Callable[[Streams], Result]] = {
    int(name[1:]): made for name, made in list(globals().items()) if name[0] == "q" and name[1:].isdigit()
}
"""By their numbers."""


def flow(number: int, regime: Any = None, *, app: str | None = None, target: str | None = None) -> fk.Flow:
    """The flow of a query; its result is in the topic q0, q1 and so on, or in `target`."""
    made = fk.Flow(app or f"nexmark-q{number}", regime=regime)
    result, key = QUERIES[number](Streams(made))
    result.sink(f"q{number}", topic=target, key=key, value=fk.Json())
    return made
