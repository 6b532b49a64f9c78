"""Spark runs a task that seems slow a second time beside the first.

task ── init ── slice ── commit ········ delayed until the copy has come ········▶ fenced
copy ······································ init ── slice ── commit ── slice ── commit ── … ── done
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.connectors.spark.batch.speculating import RECORDS
from tests.connectors.spark.cluster.standalone import Standalone
from tests.connectors.spark.topics import Topic
from tests.faults.faults import Fault, Frame, Rule
from tests.faults.frames import Api, Request
from tests.faults.proxy import Proxy

SLOW = Fault(Frame.DELAY, seconds=40.0)


class TwoHosts(Standalone):
    """A copy of a task runs on another host than the task: each worker gives the same one another name."""

    def _start(self, main: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
        return super()._start(main, *arguments, *(["--host", "localhost"] if self._started == 2 else []))


class UntilCopied:
    """Commits of the large result partition, until a second publisher has come: after the first one's, one begins again."""

    committing = copied = False

    def __call__(self, request: Request) -> bool:
        if not request.transactional_id.endswith(".p0"):
            return False
        if request.api == Api.INIT_PRODUCER_ID:
            self.copied = self.committing
            return False
        self.committing = True
        return not self.copied


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """An epoch, in a driver of its own."""
    program = [sys.executable, "-m", "tests.connectors.spark.batch.speculating", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=800, check=False)


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.timeout(1800)
def test_copies_of_tasks_that_spark_begins_do_no_harm(topic: Callable[..., Topic], tmp_path: Path) -> None:
    source, sink, progress = topic("source"), topic("sink", 2), topic("progress", 5)
    source.send(["."])
    slow = UntilCopied()
    with TwoHosts(tmp_path) as cluster, Proxy(sink.brokers) as proxy:
        # Else the large one might be published before the other host has its first Python worker.
        proxy.rules.append(Rule(SLOW, [Api.INIT_PRODUCER_ID, Api.END_TXN], times=None, matches=slow))
        said = run(proxy.address, source.name, sink.name, progress.name, str(tmp_path), cluster.master)
    assert said.returncode == 0, said.stderr[-3000:]
    assert said.stdout.count("PUBLISHED") == 4
    events = [json.loads(line) for file in tmp_path.rglob("events*") if file.is_file() for line in file.open()]
    tasks = [e for e in events if e["Event"] == "SparkListenerTaskStart"]
    publishing = max(task["Stage ID"] for task in tasks)
    assert any(task["Task Info"]["Speculative"] for task in tasks if task["Stage ID"] == publishing)
    assert slow.copied
    values = sorted(f.value for f in sink.committed() if f.value is not None)
    assert values == sorted([b"1", b"2", b"3", *(b"%07d" % n for n in range(RECORDS))])
