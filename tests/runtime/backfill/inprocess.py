"""A backfill computed in this process: what Spark's tasks do, one after the other, with a word after each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import polars as pl
import pytest

from falkirk.connectors.spark.epochs import epoch, tasks
from falkirk.connectors.spark.epochs.results import by_partition
from falkirk.connectors.spark.epochs.work import Published, Work
from falkirk.runtime.epochs.spark import SparkCompute
from falkirk.stream.backfill import BackfillJob
from falkirk.stream.batch import PARCELS
from falkirk.testing.batch import SORTED


class InProcess:
    """In the place of Spark. `told` is called after each task, and may raise."""

    def __init__(self, folder: str, patch: pytest.MonkeyPatch) -> None:
        self.told: Callable[[str], object] = lambda _: None
        patch.setenv("SPARK_LOCAL_DIRS", folder)
        patch.setattr(epoch, "run_epoch", self.run_epoch)
        patch.setattr(SparkCompute, "_spark", lambda _: self)
        patch.setattr(SparkCompute, "close", lambda _: None)

    @contextmanager
    def at_work(self) -> Iterator[tuple[None, Callable[[], None]]]:
        yield None, lambda: None

    def run_epoch(
        self, _: None, job: BackfillJob, *, cluster: Any, pieces: Sequence[Any], topic_ids: Any, headers: Any, ghosts: Any,
        publishing: Any, on_progress: Any, checkpoints: str,
    ) -> list[Published]:  # fmt: skip
        shares = [*pieces, *epoch._cut(ghosts), None]
        work = Work(job, cluster, shares, topic_ids, headers, publishing, checkpoints)
        frames: list[pl.DataFrame] = []
        for share in shares:
            frames += [pl.DataFrame(f, schema=PARCELS) for f in tasks._share(work, share)]
            self.told("head")
        for n in range(1, job.levels + 1):
            reads, keeper = partial(tasks._records, work), tasks._keeper(work)
            frames = list(job.level(n, [pl.concat(frames).sort(SORTED, nulls_last=False)], reads, keeper))
            self.told("level")
        rows = pl.concat(frames).sort("bucket", "exchange", "key", "order", nulls_last=False)
        found = []
        for number, own in by_partition([rows]):
            found.append(tasks._publish(work, number, own))
            self.told("publish")
        return found
