"""Fence a log's producers while their records are on their way: `python -m tests.connectors.kafka.fencing BOOTSTRAP`.

A process of its own: where librdkafka damages its memory, the process dies.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from contextlib import suppress

from tests.connectors.kafka.test_log import RealHarness

from falkirk.checkpoint.ids import OwnerId
from falkirk.checkpoint.ports import Aborted, Fenced, Unknown, Writes
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.client.producing import initialised
from falkirk.connectors.kafka.transactions.log import KafkaLog

ROUNDS = 100
PARTITIONS = 4


async def fence(log: KafkaLog, topics: list[str], settings: dict[str, object]) -> None:
    """Send to every topic, begin a newer producer meanwhile, and renew the log once it is fenced. ROUNDS times."""
    rng = random.Random(1)
    for _ in range(ROUNDS):
        rival = threading.Timer(0.02 * rng.random(), initialised, args=(settings,))
        rival.start()
        try:
            await log.begin()
            for topic in topics * rng.randint(1, 5):
                count = rng.choice((1, 10, 3000))
                placed = [rng.randrange(PARTITIONS) for _ in range(count)]
                await log.send(Writes(topic, placed, [b"key"] * count, [bytes(200)] * count))
                if rng.random() < 0.3:
                    time.sleep(0.01)  # some are on their way
            await log.commit()
        except (Fenced, Unknown, Aborted):
            await log.renew()
        rival.join()


def main(bootstrap: str) -> None:
    """Run all rounds."""
    harness = RealHarness(bootstrap)
    log = harness.log(OwnerId("fenced"))
    settings = {**Cluster(bootstrap).settings(), "transactional.id": log.owner}
    with suppress(KeyboardInterrupt):
        harness.run(fence(log, [harness.topic(PARTITIONS) for _ in range(6)], settings))
    harness.close()
    print("whole")


if __name__ == "__main__":
    main(sys.argv[1])
