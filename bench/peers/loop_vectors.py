"""The bare loop, vectorised: Polars decodes and groups, RocksDB keeps the state, a changelog makes it durable.

    python loop_vectors.py BROKERS SOURCE TARGET COUNT COMMIT_MS FOLDER

What it leaves out: steps, ownership, recovery, checks of any kind. It is what exactly-once costs at the least.
"""

from __future__ import annotations

import struct
import sys
import time

import clients
import polars as pl
from confluent_kafka import TopicPartition
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

SCHEMA = {"auction": pl.Int64, "price": pl.Int64}
KEY, VALUE = struct.Struct(">q"), struct.Struct("<qq")


def main() -> None:
    brokers, source, target, count, commit_ms, folder = sys.argv[1:]
    consumer, producer = clients.consumer(brokers, source), clients.producer(brokers)
    changelog = f"{target}.changelog"
    state = Rdict(folder, Options(raw_mode=True))
    no_log = WriteOptions()
    no_log.disable_wal = True
    values: list[bytes] = []
    ends: dict[int, int] = {}
    left, interval = int(count), int(commit_ms) / 1000
    closes = time.monotonic() + interval
    producer.begin_transaction()
    while left:
        messages = consumer.consume(5_000, 0.02)
        values += [message.value() for message in messages]
        for message in messages:
            ends[message.partition()] = message.offset() + 1
        left -= len(messages)
        if not values or (left and time.monotonic() < closes):
            continue
        bids = pl.read_ndjson(b"\n".join(values), schema=SCHEMA)
        stats = bids.group_by("auction").agg(n=pl.len(), top=pl.max("price"))
        auctions = stats["auction"].to_list()
        keys = [KEY.pack(auction) for auction in auctions]
        changes = WriteBatch(raw_mode=True)
        for auction, key, n, top, before in zip(
            auctions, keys, stats["n"].to_list(), stats["top"].to_list(), state.get(keys), strict=True
        ):
            if before is not None:
                n_before, top_before = VALUE.unpack(before)
                n, top = n + n_before, max(top, top_before)
            value = VALUE.pack(n, top)
            changes.put(key, value)
            producer.produce(changelog, value, key)
            producer.produce(target, b'{"auction":%d,"n":%d,"top":%d}' % (auction, n, top), b"%d" % auction)
        offsets = [TopicPartition(source, p, end) for p, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
        state.write(changes, no_log)
        values.clear()
        ends.clear()
        producer.begin_transaction()
        closes = time.monotonic() + interval
    producer.abort_transaction()
    consumer.close()


if __name__ == "__main__":
    main()
