"""The parts of a worker that stop by themselves, while its other parts go on (`on_failure="part"`).

                      an error of its own, here or in another worker
    RUNS ──────────────────────────────────────────────────────────────▶ ENDS
     ▲                                                                     │ nothing is under way any more
     │ its producer is made                                                ▼
    BEGINS ◀──────────────────────────── resumed ─────────────────────── STOPPED

A part ends as if a worker of its own had died: nothing is released, and whoever takes its tasks over decides what was under
way. So no other way to stop needs a proof. Its worker stays their owner in the group, and keeps what the group assigns
meanwhile until the part runs again: other workers would meet the same error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial

from falkirk.checkpoint.ids import Offset, TaskId
from falkirk.checkpoint.tasks import Task
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import FalkirkError, OutgrownError
from falkirk.runtime.messages.parts import STOP_THE_APP, PartRecord, StoppedPart, stopped_words
from falkirk.runtime.worker.domain import CommitDomain
from falkirk.runtime.worker.threads import ThreadPool
from falkirk.stream.stages.plan import Plan


class PartPhase(Enum):
    """What a part of this worker does, as drawn above."""

    RUNS = "runs"
    ENDS = "ends"
    STOPPED = "stopped"
    BEGINS = "begins"


@dataclass(slots=True)
class Part:
    """One stage of the flow, in this worker."""

    domain: CommitDomain
    phase: PartPhase = PartPhase.RUNS
    waiting: dict[int, Task] = field(default_factory=dict)
    """The group has assigned them while it does not run."""
    said: Future[Offset] | None = None
    """Where this worker's word that it has stopped is recorded, until that is heard."""
    begun: Future[None] | None = None
    """Its producer is made."""


class Parts:
    """All parts of one worker. Tasks are identified by their partitions of the steps topic."""

    def __init__(
        self, make: Callable[[str], CommitDomain], stop: Callable[[str, StoppedPart], Offset], worker: str, plan: Plan
    ) -> None:
        """`stop`: tells the other workers, and returns where that is recorded."""
        self._make, self._stop, self._worker = make, stop, worker
        self._app, self._on_failure = plan.app, plan.on_failure
        self._parts = {stage.id: Part(make(stage.id)) for stage in plan.stages}
        self._threads = ThreadPool(1, "falkirk-part")
        self.running = {stage: part.domain for stage, part in self._parts.items()}
        """The commit domains of the parts that run."""

    @contextmanager
    def guard(self, stage: str) -> Iterator[None]:
        """Does something for a part that runs. If it raises an error of the part's own, the part stops, and nothing is
        raised."""
        try:
            yield
        except FalkirkError as error:
            if self._on_failure == "app" or isinstance(error, STOP_THE_APP):
                raise
            stopped = StoppedPart.of(error, self._worker)
            self._parts[stage].said = self._threads.submit(partial(self._stop, stage, stopped))
            self._end(stage, stopped)

    # -- what the group says -------------------------------------------------------------------------------------------

    def assign(self, stage: str, tasks: Iterable[Task]) -> None:
        """The group assigns these tasks."""
        part = self._parts[stage]
        if part.phase is PartPhase.RUNS:
            part.domain.core.assign(tasks)
        else:
            part.waiting |= {task.steps.partition: task for task in tasks}

    def revoke(self, partitions: Mapping[str, Iterable[int]], *, clean: bool) -> None:
        """The group takes tasks away: returns when it can be answered. The domains that lose none commit too: what they have
        under way would not commit in a new generation of the group. Raises OutgrownError only when it can be answered, as
        the worker then leaves."""
        for stage, part in self._parts.items():
            lost = list(partitions.get(stage, ()))
            if part.phase is PartPhase.RUNS:
                part.domain.core.revoke(lost, clean=clean)
            for partition in lost:
                part.waiting.pop(partition, None)
        outgrown: OutgrownError | None = None
        while departing := {s: domain.performer for s, domain in self.running.items() if domain.performer.departing}:
            # Side by side: each has one transaction under way.
            for stage, performer in departing.items():
                try:
                    with self.guard(stage):
                        performer.perform()
                except OutgrownError as error:  # of a task that stays: these tasks leave first, and then all
                    outgrown = error
            for stage, performer in departing.items():
                if stage in self.running:
                    with self.guard(stage):
                        performer.wait()
        if outgrown is not None:
            raise outgrown

    # -- what the app's workers say ------------------------------------------------------------------------------------

    def tick(self, heard: Mapping[str, PartRecord]) -> None:
        """Stop and resume parts, as the control topic says. Raises ClusterError if other workers cannot be told of one that
        has stopped here."""
        for stage, part in self._parts.items():
            record = heard.get(stage)
            if part.said is not None:
                if not part.said.done() or record is None or record.offset < part.said.result():
                    record = None  # older than this worker's own word
                else:
                    part.said = None
            stopped = None if record is None else record.stopped
            if stopped is not None and part.phase is PartPhase.RUNS:
                self._end(stage, stopped)
            elif part.phase is PartPhase.ENDS and part.domain.over():
                part.phase = PartPhase.STOPPED
                logger.debug("part %s: nothing is under way any more", stage)
            elif part.phase is PartPhase.STOPPED and stopped is None and part.said is None:
                part.domain, part.phase = self._make(stage), PartPhase.BEGINS
                part.begun = part.domain.committer.begin()
                logger.debug("part %s: its producer is made", stage)
            elif part.phase is PartPhase.BEGINS and part.begun is not None and part.begun.done():
                self._begin(stage, part.begun)

    def _end(self, stage: str, why: StoppedPart) -> None:
        logger.error(stopped_words(self._app, stage, why.error), extra={"part": stage, "by": why.by})
        part = self._parts[stage]
        part.waiting |= part.domain.core.assigned
        part.phase = PartPhase.ENDS
        part.domain.end()
        del self.running[stage]

    def _begin(self, stage: str, begun: Future[None]) -> None:
        part = self._parts[stage]
        part.phase, part.begun = PartPhase.RUNS, None
        self.running[stage] = part.domain
        with self.guard(stage):
            begun.result()
            tasks, part.waiting = part.waiting, {}
            part.domain.core.assign(tasks.values())
            logger.info("part %s is resumed", stage, extra={"part": stage})

    # -- how they are --------------------------------------------------------------------------------------------------

    def stopped(self) -> tuple[str, ...]:
        """The parts that do not run here."""
        return tuple(stage for stage, part in self._parts.items() if part.phase is not PartPhase.RUNS)

    def waiting(self) -> list[TaskId]:
        """Their tasks that the group has assigned to this worker."""
        return [task.id for part in self._parts.values() for task in part.waiting.values()]

    def end(self) -> None:
        """The worker ends: wait for what is under way in parts that have failed, so that their stores can be closed."""
        self._threads.close()
        for part in self._parts.values():
            if part.phase is PartPhase.ENDS:
                part.domain.performer.finish()
                part.domain.over()
