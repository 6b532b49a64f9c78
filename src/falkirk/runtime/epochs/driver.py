"""The driver of one batch part: it opens epochs, has Spark compute them, and ends them.

              due, or asked for                      every result partition published
    WAITING ─────────────────────▶ open, RUNNING ──────────────────────────────────────▶ completed, WAITING
       ▲                               │ a person asks to abandon it
       └── abandoned ◀── every result partition closed

The log alone decides its next action. So another driver can follow a dead one at any point; two at once do no harm
(`falkirk.checkpoint.epochs`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Abandoned, Completed, Epochs, Opened, catch_up, division, fresh, propose
from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.checkpoint.publishing import Outcome, Part, PartitionProgress, Published
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog, close_part, publisher
from falkirk.connectors.kafka.client.config import Cluster, logger
from falkirk.errors import SourceError, StateError, UnreachableError
from falkirk.runtime.app.batch_part import BoundBatch
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import host_name
from falkirk.runtime.layout.compatibility import check_topics
from falkirk.runtime.layout.layout import LayoutRecord
from falkirk.runtime.messages.deleted import gone_error, gone_of, offsets, skipping, unread_and_gone
from falkirk.runtime.messages.protocol import EpochReport
from falkirk.stream.backfill import BackfillJob
from falkirk.stream.batch import BatchStage, Job
from falkirk.wording import counted, listed

LOOK = 1.0
"""Seconds between two checks whether an epoch is due."""
WATCH = 10.0
"""Seconds between two checks that the topics which are read are the same, while no epoch is due."""
MISSING = 5.0
"""Seconds for which a topic is looked for: a broker that has just started may not know all of them."""


class Stopped(Exception):
    """The driver must stop, or its work is void: others have ended the epoch, or will."""


Tell = Callable[[EpochReport], None]
Standings = Mapping[TopicPartition, tuple[PartitionProgress | None, Offset]]
"""The state of result partitions, each with the position of the record that tells it."""
State = Literal["opened", "running", "complete", "abandoned"]


class Compute(Protocol):
    """Computes an epoch and publishes it; `falkirk.connectors.spark.epochs` does."""

    @property
    def ui(self) -> str:
        """Where people can watch it work; "" if nowhere."""
        ...

    def __call__(
        self, batch: BoundBatch, epochs: Epochs, job: Job | BackfillJob, on_progress: Callable[[str, int, int], None]
    ) -> Sequence[Outcome]:
        """The outcome of each result partition. An exception of `on_progress` ends it, and is raised here."""
        ...


class Driver:
    """Drives one batch part until it is stopped."""

    def __init__(
        self,
        app: str,
        batch: BoundBatch,
        cluster: Cluster,
        topics: Topics,
        compute: Compute,
        tell: Tell,
        *,
        until_end: bool = False,
        transaction_timeout_ms: int = 60_000,
        known: LayoutRecord | None = None,
    ) -> None:
        """`until_end`: it ends when an epoch has read all that is in the sources now. `known`: the app's layout. What is
        read must stay as it says."""
        self._app, self._batch, self._cluster, self._topics = app, batch, cluster, topics
        self._compute, self._tell = compute, tell
        self._stopping: Callable[[], bool] = lambda: False
        self._target = batch.ends(topics) if until_end else None
        self.done = False
        self._transaction_timeout_ms = transaction_timeout_ms
        self._log = KafkaEpochLog(cluster)
        self._clock = WallClock()
        self._looked = 0.0
        read = {place.topic for place in batch.places.values()}
        topics_read = {} if known is None else {name: topic for name, topic in known.topics.items() if name in read}
        self._known = None if known is None else msgspec.structs.replace(known, topics=topics_read)
        self._watched = time.monotonic()

    @property
    def part(self) -> str:
        """The name of the batch part."""
        return self._batch.stage.id

    def drive(self, stopping: Callable[[], bool]) -> None:
        """Take the next action, again and again, until all is done or `stopping()`. Raises FalkirkError for what no retry can
        fix."""
        self._stopping = stopping
        epochs, said = Epochs(), ""
        while not stopping():
            try:
                self._catch_up(epochs)
                if epochs.abandon:
                    self._abandon(epochs)
                elif epochs.open:
                    self._run(epochs)
                elif self._finished(epochs):
                    self.done = True
                    return
                else:
                    # First: of a topic that is gone nobody can say whether an epoch is due.
                    if time.monotonic() - self._watched > WATCH:
                        self._watch()
                    if self._target is not None or self._due(epochs):
                        self._open(epochs)
                    else:
                        time.sleep(LOOK)
                said = ""
            except UnreachableError as error:
                if said != error.what:  # once is enough, however long it lasts
                    logger.warning("batch part %s waits: %s", self._batch.stage.id, error)
                said = error.what
                time.sleep(LOOK)

    def close(self) -> None:
        """Close the connections."""
        self._log.close()

    def _catch_up(self, epochs: Epochs) -> None:
        run(catch_up(self._log, self._batch.openings, epochs))

    @property
    def definition(self) -> str:
        """What an epoch is an epoch of."""
        return "that definition"

    @property
    def abandoning(self) -> str:
        """The command that gives an epoch up."""
        return f"falkirk epoch {self._app} {self._batch.stage.id} --abandon"

    def _finished(self, epochs: Epochs) -> bool:
        """Whether nothing is left to drive."""
        return self._target is not None and epochs.reaches(self._target, self._batch.stage.fingerprint)

    def _due(self, epochs: Epochs) -> bool:
        stage, new = self._batch.stage, 0
        if not epochs.asked and stage.regime.every is not None:
            new = fresh(epochs, self._batch.ends(self._topics), self._batch.starts(self._topics, epochs))
        return epochs.due(self._clock.now(), stage.regime.every, new, stage.fingerprint)

    def _open(self, epochs: Epochs) -> None:
        """Record what the epoch reads, before any of it exists. Raises SourceError if some of it was deleted."""
        self._watch()
        batch, topics = self._batch, self._topics
        starts = batch.starts(topics, epochs)
        if batch.stage.regime.history == "new" and (gone := unread_and_gone(epochs, starts)):
            raise gone_error(self._app, self.part, gone)
        outputs = batch.output_ends(topics)
        read = division(epochs, batch.stage.regime.history, starts, batch.ends(topics))
        who = f"{host_name()} {os.getpid()}"
        adds = batch.stage.regime.history == "new"
        fingerprint = batch.stage.fingerprint
        opened = Opened(epochs.next, self._clock.now(), read, outputs, fingerprint, who, adds, batch.stages)
        run(propose(self._log, batch.openings, epochs, opened))

    def _watch(self) -> None:
        """Raises SourceError if a topic that is read has more partitions than the app knows, which no epoch would read; or if
        it was made again, and its offsets mean other records."""
        if self._known is not None:
            names = self._known.topics.keys()
            found = self._topics.describe(names)
            found |= self._topics.sought(names - found.keys(), MISSING)
            check_topics(self._known, found)
            self._watched = time.monotonic()

    def _run(self, epochs: Epochs) -> None:
        """Compute and publish what is not published yet, then end the epoch."""
        batch, opened = self._batch, epochs.opened
        assert opened is not None
        parts = batch.parts(epochs)
        progress_by_part = self._log.progress_by_part(batch.progress)
        if not _published(parts, progress_by_part):
            self._check(opened)
            if isinstance(batch.stage, BatchStage):  # what a backfill reads of a topic, its histories say
                self._check_kept(opened)
            rows = sum(r.end - r.start for r in opened.division)
            self._say(opened, "opened", f"of {counted(rows, 'record')}")
            try:
                self._compute(
                    batch,
                    epochs,
                    batch.job(epochs),
                    lambda what, done, of: self._progress(epochs, opened, what, done, of),
                )
            except Stopped:
                return
            progress_by_part = self._log.progress_by_part(batch.progress)
        if _published(parts, progress_by_part):
            self._complete(epochs, opened, progress_by_part)
        else:
            time.sleep(LOOK)  # another driver ends the epoch

    def _check(self, opened: Opened) -> None:
        if opened.fingerprint != self._batch.stage.fingerprint:
            raise StateError(
                f"epoch {opened.epoch} was opened with another definition of {self._batch.stage.id!r}, and is not complete",
                where=f"opened by {opened.driver}",
                hint=f"run {self.definition} until the epoch is complete, or: {self.abandoning}",
            )

    def _check_kept(self, opened: Opened) -> None:
        """Raises SourceError if some of what the epoch reads is deleted: then it can never be completed."""
        found = self._topics.sought({place.topic for place in self._batch.places.values()}, MISSING)
        # Of a topic that is gone, or is another one, offsets say nothing: whoever reads it says so.
        same = {
            p: place
            for p, place in self._batch.places.items()
            if (now := found.get(place.topic)) is not None and now.id == p.topic_id
        }
        first = self._topics.offsets(same.values(), "earliest")
        if gone := gone_of(opened, {p: first[place] for p, place in same.items()}):
            new = self._batch.stage.regime.history == "new"
            then = f"; when it is abandoned: {skipping(self._app, self.part)}" if new else ""
            raise SourceError(
                f"records that epoch {opened.epoch} is to read were deleted: {offsets(gone)}",
                where=listed(gone),
                hint=f"let the topic's retention outlast an epoch. This one can only be abandoned: {self.abandoning}{then}",
            )

    def _progress(self, epochs: Epochs, opened: Opened, what: str, done: int, of: int) -> None:
        """Called often while Spark works. Raises Stopped."""
        if self._stopping():
            raise Stopped
        now = time.monotonic()
        if now - self._looked < LOOK:
            return
        self._looked = now
        self._say(opened, "running", what, done, of)
        self._catch_up(epochs)
        if epochs.opened is not opened or epochs.abandon or not epochs.open:
            raise Stopped

    def _complete(self, epochs: Epochs, opened: Opened, progress_by_part: Standings) -> None:
        rows = sum(s.rows for s, _ in progress_by_part.values() if isinstance(s, Published))
        completed = Completed(opened.epoch, self._clock.now(), self._batch.output_ends(self._topics), rows)
        run(propose(self._log, self._batch.openings, epochs, completed))
        if epochs.ended == completed:
            self._say(
                opened, "complete", f"{counted(rows, 'record')} in {(completed.clock - opened.clock) / 1000:.1f} s"
            )
        self._trim(epochs, progress_by_part)

    def _abandon(self, epochs: Epochs) -> None:
        """Close every result partition; only then is the epoch over."""
        opened = epochs.opened
        assert opened is not None
        for p, part in enumerate(self._batch.parts(epochs)):
            owner = publisher(self._app, self._batch.stage.id, p)
            close_part(self._cluster, owner, part, self._transaction_timeout_ms)
        run(propose(self._log, self._batch.openings, epochs, Abandoned(opened.epoch, self._clock.now(), "asked for")))
        self._say(opened, "abandoned", "its published results stay until the next epoch replaces them")

    def _trim(self, epochs: Epochs, progress_by_part: Standings) -> None:
        """Nobody reads below the oldest epoch that is kept, nor below the last record of a result partition."""
        if epochs.kept and not epochs.open:
            last = {place: at for place, (_, at) in progress_by_part.items()}
            self._topics.trim({self._batch.openings: epochs.kept[0].opening, **last})

    def _say(self, opened: Opened, state: State, words: str, done: int = 0, of: int = 0) -> None:
        self._tell(EpochReport(self._batch.stage.id, opened.epoch, state, words, done, of, self._compute.ui))


def _published(parts: Sequence[Part], progress_by_part: Standings) -> bool:
    """Whether every result partition of the epoch is published."""
    return all(part.over(progress_by_part[part.place][0]) is Outcome.PUBLISHED for part in parts)
