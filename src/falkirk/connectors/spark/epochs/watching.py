"""A Spark job under watch: its progress, and its end if nobody needs it any more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import NamedTuple, TypeVar
from uuid import uuid4

from pyspark import SparkContext

from falkirk.connectors.spark.epochs.failures import failure

T = TypeVar("T")

EVERY = 0.25
"""Seconds between two looks."""


class Progress(NamedTuple):
    """The progress of a job's running part."""

    what: str
    done: int
    """Tasks."""
    tasks: int


OnProgress = Callable[[Progress], object]


def watched(spark: SparkContext, what: str, names: Sequence[str], action: Callable[[], T], tell: OnProgress) -> T:
    """What `action` returns, which is one job of stages called `names`, in order.

    `tell` is called every moment, in this thread; what it raises cancels the job, and is raised here. Raises FalkirkError
    if the job fails.
    """
    group = f"{what} {uuid4().hex[:8]}"

    def run() -> T:
        spark.setJobGroup(group, what, interruptOnCancel=True)
        return action()

    with ThreadPoolExecutor(1, "falkirk-spark") as aside:
        running = aside.submit(run)
        try:
            while not _ended(running):
                if (progress := _progress(spark, group, names)) is not None:
                    tell(progress)
        except BaseException:
            while not _ended(running):  # the first call does not cancel a job that is about to begin
                spark.cancelJobGroup(group)
            raise
        try:
            return running.result()
        except Exception as error:
            raise failure(error, what) from error


def _ended(running: Future[T]) -> bool:
    try:
        running.exception(EVERY)
    except NotYet:
        return running.done()
    return True


def _progress(spark: SparkContext, group: str, names: Sequence[str]) -> Progress | None:
    """Stages are numbered upstream first: report the first that is not done."""
    tracker = spark.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(group))
    stages = sorted(stage for job in jobs if job is not None for stage in job.stageIds)
    told = None
    for name, stage in zip(names, stages, strict=False):
        if (info := tracker.getStageInfo(stage)) is not None:
            told = Progress(name, info.numCompletedTasks, info.numTasks)
            if info.numCompletedTasks < info.numTasks:
                break
    return told
