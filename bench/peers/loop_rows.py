"""The bare loop, row by row: a consumer, a dict, a transactional producer. Its state is lost with the process.

python loop_rows.py BROKERS SOURCE TARGET COUNT COMMIT_MS FOLDER
"""

from __future__ import annotations

import sys
import time

import clients
import orjson
from confluent_kafka import TopicPartition


def main() -> None:
    brokers, source, target, count, commit_ms, _ = sys.argv[1:]
    consumer, producer = clients.consumer(brokers, source), clients.producer(brokers)
    state: dict[int, list[int]] = {}
    changed: set[int] = set()
    ends: dict[int, int] = {}
    left, interval = int(count), int(commit_ms) / 1000
    closes = time.monotonic() + interval
    producer.begin_transaction()
    while left:
        messages = consumer.consume(5_000, 0.02)
        for message in messages:
            bid = orjson.loads(message.value())
            auction, price = bid["auction"], bid["price"]
            stats = state.setdefault(auction, [0, 0])
            stats[0] += 1
            stats[1] = max(stats[1], price)
            changed.add(auction)
            ends[message.partition()] = message.offset() + 1
        left -= len(messages)
        if ends and (time.monotonic() >= closes or not left):
            for auction in changed:
                n, top = state[auction]
                producer.produce(target, b'{"auction":%d,"n":%d,"top":%d}' % (auction, n, top), b"%d" % auction)
            offsets = [TopicPartition(source, p, end) for p, end in ends.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
            producer.commit_transaction()
            changed.clear()
            ends.clear()
            producer.begin_transaction()
            closes = time.monotonic() + interval
    producer.abort_transaction()
    consumer.close()


if __name__ == "__main__":
    main()
