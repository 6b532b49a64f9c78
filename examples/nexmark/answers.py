"""What each query of NexMark must give at the end, in DuckDB's SQL over all events: tables person, auction and bid.

Times are milliseconds since 1970, as in the topics. Windows are named by their start and end.
"""

from __future__ import annotations

WINNING = """
    select a.id as auction, a.item, a.seller, a.category, b.bidder, b.price, b.ts
    from auction a join bid b on a.id = b.auction and b.ts between a.ts and a.expires
    qualify row_number() over (partition by a.id order by b.price desc, b.ts, b.bidder) = 1
"""
HOPS = """
    select auction, unnest([ts // 2000 * 2000 - 2000 * i for i in range(5)]) as window_start from bid
"""
DAY = "ts // 86400000"
RANKS = """
    count(*) as total_bids,
    count(*) filter (price < 10000) as rank1_bids,
    count(*) filter (price between 10000 and 999999) as rank2_bids,
    count(*) filter (price >= 1000000) as rank3_bids
"""

ANSWERS: dict[int, str] = {
    0: "select auction, bidder, price, ts from bid",
    1: "select auction, bidder, price * 908 // 1000 as price, ts from bid",
    2: "select auction, price from bid where auction % 123 = 0",
    3: """
        select p.name, p.city, p.state, a.id from auction a join person p on a.seller = p.id
        where a.category = 10 and p.state in ('OR', 'ID', 'CA')
    """,
    4: f"select category, avg(price) as final from ({WINNING}) group by category",
    5: f"""
        select window_start, auction, count(*) as bids from ({HOPS}) group by window_start, auction
        qualify bids = max(bids) over (partition by window_start)
    """,
    6: f"""
        select seller, avg(price) as price from (
            select * from ({WINNING}) qualify row_number() over (partition by seller order by ts desc, auction desc) <= 10
        ) group by seller
    """,
    7: """
        select ts // 10000 * 10000 as window_start, auction, bidder, price, ts from bid
        qualify price = max(price) over (partition by ts // 10000)
    """,
    8: """
        select distinct p.id, p.name, p.ts // 10000 * 10000 as window_start
        from person p join auction a on p.id = a.seller and p.ts // 10000 = a.ts // 10000
    """,
    9: WINNING,
    11: """
        select bidder, min(ts) as window_start, max(ts) + 10000 as window_end, count(*) as bids from (
            select *, sum(begins) over (partition by bidder order by ts rows unbounded preceding) as session from (
                select bidder, ts,
                    cast(coalesce(ts - lag(ts) over (partition by bidder order by ts) > 10000, true) as int) as begins
                from bid
            )
        ) group by bidder, session
    """,
    12: "select bidder, ts // 10000 * 10000 as window_start, count(*) as bids from bid group by all",
    13: "select b.auction, b.bidder, b.price, s.value from bid b join side_input s on b.auction % 10000 = s.key",
    14: """
        select auction, bidder, price * 908 // 1000 as price,
            case when ts // 3600000 % 24 between 8 and 18 then 'day'
                when ts // 3600000 % 24 <= 6 or ts // 3600000 % 24 >= 20 then 'night' else 'other' end as part_of_day,
            length(url) - length(replace(url, 'c', '')) as c_counts
        from bid where price * 908 // 1000 between 1000001 and 49999999
    """,
    15: f"""
        select {DAY} as day, {RANKS}, count(distinct bidder) as bidders, count(distinct auction) as auctions
        from bid group by all
    """,
    16: f"""
        select channel, {DAY} as day, {RANKS}, count(distinct bidder) as bidders, count(distinct auction) as auctions
        from bid group by all
    """,
    17: f"""
        select auction, {DAY} as day, {RANKS}, min(price) as min_price, max(price) as max_price, avg(price) as avg_price,
            sum(price) as sum_price
        from bid group by all
    """,
    18: """
        select auction, bidder, price, channel, ts from bid
        qualify row_number() over (partition by bidder, auction order by ts desc, price desc, channel desc) = 1
    """,
    19: """
        select auction, bidder, price, ts, row_number() over (partition by auction order by price desc, ts, bidder) as rank
        from bid qualify rank <= 10
    """,
    20: """
        select b.auction, b.bidder, b.price, b.channel, b.ts, a.item, a.seller, a.initial_bid, a.reserve
        from bid b join auction a on b.auction = a.id where a.category = 10
    """,
    22: """
        select auction, bidder, price, channel, split_part(url, '/', 4) as dir1, split_part(url, '/', 5) as dir2 from bid
    """,
}
"""By the number of the query. Query 12 is by event time here: by the clock of the worker it has no one answer."""
