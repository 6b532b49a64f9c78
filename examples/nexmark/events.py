"""NexMark's three streams: people who register, auctions that they open, and bids on those.

Of 50 events one is a person, 3 are auctions and 46 are bids. Event number n always is the same, whoever asks for it and
in pieces of whatever size: each random choice is a hash of n. Proportions, hot items and prices are those of the benchmark
(Tucker, Tufte, Papadimos, Maier: NEXMark, a benchmark for queries over data streams, 2008; and Apache Beam's generator).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

PEOPLE, AUCTIONS, GROUP = 1, 3, 50
"""Events of a kind in each group of 50; the rest are bids."""
FIRST_PERSON, FIRST_AUCTION, FIRST_CATEGORY = 1_000, 1_000, 10
CATEGORIES, CHANNELS, SIDE_INPUT = 5, 10_000, 10_000
ACTIVE_PEOPLE, OPEN_AUCTIONS = 1_000, 100
"""How many of the latest people bid and sell, and how many of the latest auctions get bids."""
HOT = {"auction": 2, "bidder": 4, "seller": 4}
"""All but one of so many choices fall on a hot item."""
HOT_EVERY = 100
"""Each hot item is hot for so many of its kind."""
BEGIN = 1_700_000_000_000
"""Milliseconds since 1970 of the first event."""

CITIES = (
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
)
STATES = ("AZ", "CA", "CA", "ID", "OR", "OR", "WA", "WA", "WA", "WY")
FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Events:
    """Some consecutive events, by kind, each in the order of time."""

    people: pl.DataFrame
    auctions: pl.DataFrame
    bids: pl.DataFrame


def events(start: int, end: int, *, rate: int = 10_000) -> Events:
    """Events start ≤ n < end, `rate` of them in a second of event time."""
    n = np.arange(start, end, dtype=np.int64)
    place = n % GROUP
    people, auctions = n[place < PEOPLE], n[(place >= PEOPLE) & (place < PEOPLE + AUCTIONS)]
    return Events(_people(people, rate), _auctions(auctions, rate), _bids(n[place >= PEOPLE + AUCTIONS], rate))


def side_input() -> pl.DataFrame:
    """The table of query 13: a text for each of 10,000 numbers."""
    keys = pl.DataFrame({"key": np.arange(SIDE_INPUT)})
    return keys.with_columns(value=pl.format("side input {}", "key"))


def _people(n: Ints, rate: int) -> pl.DataFrame:
    city = _choice(n, "city", len(CITIES))
    first, last = _choice(n, "first", len(FIRST_NAMES)), _choice(n, "last", len(LAST_NAMES))
    names = pl.DataFrame({"first": _named(FIRST_NAMES, first), "last": _named(LAST_NAMES, last)})
    card = pl.Series(_choice(n, "card", 10**16)).cast(pl.String).str.zfill(16)
    return pl.DataFrame(
        {
            "id": FIRST_PERSON + n // GROUP,
            "name": names.select(pl.concat_str("first", "last", separator=" ")).to_series(),
            "email": names.select(pl.format("{}@{}.com", "first", "last")).to_series().str.to_lowercase(),
            "credit_card": card,
            "city": _named(CITIES, city),
            "state": _named(STATES, city),
            "ts": _times(n, rate),
        }
    )


def _auctions(n: Ints, rate: int) -> pl.DataFrame:
    price = _prices(n, "initial")
    lasts = 1 + _choice(n, "expires", max(1, 2 * OPEN_AUCTIONS * GROUP * 1_000 // (AUCTIONS * rate)))
    return pl.DataFrame(
        {
            "id": FIRST_AUCTION + n // GROUP * AUCTIONS + n % GROUP - PEOPLE,
            "item": pl.Series(_choice(n, "item", 10**6)).cast(pl.String).str.zfill(6),
            "initial_bid": price,
            "reserve": price + _prices(n, "reserve"),
            "ts": _times(n, rate),
            "expires": _times(n, rate) + lasts,
            "seller": _person(n, "seller"),
            "category": FIRST_CATEGORY + _choice(n, "category", CATEGORIES),
        }
    )


def _bids(n: Ints, rate: int) -> pl.DataFrame:
    auctions = n // GROUP * AUCTIONS + AUCTIONS  # opened before: those of this group come first in it
    hot = (auctions - 1) // HOT_EVERY * HOT_EVERY
    recent = auctions - 1 - _choice(n, "auction", OPEN_AUCTIONS)
    auction = np.where(_choice(n, "hot auction", HOT["auction"]) > 0, hot, np.maximum(recent, 0))
    channel = _choice(n, "channel", CHANNELS)
    named = pl.Series(channel).cast(pl.String)
    hot_channel = _named(HOT_CHANNELS, channel % len(HOT_CHANNELS))
    is_hot = pl.Series(_choice(n, "hot channel", 2) > 0)
    frame = pl.DataFrame({"hot": is_hot, "named": hot_channel, "number": named, "channel": channel})
    return frame.select(
        auction=pl.Series(FIRST_AUCTION + auction),
        bidder=pl.Series(_person(n, "bidder")),
        price=pl.Series(_prices(n, "price")),
        channel=pl.when("hot").then("named").otherwise(pl.format("channel-{}", "number")),
        url=pl.when("hot")
        .then(pl.format("https://www.nexmark.com/{}/item.htm?query=1", pl.col("named").str.to_lowercase()))
        .otherwise(pl.format("https://www.nexmark.com/item.htm?query=1&channel_id={}", "channel")),
        ts=pl.Series(_times(n, rate)),
    )


def _person(n: Ints, what: str) -> Ints:
    """Who bids or sells: mostly a hot one."""
    people = n // GROUP + 1
    hot = (people - 1) // HOT_EVERY * HOT_EVERY
    recent = people - 1 - _choice(n, what, ACTIVE_PEOPLE)
    chosen: Ints = np.where(_choice(n, f"hot {what}", HOT[what]) > 0, hot, np.maximum(recent, 0))
    return FIRST_PERSON + chosen


def _prices(n: Ints, what: str) -> Ints:
    """From 1 to 10,000,000 cents, as many in each power of ten."""
    return np.round(10 ** (_random(n, what) * 6) * 100).astype(np.int64)


def _times(n: Ints, rate: int) -> Ints:
    return BEGIN + n * 1_000 // rate


def _choice(n: Ints, what: str, among: int) -> Ints:
    return np.minimum((_random(n, what) * among).astype(np.int64), among - 1)


def _random(n: Ints, what: str) -> npt.NDArray[np.float64]:
    """A number 0 ≤ x < 1 for each event and purpose (SplitMix64)."""
    salt = int.from_bytes(what.encode()[-8:].rjust(8), "big")
    with np.errstate(over="ignore"):
        x = (n.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) / 2**53


def _named(names: tuple[str, ...], index: Ints) -> pl.Series:
    return pl.Series(names)[pl.Series(index)]
