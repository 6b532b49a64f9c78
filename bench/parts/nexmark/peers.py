"""NexMark's peers, beside Falkirk: one process each, its state in RocksDB, exactly-once into a topic.

- Flink SQL (`flink.py`): parallelism 1, a checkpoint as often as Falkirk commits.
- Kafka Streams (peers/kstreams, the package nexmark): EOS v2, one thread, a cache of 64 MiB, a commit as often. It is written
  in the DSL, with a processor where that has no word for a query. Query 6 is not here: of a seller's last ten sales one can
  be replaced, so all sales would have to be kept.
- Quix Streams (peers/nexmark_quix.py): a commit as often, no cache. Queries 4, 5, 6, 7 and 11 are not here: they need rows
  that delete rows, or more than one exchange. Nor is 13: it can look up in a database, but not in a topic.

A peer ends by itself when all that was in the topics at the start is processed and committed.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from falkirk.connectors.java import find_java
from falkirk.durations import duration
from harness.broker import Kafka
from harness.environments import Missing, class_path, python_with
from harness.processes import BENCH, Process
from harness.setting import Setting
from parts.nexmark.flink import QUERIES, statements
from parts.nexmark.report import PEERS

CAN = {
    "flink": frozenset(QUERIES),
    "kstreams": frozenset({0, 1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22}),
    "quix": frozenset({0, 1, 2, 3, 8, 9, 12, 14, 15, 16, 17, 18, 19, 20, 22}),
}
"""The queries that a peer has."""
HEAP = "-Xmx1g"

Start = Callable[[int, str], Process]
"""Starts a query, given its number and its target topic."""
Job = Callable[[Kafka], Start]
Arguments = Callable[[str, int, str, Path], list[str]]
"""A peer's, given the brokers, the query's number, its target topic and a folder."""


def available(setting: Setting, interval: str) -> tuple[dict[str, Job], list[str]]:
    """The peers that can be run here, and why the others cannot."""
    made = {"flink": flink, "kstreams": kstreams, "quix": quix}
    jobs, skipped = {}, []
    for name, job in made.items():
        try:
            jobs[name] = job(setting, interval)
        except Missing as reason:
            skipped.append(f"{PEERS[name]} ({reason})")
    return jobs, skipped


def flink(setting: Setting, interval: str) -> Job:
    """Raises Missing."""

    def arguments(brokers: str, number: int, target: str, folder: Path) -> list[str]:
        file = folder / "query.sql"
        file.write_text(statements(number, brokers, target))
        return [str(file), str(folder / "checkpoints"), interval]

    return _job(setting, _java(class_path("flink"), "Statements"), arguments)


def kstreams(setting: Setting, interval: str) -> Job:
    """Raises Missing."""
    return _job(setting, _java(class_path("kstreams"), "nexmark.NexMark"), _of_program(interval))


def quix(setting: Setting, interval: str) -> Job:
    """Raises Missing."""
    command = [str(python_with("quixstreams")), str(BENCH / "peers" / "nexmark_quix.py")]
    return _job(setting, command, _of_program(interval))


def _of_program(interval: str) -> Arguments:
    """Those of a program that has all of a peer's queries: BROKERS QUERY TARGET COMMIT_MS FOLDER."""
    commit = str(duration(interval) // timedelta(milliseconds=1))
    return lambda brokers, number, target, folder: [brokers, str(number), target, commit, str(folder)]


def _job(setting: Setting, command: list[str], arguments: Arguments) -> Job:
    """A process for each query, in a new folder."""

    def job(kafka: Kafka) -> Start:
        def start(number: int, target: str) -> Process:
            folder = setting.folder / target
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            return setting.processes.start(target, [*command, *arguments(kafka.brokers, number, target, folder)])

        return start

    return job


def _java(path: str, main: str) -> list[str]:
    return [str(find_java().executable), HEAP, "-cp", path, main]
