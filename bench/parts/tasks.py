"""What a worker costs by the number of its tasks: to start, in memory, for each burst of rows, and to recover.

    alone       a task for each partition, which counts bids by their own key
    exchange    the same bids, counted by another key: each task sends rows to many tasks of a second stage

One worker has all tasks. A burst is 10,000 rows, however many tasks there are, and every task gets some of them. It is over
when a reader at read_committed has every count. Its CPU time is the worker's.
"""

from __future__ import annotations

import shutil
import time

import numpy as np
import orjson
import psutil
from confluent_kafka import Producer, TopicPartition

from falkirk.state.shards import murmur2, murmur2_partition
from harness.processes import Failed
from harness.setting import Results, Setting, summary
from workload.app import App, alive
from workload.arrivals import reader

FLOWS = {"alone": "eager", "exchange": "exchange"}
ROWS = 10_000
BURSTS = 5
PATIENCE_S = 300.0
MIB = 2**20


class Counts:
    """A reader of a job's output: how many rows are in it."""

    def __init__(self, brokers: str, topic: str, partitions: int, by: str) -> None:
        self._consumer, self._by, self._last = reader(brokers), by, dict[int, int]()
        self._consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
        self.rows = 0

    def until(self, rows: int) -> float:
        """Wait until so many rows are counted; return when they were, in seconds of the monotonic clock. Raises Failed."""
        deadline = time.monotonic() + PATIENCE_S
        while self.rows < rows:
            if time.monotonic() > deadline:
                raise Failed(f"{self.rows:,} of {rows:,} rows are counted after {PATIENCE_S:.0f} s")
            for message in self._consumer.consume(10_000, 0.02):
                if message.error() is not None:
                    raise Failed(str(message.error()))
                row = orjson.loads(message.value() or b"")
                self.rows += row["n"] - self._last.get(row[self._by], 0)
                self._last[row[self._by]] = row["n"]
        return time.monotonic()

    def close(self) -> None:
        """Read no longer."""
        self._consumer.close()


class Bursts:
    """Sends bursts of bids: to every partition some, each under a key that Java's producers would place there."""

    def __init__(self, brokers: str, topic: str, tasks: int) -> None:
        self._topic, self.sent = topic, 0
        self._producer = Producer(
            {"bootstrap.servers": brokers, "queue.buffering.max.messages": 10 * ROWS, "enable.idempotence": True}
        )
        keys = np.arange(20 * tasks)
        places = murmur2_partition(murmur2([b"%d" % key for key in keys.tolist()]), tasks)
        self._auctions = [int(keys[places == task][0]) for task in range(tasks)]
        self._random = np.random.default_rng(tasks)

    def send(self) -> float:
        """One burst; returns when it was sent, in seconds of the monotonic clock."""
        bidders = self._random.integers(0, ROWS, ROWS).tolist()
        for i, bidder in enumerate(bidders):
            task = i % len(self._auctions)
            auction = self._auctions[task]
            value = f'{{"auction":{auction},"bidder":{bidder},"price":{100 + i}}}'
            self._producer.produce(self._topic, value, str(auction), task)
        if self._producer.flush(60):
            raise Failed("a burst could not be sent")
        self.sent += ROWS
        return time.monotonic()


def measure(setting: Setting) -> Results:
    """Both flows, all numbers of tasks."""
    cases = []
    with setting.screen.part(len(setting.sizes.tasks) * len(FLOWS)):
        for tasks in setting.sizes.tasks:
            for kind in FLOWS:
                setting.screen.doing(f"{kind}: a source of {tasks:,} partitions")
                rest = setting.rest()
                case = {"kind": kind, "tasks": tasks, **run(setting, kind, tasks), **rest}
                setting.screen.done(sentence(case))
                cases.append(case)
    return {"rows": ROWS, "cases": cases}


def run(setting: Setting, kind: str, tasks: int) -> Results:
    """One flow with one number of tasks. Raises Failed."""
    kafka, name = setting.kafka, setting.name(f"tasks-{kind}-{tasks}")
    source, target = f"{name}.in", f"{name}.out"
    kafka.make(source, partitions=tasks)
    kafka.make(target)
    app = App(setting.processes, kafka.brokers, setting.folder, FLOWS[kind], name, source, target)
    bursts = Bursts(kafka.brokers, source, tasks)
    counts = Counts(kafka.brokers, target, 4, "auction" if kind == "alone" else "bidder")
    bursts.send()
    app.until_end(PATIENCE_S)  # its topics and stores are made
    counts.until(bursts.sent)
    bursts.send()
    began = time.monotonic()
    app.start()
    started = counts.until(bursts.sent) - began
    walls, cpus = [], []
    for _ in range(BURSTS):
        time.sleep(1)
        worker = psutil.Process(app.worker_pids()[0])
        before, sent = sum(worker.cpu_times()[:2]), bursts.send()
        walls.append(counts.until(bursts.sent) - sent)
        time.sleep(1)  # what follows the last commit belongs to the burst, too
        cpus.append(sum(worker.cpu_times()[:2]) - before)
    time.sleep(1)
    idle = _cpu(worker, 5.0)
    memory = worker.memory_info().rss
    killed = time.monotonic()
    app.kill_worker()
    bursts.send()
    recovered = counts.until(bursts.sent) - killed
    counts.close()
    app.kill_all()
    while alive(worker):
        time.sleep(0.01)
    kafka.delete(name)
    shutil.rmtree(app.state, ignore_errors=True)
    return {
        "start_s": round(started, 2),
        "memory_mib": round(memory / MIB),
        "burst_s": summary(walls, 3),
        "burst_cpu_s": summary(cpus, 3),
        "idle_cores": round(idle, 3),
        "recovery_s": round(recovered, 2),
    }


def _cpu(process: psutil.Process, seconds: float) -> float:
    """Cores that a process uses when there is nothing to do."""
    before = sum(process.cpu_times()[:2])
    time.sleep(seconds)
    return (sum(process.cpu_times()[:2]) - before) / seconds


def sentence(case: Results) -> str:
    """A case in a line."""
    return (
        f"{case['kind']:<9}{case['tasks']:>6,} partitions   start {case['start_s']:.1f} s, {case['memory_mib']:,} MiB, "
        f"burst [bold]{case['burst_s']['median']:.2f}[/] s and {case['burst_cpu_s']['median']:.2f} s of CPU, "
        f"idle {case['idle_cores']:.2f} cores, recovery {case['recovery_s']:.1f} s"
    )
