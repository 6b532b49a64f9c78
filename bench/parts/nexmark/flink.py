"""NexMark's queries in Flink SQL, for `peers.py`.

Query 6 is not here, because Flink's `over` takes no changes, nor 13, because its Kafka tables cannot be looked up in.
"""

from __future__ import annotations

WINDOW = "INTERVAL '10' SECOND"
MILLIS = "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', window_start) AS BIGINT) * 1000"  # it is an INT
RANKS = """
    COUNT(*) AS total_bids,
    COUNT(*) FILTER (WHERE price < 10000) AS rank1_bids,
    COUNT(*) FILTER (WHERE price BETWEEN 10000 AND 999999) AS rank2_bids,
    COUNT(*) FILTER (WHERE price >= 1000000) AS rank3_bids
"""
RANKED = "total_bids BIGINT, rank1_bids BIGINT, rank2_bids BIGINT, rank3_bids BIGINT"
BIDDERS = "COUNT(DISTINCT bidder) AS bidders, COUNT(DISTINCT auction) AS auctions"
HOPS = f"""
    SELECT auction, COUNT(*) AS bids, window_start, window_end
    FROM TABLE(HOP(TABLE bid, DESCRIPTOR(rowtime), INTERVAL '2' SECOND, {WINDOW}))
    GROUP BY auction, window_start, window_end
"""

QUERIES: dict[int, tuple[str, str, str]] = {
    0: ("auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT", "", "SELECT auction, bidder, price, ts FROM bid"),
    1: (
        "auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT", "",
        "SELECT auction, bidder, price * 908 / 1000, ts FROM bid",
    ),
    2: ("auction BIGINT, price BIGINT", "", "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    3: (
        "name STRING, city STRING, state STRING, id BIGINT", "",
        """SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    ),
    4: (
        "category BIGINT, `final` DOUBLE", "category",
        # As in NexMark's own text: with the first of ROW_NUMBER below an average, rows that were replaced stayed in it.
        """SELECT category, AVG(CAST(price AS DOUBLE)) FROM (
            SELECT a.category, MAX(b.price) AS price
            FROM auction a JOIN bid b ON a.id = b.auction WHERE b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category
        ) GROUP BY category""",
    ),
    5: (
        "window_start BIGINT, auction BIGINT, bids BIGINT", "",
        f"""SELECT {MILLIS.replace("window_start", "c.window_start")}, c.auction, c.bids FROM ({HOPS}) c JOIN (
            SELECT MAX(bids) AS most, window_start, window_end FROM ({HOPS}) GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.bids = m.most""",
    ),
    7: (
        "window_start BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT", "",
        f"""SELECT b.ts - MOD(b.ts, 10000), b.auction, b.bidder, b.price, b.ts FROM bid b JOIN (
            SELECT MAX(price) AS highest, window_time AS last_time
            FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rowtime), {WINDOW})) GROUP BY window_start, window_end, window_time
        ) m ON b.price = m.highest AND b.rowtime BETWEEN m.last_time - INTERVAL '9.999' SECOND(1, 3) AND m.last_time""",
    ),
    8: (
        "id BIGINT, name STRING, window_start BIGINT", "",
        f"""SELECT p.id, p.name, {MILLIS.replace("window_start", "p.window_start")} FROM (
            SELECT id, name, window_start, window_end FROM TABLE(TUMBLE(TABLE person, DESCRIPTOR(rowtime), {WINDOW}))
            GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start, window_end FROM TABLE(TUMBLE(TABLE auction, DESCRIPTOR(rowtime), {WINDOW}))
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    ),
    9: (
        "auction BIGINT, item STRING, seller BIGINT, category BIGINT, bidder BIGINT, price BIGINT, ts BIGINT", "auction",
        """SELECT auction, item, seller, category, bidder, price, ts FROM (
            SELECT a.id AS auction, a.item, a.seller, a.category, b.bidder, b.price, b.ts,
                ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder) AS place
            FROM auction a JOIN bid b ON a.id = b.auction WHERE b.ts BETWEEN a.ts AND a.expires
        ) WHERE place = 1""",
    ),
    11: (
        "bidder BIGINT, window_start BIGINT, window_end BIGINT, bids BIGINT", "",
        f"""SELECT bidder, MIN(ts), MAX(ts) + 10000, COUNT(*)
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(rowtime), {WINDOW}))
        GROUP BY bidder, window_start, window_end""",
    ),
    12: (
        "bidder BIGINT, window_start BIGINT, bids BIGINT", "",
        f"""SELECT bidder, {MILLIS}, COUNT(*) FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rowtime), {WINDOW}))
        GROUP BY bidder, window_start, window_end""",
    ),
    14: (
        "auction BIGINT, bidder BIGINT, price BIGINT, part_of_day STRING, c_counts BIGINT", "",
        """SELECT auction, bidder, price * 908 / 1000,
            CASE WHEN MOD(ts / 3600000, 24) BETWEEN 8 AND 18 THEN 'day'
                WHEN MOD(ts / 3600000, 24) <= 6 OR MOD(ts / 3600000, 24) >= 20 THEN 'night' ELSE 'other' END,
            CHAR_LENGTH(url) - CHAR_LENGTH(REPLACE(url, 'c', ''))
        FROM bid WHERE price * 908 / 1000 BETWEEN 1000001 AND 49999999""",
    ),
    15: (
        f"`day` BIGINT, {RANKED}, bidders BIGINT, auctions BIGINT", "`day`",
        f"SELECT ts / 86400000, {RANKS}, {BIDDERS} FROM bid GROUP BY ts / 86400000",
    ),
    16: (
        f"channel STRING, `day` BIGINT, {RANKED}, bidders BIGINT, auctions BIGINT", "channel, `day`",
        f"SELECT channel, ts / 86400000, {RANKS}, {BIDDERS} FROM bid GROUP BY channel, ts / 86400000",
    ),
    17: (
        f"auction BIGINT, `day` BIGINT, {RANKED}, min_price BIGINT, max_price BIGINT, avg_price DOUBLE, sum_price BIGINT",
        "auction, `day`",
        f"""SELECT auction, ts / 86400000, {RANKS}, MIN(price), MAX(price), AVG(CAST(price AS DOUBLE)), SUM(price)
        FROM bid GROUP BY auction, ts / 86400000""",
    ),
    18: (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts BIGINT", "auction, bidder",
        """SELECT auction, bidder, price, channel, ts FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY ts DESC, price DESC, channel DESC) AS place
            FROM bid
        ) WHERE place = 1""",
    ),
    19: (
        "auction BIGINT, bidder BIGINT, price BIGINT, ts BIGINT, `rank` BIGINT", "auction, `rank`",
        """SELECT auction, bidder, price, ts, place FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, ts, bidder) AS place FROM bid
        ) WHERE place <= 10""",
    ),
    20: (
        """auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts BIGINT, item STRING, seller BIGINT,
        initial_bid BIGINT, reserve BIGINT""", "",
        """SELECT b.auction, b.bidder, b.price, b.channel, b.ts, a.item, a.seller, a.initial_bid, a.reserve
        FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    ),
    22: (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, dir1 STRING, dir2 STRING", "",
        """SELECT auction, bidder, price, channel, COALESCE(SPLIT_INDEX(url, '/', 3), ''),
            COALESCE(SPLIT_INDEX(url, '/', 4), '') FROM bid""",
    ),
}  # fmt: skip
"""By number: the columns of the result, its key if its rows change, and the query."""

SOURCES = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, ts BIGINT",
    "auction": """id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, ts BIGINT, expires BIGINT, seller BIGINT,
        category BIGINT""",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, ts BIGINT",
}


def statements(number: int, brokers: str, target: str) -> str:
    """Tables, and the query into its table."""
    made = [
        f"""CREATE TABLE {topic} ({columns}, rowtime AS TO_TIMESTAMP_LTZ(ts, 3),
            WATERMARK FOR rowtime AS rowtime - INTERVAL '4' SECOND)
        WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{brokers}', 'format' = 'json',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')"""
        for topic, columns in SOURCES.items()
    ]
    columns, key, query = QUERIES[number]
    keyed = f", PRIMARY KEY ({key}) NOT ENFORCED" if key else ""
    options = {
        "topic": target, "properties.bootstrap.servers": brokers, "properties.transaction.timeout.ms": "60000",
        "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": target,
        **({"connector": "upsert-kafka", "key.format": "json", "value.format": "json"} if key else
           {"connector": "kafka", "format": "json"}),
    }  # fmt: skip
    words = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return ";\n".join(
        [*made, f"CREATE TABLE results ({columns}{keyed}) WITH ({words})", f"INSERT INTO results {query}"]
    )
