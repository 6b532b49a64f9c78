"""A run in containers, under a load: each container is killed, paused and cut off, and a reader checks all that comes out.

broker, two workers ──▶ load and reader, on this host ──▶ each harm in turn, until every task puts out again and both workers
own some ──▶ the load ends, and all of it is settled ──▶ SIGTERM: exit code 0 ──▶ run --until end: adds nothing, exit code 0
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.containers.cluster import Containers
from tests.soak.check import specs
from tests.soak.consumers import PATIENT
from tests.soak.load import Sent
from tests.soak.reader import Status
from tests.soak.recovery import Recoveries, Wound
from tests.soak.system import Helper, now

from falkirk.connectors.embedded.recovery import FENCING
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.errors import FalkirkError

SPEC = specs.mixed
PARTITIONS = 2
RATE = 200
SEED = 5
SESSION_S = 3
"""Of the workers."""
AWAY_S = SESSION_S + 1
"""How long the broker is paused or cut off: the sessions of all workers end meanwhile, its own (9 s) does not."""
PATIENCE_S = 150.0
LOOK_S = 0.5
"""Between two looks at whether the containers run: to ask the engine costs more than to ask oneself."""
WORKERS = ("worker-1", "worker-2")


class Trial:
    """One run, from the first container to the last."""

    def __init__(self, containers: Containers, port: int, folder: Path) -> None:
        self.containers, self.brokers, self.folder = containers, f"127.0.0.1:{port}", folder
        self.recoveries = Recoveries()
        self.wounds: dict[str, Wound] = {}
        """By what was done."""
        self.exits: dict[str, int] = {}
        """By what was asked to end, with its exit code."""
        self.status = Status()
        self.examples: list[str] = []
        self.sent = 0
        self.load: Helper[Sent] | None = None
        self.reader: Helper[Status] | None = None
        self._running: set[str] = set()
        self._look_at = 0.0

    def go(self) -> None:
        """The whole of it. Raises AssertionError where it does not go on."""
        with ExitStack() as stack:
            stack.callback(self._keep_logs)
            self._begin(stack)
            first, second = WORKERS
            self._kill_worker(first)
            self._pause_worker(second)
            self._cut_worker(first)
            self._pause_broker()
            self._cut_broker()
            self._kill_broker()
            self._finish()

    def _begin(self, stack: ExitStack) -> None:
        for name in ("controller", "kafka"):
            self._start(name)
        admin = AdminClient({"bootstrap.servers": self.brokers, **PATIENT})
        self._until(lambda: _answers(admin), "the broker to answer")
        admin.create_topics([NewTopic("bids", PARTITIONS, 1)])["bids"].result()
        self.topics = Topics(Cluster(self.brokers))
        wanted = [self.brokers, "tests.soak.check.specs:mixed"]
        self.reader = Helper("tests.soak.reader", wanted, Status, self.folder / "reader.log")
        stack.callback(self.reader.kill)
        wanted = [self.brokers, "bids", str(SEED), str(RATE)]
        self.load = Helper("tests.soak.load", wanted, Sent, self.folder / "load.log")
        stack.callback(self.load.kill)
        for worker in WORKERS:
            self._start(worker)
        tasks = len(SPEC.stages) * PARTITIONS
        self._until(lambda: len(self.recoveries.owners) == tasks, f"the first output of {tasks} tasks")
        self._until(self._both_own, "both workers to own tasks")

    # -- what is done to it --------------------------------------------------------------------------------------------

    def _kill_worker(self, worker: str) -> None:
        """kill -9, and started again at once, as a pod is."""
        self._away(worker)
        self.containers.kill(worker)
        self._hurt(f"{worker} killed")
        self._start(worker)
        self._until_healed()

    def _pause_worker(self, worker: str) -> None:
        """Frozen until the other has all its tasks; then it wakes, and finds out."""
        self.containers.pause(worker)
        self._hurt(f"{worker} paused")
        self._until_healed()
        self.containers.wake(worker)
        self._until_back(worker)

    def _cut_worker(self, worker: str) -> None:
        """Off the network until the other has all its tasks; it works on, in vain."""
        self.containers.cut(worker)
        self._hurt(f"{worker} cut off")
        self._until_healed()
        self.containers.join(worker)
        self._until_back(worker)

    def _pause_broker(self) -> None:
        self.containers.pause("kafka")
        self._hurt("kafka paused")
        self._for(AWAY_S)
        self.containers.wake("kafka")
        self._until_healed()

    def _cut_broker(self) -> None:
        self.containers.cut("kafka")
        self._hurt("kafka cut off")
        self._for(AWAY_S)
        self.containers.join("kafka")
        self._until_healed()

    def _kill_broker(self) -> None:
        """kill -9; a new one before the controller has given it up might forget transactions (embedded/recovery.py)."""
        told = self.containers.log("controller").count(FENCING)
        self._away("kafka")
        self.containers.kill("kafka")
        self._hurt("kafka killed")
        self._until(lambda: self.containers.log("controller").count(FENCING) > told, "the broker to be given up")
        self._start("kafka")
        self._until_healed()

    def _finish(self) -> None:
        """No more input: all must come out, the workers must leave cleanly, and a run over nothing must add nothing."""
        load, reader = self.load, self.reader
        assert load is not None
        assert reader is not None
        load.stop()
        self._until(lambda: load.process.poll() is not None, "the generator to end")
        self._tick()
        reader.tell(f"drain {json.dumps({'bids': self.sent})}")
        self._until(lambda: self.status.drained, "all that was sent to be settled")
        for worker in WORKERS:
            self._away(worker)
            self.exits[worker] = self.containers.stop(worker)
        self.containers.start("run")
        self.exits["run"] = self.containers.wait("run", PATIENCE_S)
        reader.tell("finish")
        self._until(lambda: self.status.verdict, "the reader's verdict")

    # -- waiting -------------------------------------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self.containers.start(name)
        self._running.add(name)

    def _away(self, name: str) -> None:
        self._running.discard(name)

    def _hurt(self, what: str) -> None:
        self.wounds[what] = self.recoveries.hurt(what, now())

    def _until_healed(self) -> None:
        self._until(lambda: not self.recoveries.open, f"all tasks to put out again: {list(self.wounds)[-1]}")

    def _until_back(self, worker: str) -> None:
        self._until(self._both_own, f"{worker} to own tasks again")

    def _both_own(self) -> bool:
        """Nobody waits for anybody, and each worker has tasks."""
        try:
            group = self.topics.group(SPEC.app)
        except FalkirkError:
            return False
        owning = {member.host for member in group.members.values() if member.partitions}
        return group.stable and owning == {self.containers.address(worker) for worker in WORKERS}

    def _until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}; {self._words()}"
            self._tick()

    def _for(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._tick()

    def _tick(self) -> None:
        time.sleep(0.05)
        if self.load is not None and self.reader is not None:
            self._listen(self.load, self.reader)
        if time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + LOOK_S
            for name in self._running:
                self._look(name)

    def _listen(self, load: Helper[Sent], reader: Helper[Status]) -> None:
        for sent in load.news():
            self.sent = sent.acknowledged
        for status in reader.news():
            self.status = status
            self.recoveries.see(status.settled)
            self.examples = status.examples or self.examples
        assert not self.examples, self._words()

    def _look(self, name: str) -> None:
        code = self.containers.ended(name)
        assert code is None, f"{name} ended by itself with exit code {code}:\n{self.containers.log(name)[-4000:]}"

    def _keep_logs(self) -> None:
        for name, log in self.containers.logs().items():
            (self.folder / f"{name}.log").write_text(log)

    def _words(self) -> str:
        missing = [(wound.kind, wound.missing) for wound in self.recoveries.open]
        return f"found: {self.examples}; without output: {missing}; logs in {self.folder}"


def _answers(admin: AdminClient) -> bool:
    try:
        return bool(admin.list_topics(timeout=1).brokers)
    except KafkaException:
        return False
