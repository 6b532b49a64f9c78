"""A query as an app of its own: the file of its flow, its process, its topics, and their end.

    started ──▶ runs ──stop──▶ its worker leaves cleanly ──▶ its topics, its group and its state are deleted
                  └──end of its sources (run --until end)──▶ the same

The tables that it reads and writes stay. What a session that was killed has left is deleted when the next one starts.
"""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import CrashError
from falkirk.runtime.app.sources import create_missing_sources
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.inspect.peek import peek
from falkirk.runtime.layout.deleting import app_resources, check_stopped, delete
from falkirk.runtime.processes.parent import command
from falkirk.stream.access.endpoints import Row, views_of
from falkirk.stream.flow.load import load_flow
from falkirk.stream.sql.catalog import Job

PARTITIONS = 1
"""Of the topics of tables: rows are shown in the order in which they were inserted."""

SESSIONS = r"sql-[0-9a-f]{6}-[0-9]+"
"""Names of apps of the prompt."""

LEAVING_S = 20.0
"""How long a worker may take to commit its last step and leave."""


@dataclass(slots=True)
class RunningApp:
    """A query that runs."""

    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    """What it says on standard error."""

    def check(self) -> None:
        """Raises CrashError if it has failed."""
        code = self.process.poll()
        if code not in (None, 0, -signal.SIGTERM):
            raise CrashError(f"the query stopped: {self._words()}")

    def _words(self) -> str:
        return self.log.read_text(errors="replace").strip().removeprefix("error: ") or "its process has died"

    def wait(self) -> None:
        """Until it ends by itself. Raises CrashError."""
        self.process.wait()
        self.check()

    def stop(self) -> None:
        """Let it leave cleanly."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(LEAVING_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Apps:
    """Runs queries on one Kafka, as `falkirk worker` and `falkirk run` do."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """`folder`: for the files of queries."""
        self.settings, self.topics = settings, Topics(settings.cluster())
        self._folder = folder

    def sweep(self) -> None:
        """Delete the topics of sessions that were killed. Nobody else uses this Kafka."""
        left = re.compile(rf"({re.escape(self.settings.prefix)}\.)?{SESSIONS}(\..*)?")
        if names := [name for name in self.topics.names() if left.fullmatch(name)]:
            self.topics.delete(names)

    def unread(self, app: RunningApp) -> bool:
        """Whether records of its tables could not be read."""
        name = f"{self.settings.prefix}.{app.job.name}.dead-letters"
        found = self.topics.describe([name])
        places = [TopicPartition(name, p) for info in found.values() for p in range(info.partitions)]
        ends, begins = self.topics.offsets(places, "latest"), self.topics.offsets(places, "earliest")
        return any(ends[place] > begins[place] for place in places)

    def start(self, job: Job, *, until_end: bool) -> RunningApp:
        """Run a query. Raises FalkirkError."""
        file = self._folder / f"{job.name}.sql"
        file.write_text(job.sql)
        plan = load_flow(str(file)).plan(self.settings.prefix)
        create_missing_sources(plan, self.topics, PARTITIONS)
        sinks = {view.topic for view in views_of(plan) if view.kind == "sink"}
        for topic in sorted(sinks - self.topics.describe(sinks).keys()):
            self.topics.create(topic, PARTITIONS, 1, {})
        how = ["run", str(file), "--until", "end"] if until_end else ["worker", str(file)]
        where = [
            "--brokers",
            self.settings.brokers,
            "--prefix",
            self.settings.prefix,
            "--state-dir",
            self.settings.state_dir,
        ]
        log = self._folder / f"{job.name}.log"
        with log.open("wb") as told:
            process = subprocess.Popen(  # of its own session: Ctrl-C ends what is shown, and not other queries
                command("falkirk.cli.main", *how, *where), stdin=subprocess.PIPE, stdout=told, stderr=told,
                start_new_session=True,
            )  # fmt: skip
        return RunningApp(job, process, log)

    def rows(self, app: RunningApp, *, follow: bool) -> Iterator[Sequence[Row]]:
        """The changes of a query's result, as they are committed; with `follow` without an end."""
        plan = load_flow(str(self._folder / f"{app.job.name}.sql")).plan(self.settings.prefix)
        view = next(view for view in views_of(plan) if view.kind == "sink")
        return peek(view, self.settings, self.topics, "earliest", 0, follow=follow)

    def remove(self, app: RunningApp) -> None:
        """Delete all that an app had, except for tables. Raises FalkirkError."""
        found = app_resources(app.job.name, self.settings, self.topics)
        found = replace(found, published={n: t for n, t in found.published.items() if n != app.job.topic})
        for _ in range(50):  # the group notices that its member has left
            if not self.topics.group(app.job.name).members:
                break
            time.sleep(0.1)
        check_stopped(app.job.name, self.topics)
        delete(found, self.settings, self.topics, lambda _: None, published=True)
