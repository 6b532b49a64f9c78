"""A person's request to a running app, followed until its workers have answered. They answer in their reports.

asked ──▶ control topic ──▶ every worker's ear ──▶ done ──▶ its next report ──▶ here
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError, FalkirkError
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.identity import person
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.layout.app_lookup import known_app, not_begun
from falkirk.runtime.layout.layout import LayoutRecord, check_not_ending
from falkirk.runtime.messages.parts import StoppedPart, resume_part
from falkirk.runtime.messages.protocol import Report, Request
from falkirk.runtime.messages.reports import read_reports
from falkirk.runtime.messages.requests import CurrentRequests, What, ask, current_requests
from falkirk.stream.definition.names import control_topic
from falkirk.wording import listed

LOOK = 0.5
"""Seconds between two looks."""

Look = Callable[[], str]
"""What is still waited for, in words; "" when it is done."""


@dataclass(frozen=True, slots=True)
class CheckpointedTask:
    """A task, and its version that is in the checkpoint store now."""

    task: str
    step: int
    version: int
    worker: str


class AppRequest:
    """An app, for commands that know only its name. Raises ConfigError if it does not exist."""

    def __init__(
        self, app: str, settings: Settings, topics: Topics, *, streams: bool = True, begun: bool = True
    ) -> None:
        """`streams`: it must have some, beside batch parts. `begun`: it must have run, and since its last reset."""
        self.app, self._settings, self._topics = app, settings, topics
        self._known = known_app(app, settings, topics)
        check_not_ending(app, self._known)
        self._layout = self._known.layout if begun else self._known.last
        if begun and self._layout is None:
            raise not_begun(app, self._known)
        if streams and self._layout is not None and not self._layout.stages:
            raise ConfigError(f"app {app!r} has no streams", hint="for its batch parts use falkirk epoch")
        self._cluster, self._control = settings.cluster(), control_topic(settings.prefix, app)

    @property
    def layout(self) -> LayoutRecord:
        """Its layout; after a reset, the one from before. Raises ConfigError if it has never run."""
        if self._layout is None:
            raise not_begun(self.app, self._known)
        return self._layout

    def workers(self) -> frozenset[str]:
        """The members of the app's group."""
        return frozenset(self._topics.group(self.app).members)

    def standing(self) -> CurrentRequests:
        """What is asked of it now, by anyone."""
        return current_requests(self._cluster, self._control)

    def paused(self) -> Request | None:
        """Who has paused it."""
        return self.standing().pause

    def ask(self, what: What, ends: Mapping[str, tuple[int, ...]] | None = None) -> Request:
        """Raises ClusterError."""
        asked = Request(person(), WallClock().now(), token_hex(4), dict(ends or {}))
        self.repeat(what, asked)
        return asked

    def repeat(self, what: What, asked: Request) -> None:
        """Ask the same again. Raises ClusterError."""
        ask(self._cluster, self._control, what, asked)

    def take_back(self, what: What) -> None:
        """Withdraw the request. Raises ClusterError."""
        ask(self._cluster, self._control, what, None)

    def withdraw_checkpoint(self, asked: Request) -> None:
        """Unless a later one, for another person, has replaced it. Raises ClusterError."""
        self._topics.check_reachable(timeout=5.0)  # a look would wait for the cluster
        if self.standing().checkpoint == asked:
            self.take_back("checkpoint")

    def pausing(self) -> str:
        """The workers that are not paused yet. Raises FalkirkError if somebody has resumed the app meanwhile."""
        reports, members = self._reports()
        # Another person's request may have replaced this one: workers report the one that stands.
        if (standing := self.paused()) is None:
            raise FalkirkError(
                f"app {self.app!r} is not paused any more: somebody has resumed it", hint=f"falkirk pause {self.app}"
            )
        return self._other_than(standing, reports, members)

    def resuming(self) -> str:
        """The workers that are still paused. Raises FalkirkError if somebody has paused the app again meanwhile."""
        reports, members = self._reports()
        if (standing := self.paused()) is not None:
            raise FalkirkError(
                f"app {self.app!r} is paused again, by {standing.by}", hint=f"falkirk resume {self.app} resumes it"
            )
        return self._other_than(None, reports, members)

    @staticmethod
    def _other_than(paused: Request | None, reports: Mapping[str, Report], members: Collection[str]) -> str:
        left = [w for w in members if w not in reports or reports[w].paused != paused]
        return waiting_for(left, members, "workers")

    def parts(self) -> list[str]:
        """All stages and batch parts."""
        return [*(stage.id for stage in self.layout.stages), *self.layout.batches]

    def stopped(self) -> dict[str, StoppedPart]:
        """The parts that have stopped by themselves."""
        return self.standing().stopped()

    def resume(self, part: str) -> Offset:
        """Let a stopped part run again. Raises ClusterError."""
        return resume_part(self._cluster, self._control, part)

    def still_stopped(self, part: str) -> str:
        """The workers that do not run the part yet. Raises the part's error if it has stopped again."""
        if (again := self.stopped().get(part)) is not None:
            raise again.error
        reports, members = self._reports()
        left = [w for w in members if w not in reports or part in reports[w].stopped]
        return waiting_for(left, members, "workers")

    def made(self, asked: Collection[str], stopped: Collection[str]) -> tuple[list[CheckpointedTask], str]:
        """The versions that answer one of these requests, and the tasks that have none yet. The parts `stopped` make none."""
        reports, _ = self._reports()
        made = {
            t.task: CheckpointedTask(t.task, t.copied, t.version, worker)
            for worker, report in reports.items()
            for t in report.tasks
            if t.answers in asked
        }
        stages = [s for s in self.layout.stages if s.stateful and s.id not in stopped]
        wanted = [f"{s.id}/{p}" for s in stages for p in range(s.tasks)]
        left = [task for task in wanted if task not in made]
        return [made[task] for task in wanted if task in made], waiting_for(left, wanted, "tasks")

    def source_ends(self) -> dict[str, tuple[int, ...]]:
        """Where the sources end now."""
        topics = {
            name for stage in self.layout.stages for name in stage.inputs if self.layout.topics[name].role == "source"
        }
        places = [TopicPartition(t, p) for t in topics for p in range(self.layout.topics[t].partitions)]
        ends = self._topics.offsets(places, "latest")
        return {t: tuple(ends[TopicPartition(t, p)] for p in range(self.layout.topics[t].partitions)) for t in topics}

    def _reports(self) -> tuple[dict[str, Report], list[str]]:
        """The reports of the group's members, and the members."""
        members = sorted(self.workers())
        heard = read_reports(self._cluster, self._control).workers
        return {owner: a.report for owner, a in heard.items() if owner in members}, members


def waiting_for(left: Collection[str], all_: Collection[str], what: str) -> str:
    """In words.

    >>> waiting_for(["a", "b"], ["a", "b", "c"], "workers"), waiting_for([], ["a"], "workers")
    ('waiting for 2 of 3 workers: a, b', '')
    """
    return f"waiting for {len(left)} of {len(all_)} {what}: {listed(sorted(left), most=4)}" if left else ""


def follow(look: Look, seconds: float, say: Callable[[str], None]) -> str:
    """Look until nothing is waited for or the time is up; returns what is still waited for. Reports each change."""
    deadline, said = time.monotonic() + seconds, ""
    while left := look():
        if left != said:
            say(left)
            said = left
        if time.monotonic() >= deadline:
            break
        time.sleep(LOOK)
    return left


def checkpoint(app: AppRequest, seconds: float, say: Callable[[str], None]) -> list[CheckpointedTask]:
    """Make every task create a version, and wait until all are in the checkpoint store. Tasks of parts that have stopped
    make none. The request is always withdrawn at the end. Raises FalkirkError if some are missing."""
    asked = app.ask("checkpoint")
    ids, made = {asked.id}, list[CheckpointedTask]()

    def look() -> str:
        nonlocal made
        workers = app.workers()  # first, as it does not wait for a cluster that is away
        standing = app.standing()
        if standing.checkpoint is None:  # withdrawn with another person's request
            app.repeat("checkpoint", asked)
        else:  # what answers a later request is no older than this one
            ids.add(standing.checkpoint.id)
        made, left = app.made(ids, standing.stopped())
        return left if not left or workers else "waiting for workers: there are none"

    try:
        left = follow(look, seconds, say)
    finally:
        with suppress(FalkirkError):
            app.withdraw_checkpoint(asked)
    if left:
        raise FalkirkError(
            f"app {app.app!r} has not made a version of every task within {seconds:.0f} s",
            where=left,
            hint=f"is it running? falkirk status {app.app} tells. Its workers' logs show whether a version could "
            "not be copied. The request has ended; to wait longer, use --timeout",
        )
    return made
