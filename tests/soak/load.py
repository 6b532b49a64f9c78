"""The load: auction bids with unique numbers, the same for the same seed, produced by a process of its own.

    python -m tests.soak.load BROKERS TOPIC SEED RATE [COUNT] [KEYS] [BEGUN]        RATE 0: flat out; COUNT 0: until SIGTERM

Its producer is idempotent and never gives up, so that each record is in the topic exactly once whatever the broker goes
through. It says every second, as JSON a line, how many were acknowledged; the last line says `done`. The end of its
standard input is its end. With BEGUN, in milliseconds since 1970, bids have a time (see `dated`). Where SOAK_REGISTRY names
a registry, bids are in Avro, and some are none (see `daily`).
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import msgspec
from confluent_kafka import KafkaError, Message, Producer
from tests.soak import daily

BURST_S = 0.01
"""What falls due within it is sent at once: to wait for each record alone costs a tenth of a core."""
KEYS = 2000
BIDDERS = 500
ASTRAY_MS = 100
"""How far bids are out of the order of their times, at most."""


class Sent(msgspec.Struct):
    """How far the generator is."""

    acknowledged: int
    done: bool = False


def bids(seed: int, keys: int = KEYS) -> Iterator[dict[str, int]]:
    """Bids without end: `id` counts them, a tenth of all auctions draws half of them.

    >>> import itertools
    >>> [bid["id"] for bid in itertools.islice(bids(7), 3)], next(bids(7)) == next(bids(7))
    ([0, 1, 2], True)
    """
    rng = random.Random(seed)
    number = 0
    while True:
        auction = rng.randrange(keys // 10 if rng.random() < 0.5 else keys)
        yield {"id": number, "auction": auction, "bidder": rng.randrange(BIDDERS), "price": rng.randrange(10_000)}
        number += 1


def dated(some: Iterable[dict[str, int]], begun: int) -> Iterator[dict[str, int]]:
    """Bids with a time: a millisecond for each, and up to a tenth of a second later, so that they come out of order.

    >>> import itertools
    >>> [(bid["id"], bid["at"]) for bid in itertools.islice(dated(bids(7), 5_000), 3)]
    [(0, 5091), (1, 5092), (2, 5019)]
    """
    for bid in some:
        yield bid | {"at": begun + bid["id"] + bid["price"] % ASTRAY_MS}


class Generator:
    """Sends bids and counts what was acknowledged."""

    def __init__(
        self, brokers: str, topic: str, encode: Callable[[dict[str, int]], bytes] = msgspec.json.encode
    ) -> None:
        self.topic, self.encode, self.sent, self.acknowledged = topic, encode, 0, 0
        self.failed: KafkaError | None = None
        self.producer = Producer(
            {
                "bootstrap.servers": brokers,
                "enable.idempotence": True,
                "message.timeout.ms": 0,
                "partitioner": "murmur2",
                "linger.ms": 5,
                "queue.buffering.max.messages": 200_000,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )

    def send(self, bid: dict[str, int]) -> None:
        """Put one bid into the queue, waiting for room."""
        value, key = self.encode(bid), str(bid["auction"]).encode()
        while True:
            try:
                self.producer.produce(self.topic, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self.producer.poll(0.05)
        self.sent += 1

    def settle(self) -> None:
        """Wait until all is acknowledged."""
        while self.producer.flush(1.0):
            self.check()
        self.check()

    def check(self) -> None:
        """Raises RuntimeError if a record could not be sent: the run is then no test of anything."""
        if self.failed is not None:
            raise RuntimeError(f"the generator lost a record: {self.failed}")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed = error
        else:
            self.acknowledged += 1


def main(brokers: str, topic: str, seed: int, rate: int, count: int = 0, keys: int = KEYS, begun: int = 0) -> None:
    """Be the generator."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_end_with_starter, daemon=True).start()
    generator, began, told = Generator(brokers, topic, _encoding()), time.monotonic(), 0.0
    for bid in dated(bids(seed, keys), begun) if begun else bids(seed, keys):
        if stop.is_set() or (count and generator.sent >= count):
            break
        generator.send(bid)
        if rate:
            if (early := began + generator.sent / rate - time.monotonic()) > 0:
                time.sleep(early + BURST_S)
            generator.producer.poll(0)
        elif generator.sent % 1000 == 0:
            generator.producer.poll(0)
        if time.monotonic() - told > 1.0:
            generator.check()
            _tell(Sent(generator.acknowledged))
            told = time.monotonic()
    generator.settle()
    _tell(Sent(generator.acknowledged, done=True))


def _encoding() -> Callable[[dict[str, int]], bytes]:
    if "SOAK_REGISTRY" not in os.environ:
        return msgspec.json.encode
    return partial(daily.encode, schema=daily.register("bids-value"))


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(1)


def _tell(sent: Sent) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(sent) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
