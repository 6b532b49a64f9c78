"""`--until end`: when is everything that was in the sources at the start processed and committed?

    target(source partition) = its high watermark at the start
    target(edge partition)   = its high watermark once all tasks that write the edge are done
    done(task)               = no committed record is left between its last step's end and its targets, none was deleted
                               there, and nothing is left to migrate or rebuild; or its part has stopped by itself

Control records count in watermarks but are never read, so the last part is checked, not computed. An open transaction
in a source is waited for, no matter whose it is: what it holds may be committed, and was there at the start.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from falkirk.checkpoint.ids import Offset, TaskId, TopicPartition
from falkirk.checkpoint.reading import decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.checkpoint.tasks import ends
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.control import LAYOUT, Tail
from falkirk.connectors.kafka.client.config import Cluster
from falkirk.connectors.kafka.reading.committed import CommittedReader
from falkirk.connectors.kafka.reading.held import Waits
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.runtime.app.app import App, BoundTask
from falkirk.runtime.layout.progress import is_moving
from falkirk.runtime.messages.requests import CurrentRequests
from falkirk.stream.stages.plan import Stage

PERIOD = 0.2
"""Seconds between two reads of the steps topic."""
QUIET = 0.5
"""If a task's last step is older than this and it is not done, its inputs are checked record by record."""


class UntilEnd:
    """Follows the steps topic."""

    def __init__(
        self,
        app: App,
        cluster: Cluster,
        topics: Topics,
        targets: Mapping[TopicPartition, Offset] | None = None,
        stages: Collection[Stage] | None = None,
    ) -> None:
        """`targets`: where the sources end, if that is already known. `stages`: only these, and all before them."""
        self._app, self._topics = app, topics
        self._tasks = [b for b in app.tasks if stages is None or b.stage in stages]
        self._reader, self._inputs = BoundedReader(cluster), CommittedReader(cluster)
        self._stages = {stage.id: stage for stage in app.recorded.stages}
        self._targets: dict[TopicPartition, Offset] = {}
        self._done: set[TaskId] = set()
        self._last: dict[TaskId, StepRecord] = {}
        self._moved: dict[TaskId, float] = {}
        self._looked = 0.0
        self._requests, self._stopped = CurrentRequests(), frozenset[str]()
        # Whatever the flow says now: a part may have stopped when it said on_failure="part", and stays so.
        self._control = Tail(cluster, TopicPartition(app.control, LAYOUT))
        self._waits, self._waiting = Waits(cluster), dict[TopicPartition, Offset]()
        places = [b.task.steps for b in self._tasks]
        self._positions = dict(self._reader.watermarks(places, end=False))
        sources = {i.place for b in self._tasks for i in b.inputs if i.input.kind == "source"}
        self._of_sources = topics.offsets(sources, "latest") if targets is None else dict(targets)
        self._targets |= self._of_sources
        self._first = topics.offsets(sources, "earliest")

    def finished(self) -> bool:
        """Whether every task is done. Cheap to ask often."""
        now = time.monotonic()
        if now - self._looked < PERIOD:
            return all(map(self._over, self._tasks))
        self._looked = now
        self._follow(now)
        self._note_stopped()
        self._waiting = {}
        for stage in self._app.plan.stages:  # upstream first: an edge's target needs its writers to be done
            tasks = [b for b in self._tasks if b.stage is stage and not self._over(b)]
            for bound in tasks:
                if self._has_targets(bound) and self._is_done(bound, now):
                    self._done.add(bound.task.id)
        self._waits.note(self._waiting)
        return all(map(self._over, self._tasks))

    def _over(self, bound: BoundTask) -> bool:
        return bound.task.id in self._done or bound.stage.id in self._stopped

    def _note_stopped(self) -> None:
        """Which parts have stopped by themselves: nothing is waited for there. If one is resumed, what reads from it is not
        done any more."""
        for record in self._control.look():
            self._requests = self._requests.after(record)
        if (stopped := frozenset(self._requests.stopped())) != self._stopped:
            self._stopped, self._targets = stopped, dict(self._of_sources)
            self._done.clear()

    def progress(self) -> tuple[int, int]:
        """Input records processed, and in total: offsets of the sources. May be called from another thread."""
        got: dict[TopicPartition, Offset] = {}
        for bound in self._tasks:
            last = self._last.get(bound.task.id)
            at = ends(last) if last else {}
            for i in bound.inputs:
                if i.input.kind == "source":
                    first, target = self._first[i.place], self._targets[i.place]
                    # A done stage counts as done, even if a transaction's marker is left, which is not a record.
                    reached = target if bound.task.id in self._done else at.get(i.partition, first)
                    slowest = got.get(i.place, target)  # of the stages that read it
                    got[i.place] = min(max(reached, first), slowest)
        return (
            sum(at - self._first[place] for place, at in got.items()),
            sum(self._targets[place] - self._first[place] for place in got),
        )

    def _follow(self, now: float) -> None:
        marks = self._reader.watermarks(list(self._positions), end=True)
        behind = {p: (at, marks[p]) for p, at in self._positions.items() if at < marks[p]}
        if not behind:
            return
        for place, read in self._reader.read(behind, committed=True).items():
            self._positions[place] = max(self._positions[place], read.position)
            task = self._app.tasks[place.partition].task.id
            for _, record in decoded(read):
                if isinstance(record, StepRecord):
                    self._last[task], self._moved[task] = record, now

    def _has_targets(self, bound: BoundTask) -> bool:
        missing = [i for i in bound.inputs if i.place not in self._targets]
        for i in missing:
            writers = {s.id for s in self._app.plan.stages if any(o.topic == i.place.topic for o in s.outputs)}
            if not all(self._over(b) for b in self._tasks if b.stage.id in writers):
                return False
        self._targets |= self._topics.offsets({i.place for i in missing}, "latest")
        return True

    def _is_done(self, bound: BoundTask, now: float) -> bool:
        last = self._last.get(bound.task.id)
        if last is None:
            return False
        at = ends(last)
        if is_moving(self._stages[bound.stage.id], last):
            return False  # what it has read is not in its state yet
        if any(i.partition not in at for i in bound.inputs):
            return False  # a topic is joining, and the next step says so
        left = {i.place: (at[i.partition], self._targets[i.place]) for i in bound.inputs}
        left = {p: (a, b) for p, (a, b) in left.items() if a < b}
        sources = {i.place for i in bound.inputs if i.input.kind == "source"}
        self._waiting |= {p: a for p, (a, _) in left.items() if p in sources}
        if left and now - self._moved[bound.task.id] < QUIET:
            return False
        # One record that is left says as much as a million. If records were deleted before they were read, the task's worker
        # raises that.
        return not left or (
            all(not read.records and read.position >= left[p][1] for p, read in self._inputs.read(left, most=1).items())
            and all(first <= left[p][0] for p, first in self._topics.offsets(left, "earliest").items())
        )

    def close(self) -> None:
        """Close the connections."""
        self._control.close()
        self._reader.close()
        self._inputs.close()
