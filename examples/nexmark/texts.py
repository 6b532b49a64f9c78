"""NexMark's queries in SQL: `flow(9)` is the flow of query 9, and gives what that of queries.py gives.

Query 13 joins a stream of rows here, where queries.py looks up in a table. Not here: 15, 16 and 22, whose functions
`flow.sql` does not have.
"""

from __future__ import annotations

import re
from typing import Any

import queries

import falkirk as fk

WINNING = """
    with winning as (
        select a.id as auction, a.item, a.seller, a.category, b.bidder, b.price, b.ts
        from auction a join bid b on a.id = b.auction
        where b.ts between a.ts and a.expires
        qualify row_number() over (partition by a.id order by b.price desc, b.ts, b.bidder) = 1
    )
"""
RANKS = """
    count(*) as total_bids,
    count(*) filter (where price < 10000) as rank1_bids,
    count(*) filter (where price between 10000 and 999999) as rank2_bids,
    count(*) filter (where price >= 1000000) as rank3_bids
"""

TEXTS: dict[int, str] = {
    0: "select auction, bidder, price, ts from bid",
    1: "select auction, bidder, price * 908 // 1000 as price, ts from bid",
    2: "select auction, price from bid where auction % 123 = 0",
    3: """
        select p.name, p.city, p.state, a.id
        from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    4: f"{WINNING} select category, avg(price) as final from winning group by category",
    5: """
        with counts as (
            select window_start, auction, count(*) as bids
            from hop(table bid, descriptor(ts), interval '2' second, interval '10' second)
            group by window_start, window_end, auction
        ), most as (select window_start, max(bids) as bids from counts group by window_start)
        select c.window_start, c.auction, c.bids
        from counts c join most m on c.window_start = m.window_start and c.bids = m.bids
    """,
    6: f"""
        {WINNING}, last as (
            select seller, price from winning
            qualify row_number() over (partition by seller order by ts desc, auction desc) <= 10
        )
        select seller, avg(price) as price from last group by seller
    """,
    7: """
        select ts // 10000 * 10000 as window_start, auction, bidder, price, ts from bid
        qualify rank() over (partition by ts // 10000 order by price desc) = 1
    """,
    8: """
        with p as (select id, name, ts // 10000 * 10000 as window_start from person),
            a as (select seller, ts // 10000 * 10000 as window_start from auction)
        select p.id, p.name, p.window_start
        from p semi join a on p.id = a.seller and p.window_start = a.window_start
    """,
    9: f"{WINNING} select auction, item, seller, category, bidder, price, ts from winning",
    11: """
        select bidder, window_start, window_end, count(*) as bids
        from session(table bid partition by bidder, descriptor(ts), interval '10' second)
        group by bidder, window_start, window_end
    """,
    12: """
        select bidder, window_start, count(*) as bids from tumble(table bid, descriptor(ts), interval '10' second)
        group by bidder, window_start, window_end
    """,
    13: "select b.auction, b.bidder, b.price, s.value from bid b join side_input s on b.auction % 10000 = s.key",
    14: queries.DEAR,
    17: f"""
        select auction, ts // 86400000 as day, {RANKS}, min(price) as min_price, max(price) as max_price,
            avg(price) as avg_price, sum(price) as sum_price
        from bid group by auction, ts // 86400000
    """,
    18: """
        select auction, bidder, price, channel, ts from bid
        qualify row_number() over (partition by bidder, auction order by ts desc, price desc, channel desc) = 1
    """,
    19: """
        select auction, bidder, price, ts, row_number() over (partition by auction order by price desc, ts, bidder) as rank
        from bid qualify rank <= 10
    """,
    20: queries.KNOWN,
}
"""By the number of the query."""


def stream(streams: queries.Streams, number: int) -> Any:
    """The result of a query."""
    text = TEXTS[number]
    read = {
        name: getattr(streams, name)
        for name in ("person", "auction", "bid")
        if re.search(rf"(from|join|table) {name}\b", text)
    }
    if "side_input" in text:
        read["side_input"] = streams.flow.source("side_input", key="key", value=queries.SIDE_INPUT)
    return streams.flow.sql(text, id=f"sql{number}", **read)


def flow(number: int, regime: Any = None, *, app: str | None = None, target: str | None = None) -> fk.Flow:
    """The flow of a query; its result is in the topic q0, q1 and so on, or in `target`."""
    made = fk.Flow(app or f"nexmark-q{number}", regime=regime)
    _, key = queries.QUERIES[number](queries.Streams(fk.Flow("other")))
    stream(queries.Streams(made), number).sink(f"q{number}", topic=target, key=key, value=fk.Json())
    return made
