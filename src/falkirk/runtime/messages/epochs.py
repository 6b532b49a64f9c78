"""Requests of people to a driver, and the state of epochs: both only through the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Literal

import msgspec

from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Abandoned, Completed, EpochRequest, Epochs, catch_up, propose
from falkirk.checkpoint.ids import Epoch, TopicPartition
from falkirk.checkpoint.publishing import Outcome, Part, Published, progress_place
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import KafkaEpochLog
from falkirk.errors import ConfigError
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import person
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import no_such_app
from falkirk.runtime.messages.deleted import Gone, check_history, leave_out, unread_and_gone
from falkirk.stream.definition.names import control_topic, drivers, epochs_topic


class EpochStatus(msgspec.Struct, frozen=True):
    """A batch part, by its newest epoch."""

    stage: str
    epoch: int | None
    """null: none opened yet."""
    state: Literal["none", "open", "complete", "abandoned"]
    opened_s_ago: float | None
    records: int
    """Offsets that the epoch reads."""
    rows: int
    """Published so far."""
    published: int
    """Result partitions, of `partitions`."""
    partitions: int
    complete: int | None
    """The newest complete epoch."""
    driver: str | None
    """Who opened it: host and process."""
    complete_s_ago: float | None = None
    """The age of what that one has read."""
    spark_ui: str | None = None
    """Where Spark shows it, while it runs; null: not reported."""


class BatchPart:
    """A batch part as its epochs topic shows it."""

    def __init__(self, stage: str, topic: str, partitions: int, settings: Settings) -> None:
        self._stage, self._openings = stage, TopicPartition(topic, 0)
        self._progress = [progress_place(topic, p) for p in range(partitions - 1)]
        self._log = KafkaEpochLog(settings.cluster())
        self.epochs = Epochs()

    def look(self) -> EpochStatus:
        """Its present state."""
        run(catch_up(self._log, self._openings, self.epochs))
        opened, ended = self.epochs.opened, self.epochs.ended
        newest = self.epochs.complete
        complete = None if newest is None else int(newest.epoch)
        if opened is None:
            return EpochStatus(
                stage=self._stage,
                epoch=None,
                state="none",
                opened_s_ago=None,
                records=0,
                rows=0,
                published=0,
                partitions=len(self._progress),
                complete=complete,
                driver=None,
            )
        published = rows = 0
        for place, (progress, _) in self._log.progress_by_part(self._progress).items():
            part = Part(place, opened.epoch, self.epochs.opening)
            published += part.over(progress) is Outcome.PUBLISHED
            rows += part.published(progress).rows if isinstance(progress, Published) else 0
        return EpochStatus(
            stage=self._stage,
            epoch=opened.epoch,
            state="open" if ended is None else "complete" if isinstance(ended, Completed) else "abandoned",
            opened_s_ago=max(0.0, (WallClock().now() - opened.clock) / 1000),
            records=sum(r.end - r.start for r in opened.division),
            rows=rows,
            published=published,
            partitions=len(self._progress),
            complete=complete,
            driver=opened.driver,
            complete_s_ago=None if newest is None else max(0.0, (WallClock().now() - newest.clock) / 1000),
        )

    def look_at(self, epoch: int, before: EpochStatus) -> EpochStatus:
        """As `look`; once a later epoch is open, how that one has ended. `before`: an earlier look."""
        now = self.look()
        if now.epoch is None or now.epoch <= epoch:
            return now
        # After it, another that was asked for may be opened at once.
        seen = before if before.epoch == epoch else msgspec.structs.replace(now, epoch=epoch, records=0, rows=0)
        done = next((c for c in self.epochs.kept if c.opened.epoch == epoch), None)
        if done is None:
            return msgspec.structs.replace(seen, state="abandoned")
        records = sum(r.end - r.start for r in done.opened.division)
        return msgspec.structs.replace(seen, state="complete", records=records, rows=done.completed.rows)

    def ask(self, what: Literal["open", "abandon"]) -> EpochStatus:
        """Ask for an epoch, or that the open one be abandoned. Raises ConfigError if none is open."""
        now = self.look()
        if what == "abandon" and now.state != "open":
            raise ConfigError(f"no epoch of {self._stage!r} is open", hint="falkirk status tells how epochs are")
        run(propose(self._log, self._openings, self.epochs, EpochRequest(what, WallClock().now())))
        return now

    def deleted(self, topics: Topics) -> list[Gone]:
        """With history="new": what no epoch has read, and is deleted."""
        run(catch_up(self._log, self._openings, self.epochs))
        read = self.epochs.read
        found = topics.describe({p.place.topic for p in read})
        # A topic that was made again holds other records: the driver says so.
        same = [p for p in read if (now := found.get(p.place.topic)) is not None and now.id == p.topic_id]
        first = topics.offsets([p.place for p in same], "earliest")
        return unread_and_gone(self.epochs, {p: first[p.place] for p in same})

    def skip_deleted(self, topics: Topics) -> tuple[Epoch | None, list[Gone]]:
        """Let the next epoch begin behind what was deleted and no epoch has read. The epoch that says so, and what that was;
        None if nothing was. Raises ConfigError if this cannot be."""
        gone = self.deleted(topics)
        check_history(self._stage, self.epochs)
        if not gone:
            return None, []
        return leave_out(self._log, self._openings, self.epochs, gone, WallClock().now(), person()), gone

    def close(self) -> None:
        """Close the connections."""
        self._log.close()


@contextmanager
def batch_part(app: str, stage: str, settings: Settings, topics: Topics) -> Iterator[BatchPart]:
    """A batch part of an app that has run. Raises ClusterError, and ConfigError if there is no such part."""
    name = epochs_topic(settings.prefix, app, stage)
    found = topics.describe([name]).get(name)
    if found is None:
        if not topics.describe([control_topic(settings.prefix, app)]):
            raise no_such_app(app, settings, topics)
        prefix = epochs_topic(settings.prefix, app, "")
        known = [t.removeprefix(prefix) for t in topics.names() if t.startswith(prefix)]
        raise ConfigError(
            f"app {app!r} has no batch part {stage!r} on this cluster",
            where=f"{settings.brokers}, topic {name}",
            hint=f"it has: {', '.join(known)}" if known else f"it has none, or has not run: falkirk status {app} tells",
        )
    with closing(BatchPart(stage, name, found.partitions, settings)) as part:
        yield part


def driven(app: str, topics: Topics) -> bool:
    """Whether a driver runs for the app's epochs now."""
    return bool(topics.group(drivers(app)).members)


def reason(epochs: Epochs) -> str:
    """Why the newest epoch was abandoned."""
    return epochs.ended.reason if isinstance(epochs.ended, Abandoned) else ""
