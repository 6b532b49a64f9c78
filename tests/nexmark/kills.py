"""Runs a query to its end, with kills on the way, and reads what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import duckdb
import polars as pl
import psutil
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.reading import read_topics
from tests.stream.operators.against import Row, shown

FOLDER = Path(__file__).parents[2] / "examples" / "nexmark"
sys.path.insert(0, str(FOLDER))

import answers  # noqa: E402
import fill  # noqa: E402
import queries  # noqa: E402

import falkirk as fk  # noqa: E402


def tables(count: int) -> dict[str, pl.DataFrame]:
    """All rows of each topic."""
    found: dict[str, list[pl.DataFrame]] = {}
    for topic, frame in fill.frames(count):
        found.setdefault(topic, []).append(frame)
    return {topic: pl.concat(frames) for topic, frames in found.items()}


@dataclass
class Trial:
    """One query over filled topics."""

    brokers: str
    folder: Path
    number: int
    regime: str
    rows: int
    """Records of a step at most: the smaller, the more steps there are to kill."""
    app: str = field(default_factory=lambda: f"nexmark-{uuid4().hex[:8]}")
    kills: list[str] = field(default_factory=list)
    """What was killed, and after how many records of steps topics."""

    @property
    def target(self) -> str:
        return f"{self.app}-out"

    def run(self, kills: int, every: int, timeout: float) -> None:
        """To the end. Each time that the steps topic has grown by `every` records, kill -9 a worker, or everything."""
        # Its records have the times of the events, which are years ago: a broker that looks would delete them.
        kept = NewTopic(self.target, 2, config={"retention.ms": "-1"})
        admin = AdminClient({"bootstrap.servers": self.brokers})
        admin.create_topics([kept])[self.target].result()
        end, process = time.monotonic() + timeout, self._start()
        while (code := process.poll()) != 0:
            assert time.monotonic() < end, f"query {self.number} is not done after {timeout:.0f} s, {self.kills}"
            if code is not None:
                assert code == -signal.SIGKILL, self._words()
                process = self._start()
            if len(self.kills) < kills and self.steps() >= every * (len(self.kills) + 1):
                self._kill(process)
            time.sleep(0.02)

    def steps(self) -> int:
        """How many records the steps topic has."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "steps"})
        topic = f"falkirk.{self.app}.steps"
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            return sum(consumer.get_watermark_offsets(TopicPartition(topic, p), 10)[1] for p in partitions)
        except KafkaException:
            return 0  # it is not there yet
        finally:
            consumer.close()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "falkirk", "run", f"{FOLDER / 'app.py'}:flow", "--brokers", self.brokers]
        environment = {
            "NEXMARK_QUERY": str(self.number), "NEXMARK_REGIME": self.regime, "NEXMARK_STEP": "20ms",
            "NEXMARK_ROWS": str(self.rows), "NEXMARK_APP": self.app, "NEXMARK_TARGET": self.target,
        }  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--state-dir", str(self.folder), "--until", "end"],
                stdout=log, stderr=log, env={**os.environ, **environment},
            )  # fmt: skip

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        children = psutil.Process(process.pid).children(recursive=True)
        everything = len(self.kills) % 2 == 0
        if not everything:
            lock = self.folder / self.app / "worker-0" / "lock"
            with suppress(FileNotFoundError, ValueError):
                pid = int(lock.read_text())
                children = [child for child in children if child.pid == pid]
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        if everything:
            process.kill()
            process.wait()
        self.kills.append(f"{'all' if everything else 'a worker'} after {self.steps()}")

    def late(self) -> list[str]:
        """What the workers logged of rows that came too late: a missing row may be one of them."""
        return [line for line in (self.folder / "log").read_text().splitlines() if "too late" in line]

    def _words(self) -> str:
        return (self.folder / "log").read_text()[-2_000:]

    def faults(self, inputs: dict[str, pl.DataFrame]) -> dict[str, Counter[Row]]:
        """Rows that should not be there, and rows that are missing, compared with DuckDB."""
        stream, key = queries.QUERIES[self.number](queries.Streams(fk.Flow("f")))
        columns = list(stream.schema)
        records = list(self._read())
        rows = list(dict(records).values()) if key is not None else [value for _, value in records]
        found = Counter(shown([json.loads(row)[c] for c in columns]) for row in rows if row is not None)
        with duckdb.connect() as db:
            for name, frame in inputs.items():
                db.register(name, frame.to_arrow())
            answer = db.execute(f"select {', '.join(columns)} from ({answers.ANSWERS[self.number]})").fetchall()
        wanted = Counter(map(shown, answer))
        return {"too many": found - wanted, "missing": wanted - found}

    def _read(self) -> Iterator[tuple[bytes | None, bytes | None]]:
        """Every committed record of the target, partition by partition in order."""
        for message in read_topics(self.brokers, self.target, whole=True):
            yield message.key(), message.value()
