"""What happens to a gateway's producer, without a broker."""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path

import confluent_kafka
import polars as pl
import pytest
from confluent_kafka import KafkaError, Producer
from tests.waiting import PATIENCE_S

from falkirk.cadence import Cadence
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


def test_a_request_that_cannot_be_decoded_is_refused_and_those_beside_it_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed: list[tuple[str, int]] = []
    empty: list[str] = []

    def records(some: list[ToAppend]) -> list[None]:
        if any(one.key == "b" for one in some):
            # A panic of Polars is no Exception.
            pl.select(pl.lit(9 * 10**18).cast(pl.Datetime("ms")).dt.to_string("%Y"))
        return [None] * len(some)

    async def test() -> None:
        appender = Appender(
            Cluster("127.0.0.1:1"), "orders", records, largest=1000, patience=30.0,
            failed=lambda key, reply: failed.append((key, reply.status)), empty=lambda one: empty.append(one.key),
        )  # fmt: skip
        try:
            for key in "abc":
                appender.append(ToAppend(key, b"{}"))
            while len(failed) + len(empty) < 3:
                await asyncio.sleep(0.01)
        finally:
            appender.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
    assert (failed, empty) == ([("b", 400)], ["a", "c"])
    assert caplog.text.count("could not be decoded") == 1


def test_requests_that_are_not_appended_are_logged_once_in_a_while(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    async def test() -> None:
        appender = Appender(
            Cluster("127.0.0.1:1"), "orders", lambda some: [one.value for one in some], largest=1000, patience=30.0,
            failed=lambda _, reply: failed.append(reply.status), empty=lambda _: None,
        )  # fmt: skip

        async def refuse(requests: int) -> None:
            failed.clear()
            for n in range(requests):
                appender.append(ToAppend(f"{n}", b"x" * 2000))
            while len(failed) < requests:
                await asyncio.sleep(0.01)

        try:
            await refuse(500)
            monkeypatch.setattr(appender, "_log", Cadence(0, 0))  # time has passed
            await refuse(1)
        finally:
            appender.close()

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
    assert failed == [413]
    first, second = [said for said in caplog.messages if "appended" in said]
    assert first.startswith("1 request not appended to topic orders, the last because: ")
    assert second.startswith("500 requests not appended")
