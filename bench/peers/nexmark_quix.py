"""A query of NexMark in Quix Streams, exactly-once.

python nexmark_quix.py BROKERS QUERY TARGET COMMIT_MS FOLDER

It ends when all that was in the topics at the start is processed and committed, and all that it sent itself by another key.
There is no cache: a query whose rows change writes a row for each bid that changes one.
"""

from __future__ import annotations

import sys
import uuid
from bisect import bisect, insort
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from confluent_kafka import TopicPartition
from quixstreams import Application, State
from quixstreams.dataframe import StreamingDataFrame
from quixstreams.models import Topic

Row = dict[str, Any]
DAY, HOUR, WINDOW = 86_400_000, 3_600_000, 10_000
"""Milliseconds."""
GRACE = timedelta(minutes=1)
"""Partitions of a topic are not read at one pace, so windows stay open for a while."""
BEST = 10
REPARTITIONED = "repartition__"
"""What the name of a topic begins with that has been sent by another key."""


class Input:
    """The topics of a query, and what of them is still to come."""

    def __init__(self) -> None:
        self.app: Application
        self._topics: list[Topic] = []
        self._left: dict[tuple[str, int], int] = {}
        self._on_the_way = 0

    def read(self, name: str) -> StreamingDataFrame:
        """A topic, by the text of its key."""
        topic = self.app.topic(name, key_deserializer="str", timestamp_extractor=lambda value, *_: value["ts"])
        self._topics.append(topic)
        return self.app.dataframe(topic)

    def regroup(self, frame: StreamingDataFrame, name: str, key: Callable[[Any], object]) -> StreamingDataFrame:
        """Rows by another key. With one partition they stay where they are."""

        def counted(value: Any) -> str:
            self._on_the_way += several
            return str(key(value))

        several = frame.topics[0].broker_config.num_partitions > 1
        return frame.group_by(counted, name, key_serializer="str", key_deserializer="str")

    def look(self) -> None:
        """Find the last record of each partition."""
        with self.app.get_consumer(auto_commit_enable=False) as consumer:
            for topic in self._topics:
                for partition in range(topic.broker_config.num_partitions):
                    low, high = consumer.get_watermark_offsets(TopicPartition(topic.name, partition), timeout=30)
                    if high > low:
                        self._left[topic.name, partition] = high - 1

    def processed(self, topic: str, partition: int, offset: int) -> None:
        """A record has been processed. After the last one the app stops, and commits."""
        if topic.startswith(REPARTITIONED):
            self._on_the_way -= 1
        elif self._left.get((topic, partition), -1) == offset:
            del self._left[topic, partition]
        if not self._left and not self._on_the_way:
            self.app.stop()


def q0(i: Input) -> StreamingDataFrame:
    return i.read("bid")[["auction", "bidder", "price", "ts"]]


def q1(i: Input) -> StreamingDataFrame:
    def converted(bid: Row) -> Row:
        return {
            "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"] * 908 // 1000, "ts": bid["ts"],
        }  # fmt: skip

    return i.read("bid").apply(converted)


def q2(i: Input) -> StreamingDataFrame:
    return i.read("bid").filter(lambda bid: bid["auction"] % 123 == 0)[["auction", "price"]]


def q3(i: Input) -> StreamingDataFrame:
    people = i.read("person").filter(lambda person: person["state"] in ("OR", "ID", "CA"))
    auctions = i.regroup(
        i.read("auction").filter(lambda auction: auction["category"] == 10)[["id", "seller"]],
        "seller",
        lambda auction: auction["seller"],
    )

    def joined(row: Row, state: State) -> list[Row]:
        if "seller" not in row:
            person = {name: row[name] for name in ("name", "city", "state")}
            state.set("person", person)
            sold = state.get("waiting", [])
            state.delete("waiting")
        else:
            person, sold = state.get("person"), [row["id"]]
            if person is None:
                state.set("waiting", state.get("waiting", []) + sold)
                return []
        return [{**person, "id": auction} for auction in sold]

    return people.concat(auctions).apply(joined, stateful=True, expand=True)


def q8(i: Input) -> StreamingDataFrame:
    auctions = i.regroup(i.read("auction")[["seller", "ts"]], "seller", lambda auction: auction["seller"])

    def new(row: Row, state: State) -> list[Row]:
        start = row["ts"] // WINDOW * WINDOW
        if "seller" not in row:
            found = {"id": row["id"], "name": row["name"], "window_start": start}
            state.set("person", found)
            return [found] if state.exists(f"sold {start}") else []
        if state.exists(f"sold {start}"):
            return []
        state.set(f"sold {start}", 1)
        found = state.get("person")
        return [found] if found is not None and found["window_start"] == start else []

    return i.read("person").concat(auctions).apply(new, stateful=True, expand=True)


def met(i: Input, made: Callable[[Row, Row, State], list[Row]]) -> StreamingDataFrame:
    """What comes of each bid and its auction: bids that come before it wait."""

    def function(row: Row, state: State) -> list[Row]:
        if "bidder" not in row:
            state.set("auction", row)
            bids = state.get("waiting", [])
            state.delete("waiting")
            return [found for bid in bids for found in made(row, bid, state)]
        auction = state.get("auction")
        if auction is None:
            state.set("waiting", [*state.get("waiting", []), row])
            return []
        return made(auction, row, state)

    return i.read("auction").concat(i.read("bid")).apply(function, stateful=True, expand=True)


def q9(i: Input) -> StreamingDataFrame:
    def better(auction: Row, bid: Row, state: State) -> list[Row]:
        if not auction["ts"] <= bid["ts"] <= auction["expires"]:
            return []
        place, best = [-bid["price"], bid["ts"], bid["bidder"]], state.get("best")
        if best is not None and best <= place:
            return []
        state.set("best", place)
        return [
            {
                "auction": auction["id"], "item": auction["item"], "seller": auction["seller"],
                "category": auction["category"], "bidder": bid["bidder"], "price": bid["price"], "ts": bid["ts"],
            }
        ]  # fmt: skip

    return met(i, better)


def q12(i: Input) -> StreamingDataFrame:
    bidders = i.regroup(i.read("bid").apply(lambda bid: bid["bidder"]), "bidder", lambda bidder: bidder)
    counts = bidders.tumbling_window(timedelta(milliseconds=WINDOW), GRACE).count().current()
    return counts.apply(
        lambda found, key, *_: {"bidder": int(key), "window_start": found["start"], "bids": found["value"]},
        metadata=True,
    )


def q14(i: Input) -> StreamingDataFrame:
    def dear(bid: Row) -> Row:
        hour = bid["ts"] // HOUR % 24
        return {
            "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"] * 908 // 1000,
            "part_of_day": "day" if 8 <= hour <= 18 else "night" if hour <= 6 or hour >= 20 else "other",
            "c_counts": bid["url"].count("c"),
        }  # fmt: skip

    return i.read("bid").filter(lambda bid: 1_000_000 < bid["price"] * 908 // 1000 < 50_000_000).apply(dear)


def rank(price: int) -> int:
    return 1 if price < 10_000 else 2 if price < 1_000_000 else 3


def ranks(counts: list[int]) -> Row:
    return {"total_bids": counts[0], **{f"rank{n}_bids": counts[n] for n in (1, 2, 3)}}


def distinct(frame: StreamingDataFrame) -> StreamingDataFrame:
    """Counts of each key, and how many bidders and auctions it had."""

    def counted(bid: Row, state: State) -> Row:
        counts = state.get("counts", [0] * 6)
        counts[0] += 1
        counts[rank(bid["price"])] += 1
        for place, name in ((4, "bidder"), (5, "auction")):
            if not state.exists(seen := f"{name} {bid[name]}"):
                state.set(seen, 1)
                counts[place] += 1
        state.set("counts", counts)
        return {**bid["of"], **ranks(counts), "bidders": counts[4], "auctions": counts[5]}

    return frame.apply(counted, stateful=True)


def q15(i: Input) -> StreamingDataFrame:
    def needed(bid: Row) -> Row:
        return {
            "of": {"day": bid["ts"] // DAY}, "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"],
        }  # fmt: skip

    return distinct(i.regroup(i.read("bid").apply(needed), "day", lambda bid: bid["of"]["day"]))


def q16(i: Input) -> StreamingDataFrame:
    def needed(bid: Row) -> Row:
        of = {"channel": bid["channel"], "day": bid["ts"] // DAY}
        return {"of": of, "auction": bid["auction"], "bidder": bid["bidder"], "price": bid["price"]}

    key = lambda bid: f"{bid['of']['channel']} {bid['of']['day']}"  # noqa: E731
    return distinct(i.regroup(i.read("bid").apply(needed), "channel", key))


def q17(i: Input) -> StreamingDataFrame:
    def counted(bid: Row, state: State) -> Row:
        day, price = bid["ts"] // DAY, bid["price"]
        counts = state.get(f"{day}")
        if counts is None:
            counts = [0, 0, 0, 0, price, price, 0]
        counts[0] += 1
        counts[rank(price)] += 1
        counts[4] = min(counts[4], price)
        counts[5] = max(counts[5], price)
        counts[6] += price
        state.set(f"{day}", counts)
        return {
            "auction": bid["auction"], "day": day, **ranks(counts), "min_price": counts[4], "max_price": counts[5],
            "avg_price": counts[6] / counts[0], "sum_price": counts[6],
        }  # fmt: skip

    return i.read("bid").apply(counted, stateful=True)


def q18(i: Input) -> StreamingDataFrame:
    def later(bid: Row, state: State) -> list[Row]:
        key, place = str(bid["bidder"]), [bid["ts"], bid["price"], bid["channel"]]
        last = state.get(key)
        if last is not None and last >= place:
            return []
        state.set(key, place)
        return [{name: bid[name] for name in ("auction", "bidder", "price", "channel", "ts")}]

    return i.read("bid").apply(later, stateful=True, expand=True)


def q19(i: Input) -> StreamingDataFrame:
    def ranked(bid: Row, state: State) -> list[Row]:
        best, place = state.get("best", []), [-bid["price"], bid["ts"], bid["bidder"]]
        first = bisect(best, place)
        if first >= BEST:
            return []
        insort(best, place)
        del best[BEST:]
        state.set("best", best)
        return [
            {"auction": bid["auction"], "bidder": bidder, "price": -price, "ts": ts, "rank": n}
            for n, (price, ts, bidder) in enumerate(best[first:], first + 1)
        ]

    return i.read("bid").apply(ranked, stateful=True, expand=True)


def q20(i: Input) -> StreamingDataFrame:
    def known(auction: Row, bid: Row, _: State) -> list[Row]:
        if auction["category"] != 10:
            return []
        of_bid = {name: bid[name] for name in ("auction", "bidder", "price", "channel", "ts")}
        return [of_bid | {name: auction[name] for name in ("item", "seller", "initial_bid", "reserve")}]

    return met(i, known)


def q22(i: Input) -> StreamingDataFrame:
    def folders(bid: Row) -> Row:
        _, _, _, dir1, dir2, *_ = (bid["url"] + "//").split("/")  # a missing folder is an empty one
        kept = {name: bid[name] for name in ("auction", "bidder", "price", "channel")}
        return {**kept, "dir1": dir1, "dir2": dir2}

    return i.read("bid").apply(folders)


QUERIES = {int(name[1:]): made for name, made in list(globals().items()) if name[0] == "q" and name[1:].isdigit()}
KEYS: dict[int, tuple[str, ...]] = {
    9: ("auction",), 12: ("bidder", "window_start"), 15: ("day",), 16: ("channel", "day"), 17: ("auction", "day"),
    18: ("auction", "bidder"), 19: ("auction", "rank"),
}  # fmt: skip
"""The columns that identify a row, if rows change."""


def main() -> None:
    brokers, number, target, commit_ms, folder = sys.argv[1:]
    given, names = Input(), KEYS.get(int(number))
    app = given.app = Application(
        broker_address=brokers,
        consumer_group=f"{target}-{uuid.uuid4().hex[:8]}",
        processing_guarantee="exactly-once",
        commit_interval=int(commit_ms) / 1000,
        auto_offset_reset="earliest",
        state_dir=folder,
        loglevel="WARNING",
        producer_extra_config={"compression.type": "lz4", "linger.ms": 20},
        on_message_processed=given.processed,
    )
    rows = QUERIES[int(number)](given)
    results = app.topic(target, key_serializer="str")
    rows.to_topic(results, key=names and (lambda row: " ".join(str(row[name]) for name in names)))
    given.look()
    app.run()


if __name__ == "__main__":
    main()
