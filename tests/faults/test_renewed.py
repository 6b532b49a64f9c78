"""A producer that was renewed is closed: it leaves no thread behind that looks for brokers."""

from __future__ import annotations

import gc
import time
from contextlib import suppress
from pathlib import Path

import pytest
from tests.connectors.kafka.test_log import RealHarness
from tests.faults.faults import CUT_OFF, LOSE, LOSE_ANSWER, Fault
from tests.faults.frames import Api
from tests.faults.proxy import Proxy
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.ports import Failure, Log, Writes

pytestmark = pytest.mark.kafka

TIMES = 3


def clients() -> int:
    """How many clients of librdkafka this process has."""
    found = 0
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # it has just ended
            found += (thread / "comm").read_text().startswith("rdk:main")
    return found


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted where the system lists them")
@pytest.mark.parametrize(
    ("fault", "api"),
    [(LOSE_ANSWER, Api.END_TXN), (LOSE, Api.TXN_OFFSET_COMMIT), (CUT_OFF, Api.PRODUCE)],
    ids=lambda one: one.name if isinstance(one, Api) else str(one),
)
def test_a_renewed_producer_leaves_nothing_behind(kafka: str, fault: Fault, api: Api) -> None:
    async def work(log: Log, place: TopicPartition) -> bool:
        try:
            await log.begin()
            await log.send(Writes(place.topic, [place.partition], [b"k"], [b"v"], tracked=True))
            await log.send_offsets({place: Offset(0)})
            await log.commit()
        except Failure:
            await log.renew()  # while the failure is handled, as the protocol may do it
            return True
        return False

    with Proxy(kafka) as proxy:
        harness = RealHarness(proxy.address)
        log, place = harness.log("a"), TopicPartition(harness.topic(1), 0)
        assert not harness.run(work(log, place))
        gc.disable()  # what is in a cycle would be found in time, or later
        try:
            before = clients()
            for _ in range(TIMES):
                proxy.add(fault, api)
                assert harness.run(work(log, place)), "a connection broke"
            deadline = time.monotonic() + PATIENCE_S  # a call that was given up ends by itself
            while clients() > before and time.monotonic() < deadline:
                time.sleep(0.1)
            assert clients() == before
        finally:
            gc.enable()
            harness.close()
