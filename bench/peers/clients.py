"""Kafka clients for the bare loops, with the settings that were fastest: what the broker and librdkafka give at best."""

from __future__ import annotations

import uuid

from confluent_kafka import Consumer, Producer

QUICK = {
    # After a commit the next transaction meets CONCURRENT_TRANSACTIONS: at the default it waits 100 ms for nothing.
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 20,
    "socket.nagle.disable": True,
}


def consumer(brokers: str, topic: str) -> Consumer:
    """In a new group, from the topic's start."""
    made = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.message.max.bytes": 4_000_000,
            "fetch.queue.backoff.ms": 10,
            "queued.min.messages": 100_000,
            "queued.max.messages.kbytes": 131_072,
            **QUICK,
        }
    )
    made.subscribe([topic])
    return made


def producer(brokers: str, linger_ms: int = 5) -> Producer:
    """Transactional, and initialised."""
    made = Producer(
        {
            "bootstrap.servers": brokers,
            "transactional.id": uuid.uuid4().hex,
            "compression.type": "lz4",
            "linger.ms": linger_ms,
            "batch.num.messages": 20_000,
            "queue.buffering.max.messages": 1_000_000,
            **QUICK,
        }
    )
    made.init_transactions()
    return made
