"""Decoding alone: Avro as Falkirk does it, fastavro row by row, Protobuf, and JSON, on the same bids.

    python bench/formats.py                 records a second of CPU time, and of time; a minute
    python bench/formats.py --records 20000

Each line is the best of several rounds, in which all take their turns: a busy machine slows all of them.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import click
import fastavro
import orjson
import polars as pl

import falkirk as fk
from harness.command import command

ROUNDS = 5
FIELDS: dict[str, Any] = {
    "auction": "long",
    "bidder": "long",
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
    "channel": "string",
    "url": ["null", "string"],
    "at": {"type": "long", "logicalType": "timestamp-millis"},
}
SCHEMA = {"type": "record", "name": "Bid", "fields": [{"name": n, "type": t} for n, t in FIELDS.items()]}
PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Bid {
  int64 auction = 1;
  int64 bidder = 2;
  string price = 3;
  string channel = 4;
  optional string url = 5;
  google.protobuf.Timestamp at = 6;
}
"""
COLUMNS = {
    "auction": fk.Int64,
    "bidder": fk.Int64,
    "price": fk.Decimal(12, 2),
    "channel": fk.String,
    "url": fk.String,
    "at": fk.Datetime,
}


class Pace(NamedTuple):
    """Records a second."""

    of_cpu: float
    of_time: float


def frame(records: int) -> pl.DataFrame:
    """Bids, as the Avro format reads them."""
    rng = random.Random(7)
    return pl.DataFrame(
        {
            "auction": [rng.randrange(10_000) for _ in range(records)],
            "bidder": [rng.randrange(10**6) for _ in range(records)],
            "price": pl.Series([rng.randrange(10**7) for _ in range(records)]).cast(pl.Decimal(20, 0)) / 100,
            "channel": [rng.choice(["google", "apple", "facebook", "baidu"]) for _ in range(records)],
            "url": [rng.choice([None, f"https://shop.example/item/{rng.randrange(10**6)}"]) for _ in range(records)],
            "at": [1_700_000_000_000 + i for i in range(records)],
        }
    ).cast({"price": pl.Decimal(12, 2), "at": pl.Datetime("ms", "UTC")})


def row_by_row(values: Sequence[bytes]) -> pl.DataFrame:
    """What one does without more."""
    schema, read = fastavro.parse_schema(SCHEMA), fastavro.schemaless_reader
    return pl.DataFrame([read(io.BytesIO(value), schema, None) for value in values], schema=fk.Avro(SCHEMA).schema)


def measured(work: dict[str, Callable[[], object]], records: int) -> dict[str, Pace]:
    """The best of each."""
    best: dict[str, Pace] = {}
    for _ in range(ROUNDS):
        for name, run in work.items():
            cpu, began = time.process_time(), time.perf_counter()
            run()
            cpu, took = time.process_time() - cpu, time.perf_counter() - began
            known = best.get(name, Pace(0, 0))
            best[name] = Pace(max(known.of_cpu, records / cpu), max(known.of_time, records / took))
    return best


def shown(title: str, paces: dict[str, Pace]) -> None:
    """A table; the ratio is to the first line."""
    first = next(iter(paces.values()))
    print(f"\n{title:<34}{'a CPU second':>14}{'a second':>14}{'ratio':>8}")
    for name, pace in paces.items():
        print(f"  {name:<32}{pace.of_cpu:>14,.0f}{pace.of_time:>14,.0f}{pace.of_cpu / first.of_cpu:>8.2f}")


@command(__doc__)
@click.option("--records", default=100_000, show_default=True, help="Bids that are decoded, and encoded.")
def main(records: int) -> None:
    """Measure, and print."""
    avro, json = fk.Avro(SCHEMA), fk.Json(COLUMNS)
    bids = frame(records)
    datums, documents = avro.encode(bids), json.encode(bids)
    # Protobuf has no decimals.
    proto, texts = fk.Protobuf(PROTO), bids.cast({"price": pl.String})
    messages = proto.encode(texts)
    assert orjson.loads(documents[0]).keys() == FIELDS.keys()
    assert avro.decode(datums).frame.equals(json.decode(documents).frame)
    assert avro.decode(datums).frame.equals(row_by_row(datums))
    assert proto.decode(messages).frame.equals(texts.cast(proto.schema))
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; {records:,} records")
    few, few_json = avro.project(["auction", "price"]), json.project(["auction", "price"])
    few_proto = proto.project(["auction", "price"])
    exact = fk.Json(COLUMNS, extra="refuse", missing="refuse")
    work: dict[str, Callable[[], object]] = {
        "fastavro, row by row": lambda: row_by_row(datums),
        "Avro": lambda: avro.decode(datums),
        "Avro, two columns of six": lambda: few.decode(datums),
        "Protobuf": lambda: proto.decode(messages),
        "Protobuf, two columns of six": lambda: few_proto.decode(messages),
        "JSON": lambda: json.decode(documents),
        "JSON, two columns of six": lambda: few_json.decode(documents),
        "JSON, its names compared": lambda: exact.decode(documents),
    }
    shown("decoding", measured(work, records))
    for size in (1, 100):
        cut = [datums[i : i + size] for i in range(0, min(records, 200 * size), size)]
        cut_proto = [messages[i : i + size] for i in range(0, min(records, 200 * size), size)]
        cut_json = [documents[i : i + size] for i in range(0, min(records, 200 * size), size)]
        batches: dict[str, Callable[[], object]] = {
            "Avro": lambda cut=cut: [avro.decode(values) for values in cut],  # type: ignore[misc]
            "Protobuf": lambda cut=cut_proto: [proto.decode(values) for values in cut],  # type: ignore[misc]
            "JSON": lambda cut=cut_json: [json.decode(values) for values in cut],  # type: ignore[misc]
        }
        shown(f"decoding, {size} at a time", measured(batches, sum(map(len, cut))))
    encoding: dict[str, Callable[[], object]] = {
        "Avro": lambda: avro.encode(bids),
        "Protobuf": lambda: proto.encode(texts),
        "JSON": lambda: json.encode(bids),
    }
    shown("encoding", measured(encoding, records))


if __name__ == "__main__":
    main()
