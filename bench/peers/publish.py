"""Rows of a topic, read into memory, and written to another by a bare transactional producer: what publishing is measured by.

python publish.py BROKERS SOURCE TARGET SLICE PARTITION …     it reads, says so, and writes when its standard input closes
"""

from __future__ import annotations

import sys

import clients
from confluent_kafka import Consumer, KafkaError, TopicPartition

HEADERS = [("falkirk-epoch", b"0")]


def main() -> None:
    brokers, source, target = sys.argv[1:4]
    size, partitions = int(sys.argv[4]), [int(p) for p in sys.argv[5:]]
    rows = [row for p in partitions for row in read(brokers, source, p)]
    producer = clients.producer(brokers)
    print('{"read": true}', flush=True)
    sys.stdin.read()
    for start in range(0, len(rows), size):
        producer.begin_transaction()
        for partition, key, value in rows[start : start + size]:
            while True:
                try:
                    producer.produce(target, value, key, partition, headers=HEADERS)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.commit_transaction()


def read(brokers: str, topic: str, partition: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """All committed records of a partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "bench-publish",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        for message in consumer.consume(20_000, 0.2):
            error = message.error()
            if error is None:
                rows.append((partition, message.key(), message.value()))
            elif error.code() == KafkaError._PARTITION_EOF:
                consumer.close()
                return rows
            else:
                raise RuntimeError(f"{topic} cannot be read: {error}")


if __name__ == "__main__":
    main()
