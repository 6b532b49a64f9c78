"""What happens to a gateway's producer, without a broker."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, Producer

from falkirk.connectors.http.messages import Reply
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.runtime.gateway.appender import Appender
from falkirk.runtime.gateway.desk import ToAppend


def break_for_good(producer: Producer) -> None:
    """As an answer of a broker that has lost records does: librdkafka has a function to test for it."""
    libraries = [*Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs").glob("librdkafka-*")]
    if not libraries:
        pytest.skip("this package of confluent-kafka has no library of its own")
    fail = ctypes.CDLL(str(libraries[0])).rd_kafka_test_fatal_error
    fail.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p]
    # What follows the head of a Python object is the handle.
    handle = ctypes.c_void_p.from_address(id(producer) + object.__basicsize__)
    assert fail(handle, KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, b"the broker has lost records") == 0


def test_a_producer_that_is_broken_for_good_is_replaced() -> None:
    failed: list[tuple[str, int]] = []

    async def test() -> None:
        def told(key: str, reply: Reply) -> None:
            failed.append((key, reply.status))

        def records(some: list[ToAppend]) -> list[bytes]:
            if some[0].key == "a":  # just before it is sent: the thread that polls replaces a broken producer at once
                break_for_good(broken)
            return [one.value for one in some]

        appender = Appender(
            Cluster("127.0.0.1:1"), "orders", records,
            largest=1000, patience=30.0, failed=told, empty=lambda _: None,
        )  # fmt: skip
        broken = appender._producer
        try:
            appender.append(ToAppend("a", b"{}"))
            while not failed or appender._producer is broken:
                await asyncio.sleep(0.01)
            assert failed == [("a", 504)]
            appender.append(ToAppend("b", b"{}"))
            await asyncio.sleep(0.1)
            assert failed == [("a", 504)]  # the other one waits for the cluster
        finally:
            appender._producer.purge()
            appender.close()

    asyncio.run(asyncio.wait_for(test(), 60))
