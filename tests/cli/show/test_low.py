"""`falkirk status` on a real app: how far back a failure would take each task, and what holds that back."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.cli.test_app import Running
from tests.waiting import PATIENCE_S

from falkirk.checkpoint.ids import TopicPartition
from falkirk.cli.main import falkirk
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.progress import first_steps

pytestmark = pytest.mark.kafka

FLOW = """
from __future__ import annotations
import falkirk as fk

flow = fk.Flow("{name}", regime=fk.EagerCheckpoint(every="1s"))
bids = flow.source("{prefix}bids", key="auction", value=fk.Json({{"auction": fk.Int64}}))
counts = bids.group_by("auction", id="counts").agg(n=fk.len())
counts.sink_parquet("archive", "files", every="1h", changes=True)
often = counts.with_regime(fk.LazyCheckpoint(every="1h")).group_by("auction", id="often").agg(k=fk.max("n"))
often.sink("{prefix}often", key="auction", value=fk.Json())
"""
Low = dict[str, dict[str, Any]]


class Living(Running):
    """An app that runs, and what its status says."""

    def __init__(self, brokers: str, prefix: str, folder: Path) -> None:
        super().__init__(brokers, prefix, folder)
        (folder / "app.py").write_text(FLOW.format(name=self.name, prefix=prefix))
        self.copies = folder / "copies"

    def live(self) -> subprocess.Popen[str]:
        command = ["run", "app.py:flow", "--brokers", self.brokers, "--checkpoints", self.copies.as_uri()]
        process = subprocess.Popen(
            [sys.executable, "-m", "falkirk", *command], cwd=self.folder, text=True, stdout=subprocess.DEVNULL
        )
        self.processes.append(process)
        return process

    def status(self, *options: str) -> str:
        return CliRunner().invoke(falkirk, ["status", self.name, "--brokers", self.brokers, *options]).output

    def low(self, holds: Callable[[Low], object], feeds: int = 0) -> Low:
        """The low-watermarks, as soon as this holds, while bids come."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            said = self.status("--json")
            if said.startswith("{") and holds(low := {one["of"]: one for one in json.loads(said)["low"]}):
                return low
            assert time.monotonic() < deadline, said
            self.feed(feeds)
            time.sleep(0.5)

    def copied(self, task: str) -> list[int]:
        """The steps of the versions that the checkpoint store has."""
        return sorted(int(path.stem) for path in self.copies.glob(f"*/*/{task}/versions/*.json"))


def holds(low: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {hold["what"]: hold for hold in low["held_by"]}


@pytest.fixture
def app(kafka: str, topic_prefix: str, tmp_path: Path) -> Iterator[Living]:
    running = Living(kafka, topic_prefix, tmp_path)
    yield running
    running.close()


@pytest.mark.slow
def test_what_no_failure_takes_back_is_shown_with_what_holds_it_back(app: Living) -> None:
    counts, often = [f"counts/{p}" for p in (0, 1)], [f"often/{p}" for p in (0, 1)]
    run = app.live()
    waits = {"reader", "outlet"}
    app.low(lambda low: all(t in low and low[t]["at"] and waits <= holds(low[t]).keys() for t in counts), feeds=50)
    low = app.low(lambda low: all("idle" in holds(low[task]) for task in counts))
    # The sink writes at its start, which may come after the first rows, and then once an hour.
    while not all("outlet" in holds(low[task]) for task in counts):
        app.feed(50)
        low = app.low(lambda low: all("idle" in holds(low[task]) for task in counts))
    steps = [TopicPartition(f"falkirk.{app.name}.steps", p) for p in (0, 1)]
    kept = first_steps(Settings(app.brokers, str(app.folder)), steps)
    for task, first in zip(counts, kept, strict=True):
        older, newer = app.copied(task)[-2:]
        assert (low[task]["at"], holds(low[task])["idle"]["at"]) == (older, newer)
        assert first is not None
        assert first.step == older
        assert low[task]["age_s"] > holds(low[task])["idle"]["age_s"]
        assert (reader := holds(low[task])["reader"])["by"] in often
        assert (reader["at"], reader["why"]) == (None, "lazy")
        assert holds(low[task])["outlet"]["by"] == "archive"
    for task in often:
        assert low[task]["at"] is None
        assert low[task]["held_by"] == [{**holds(low[task])["version"], "by": task, "at": None}]

    said = app.status()
    assert re.search(r"low-watermark of counts: step \d+ of counts/\d, .* held back by counts/\d: no step has", said), (
        said
    )
    assert re.search(r"all that it sent stays for often/\d \(lazy\)\n", re.sub(r" +\n", "\n", said)), said
    assert re.search(r"what it sent waits for sink archive: \d+ records at most", said), said
    assert re.search(
        r"low-watermark of often: none yet in often/\d, held back by the next version of often/\d", said
    ), said

    run.send_signal(signal.SIGTERM)
    assert run.wait(PATIENCE_S) == 0
    after = app.low(lambda low: all("worker" in holds(low[task]) for task in counts + often))
    for task in counts:
        assert after[task]["at"] == low[task]["at"]
        assert "outlet" not in holds(after[task])  # what was left was written at the end
