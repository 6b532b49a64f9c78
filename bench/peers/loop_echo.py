"""The bare transactional loop at its quickest: what has arrived is written on and committed at once.

python loop_echo.py BROKERS SOURCE TARGET         it ends when its standard input closes
"""

from __future__ import annotations

import sys
import threading

import clients
from confluent_kafka import TopicPartition


def main() -> None:
    brokers, source, target = sys.argv[1:]
    stop = threading.Event()

    def watch() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    consumer, producer = clients.consumer(brokers, source), clients.producer(brokers, linger_ms=0)
    while not stop.is_set():
        first = consumer.poll(0.1)
        if first is None:
            continue
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in [first, *consumer.consume(1_000, 0)]:
            producer.produce(target, message.value(), message.key())
            ends[message.partition()] = message.offset() + 1
        offsets = [TopicPartition(source, p, end) for p, end in ends.items()]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        producer.commit_transaction()
    consumer.close()


if __name__ == "__main__":
    main()
