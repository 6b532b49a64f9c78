"""The driver's end of workers on Spark: a job of one task for each, restarted until all are to leave.

    job k:  task ──fails──▶ Spark runs it again, up to its limit ──▶ the job fails ──▶ it is restarted
                 ──returns──▶ the worker has left; or its error, which ends the run
    none of a slot's tasks has brought up a worker, and jobs fail again and again: that ends the run too

A job each, not one job of N tasks: Spark ends all tasks of a job when one of them has failed too often, and reports none
before all are done. They need not run at once either: their group decides which worker has which task, so Spark's barrier
mode is not needed.
"""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from falkirk.checkpoint.ids import TopicPartition
from falkirk.connectors.kafka.app_topics.control import REPORTS, Tail
from falkirk.connectors.spark.master import is_local
from falkirk.errors import ConfigError, FalkirkError, UnreachableError, retold
from falkirk.runtime.app.app import App
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Ended, Line, Started, WorkerEvent
from falkirk.runtime.messages.orders import forget, order_to_leave
from falkirk.runtime.messages.protocol import SentReport
from falkirk.runtime.messages.reports import announced
from falkirk.runtime.processes.driver_child import chatter
from falkirk.runtime.spark_workers.parcel import parcel_of
from falkirk.runtime.spark_workers.task import Assignment, Failure

HEAR = 0.5
"""Seconds between two reads of the workers' reports."""
AGAIN = 2.0
"""Seconds until a failed job is restarted."""
SILENCE = 12.0
"""Seconds until a silent worker is not counted any more: it would report every five."""
FRUITLESS = 2
"""This many jobs of one slot in a row that fail without a worker's report end the run: each has tried several times."""
SLOTS = 15.0
"""Seconds until missing slots are reported."""
LEAVE = 75.0
"""Seconds that all workers have to leave: more than their supervisors give them."""

if TYPE_CHECKING:
    from falkirk.connectors.spark.application import Application

Host = Callable[[int], Failure | None]


class SparkWorkers:
    """Runs an app's workers on Spark, as `Supervisor` does on this host."""

    def __init__(self, app: App, target: str, settings: Settings) -> None:
        """Raises ConfigError if state could not follow a worker to another host."""
        check_shared(settings)
        self._app, self._settings = app, settings
        self._run = uuid4().hex[:12]
        self._assignment = pickle.dumps(
            Assignment(parcel_of(target), there(settings), app.control, self._run), protocol=pickle.HIGHEST_PROTOCOL
        )
        self._tell: Callable[[WorkerEvent], None] = lambda _: None
        self._failed: list[FalkirkError] = []
        self._pids: dict[int, int] = {}
        """Of the workers that report, by slot."""
        self._heard: dict[int, float] = {}
        self._leaving, self._over = threading.Event(), threading.Event()

    def run(self, finished: Callable[[], bool], tell: Callable[[WorkerEvent], None]) -> None:
        """Keep the workers going until `finished()`; then let them leave cleanly. Raises the error of a worker, and
        FalkirkError if Spark cannot be used."""
        from falkirk.connectors.spark.application import Application

        self._tell = tell
        application = Application(f"falkirk {self._app.name} workers", self._settings.spark, self._spark_settings())
        jobs = [
            threading.Thread(target=self._keep, args=(slot, application), name=f"falkirk-slot-{slot}", daemon=True)
            for slot in range(self._settings.workers)
        ]
        # In the main thread Spark would take Ctrl-C for itself, and cancel all jobs.
        beginning = threading.Thread(target=self._begin, args=(application,), name="falkirk-spark")
        beginning.start()
        beginning.join()
        if application.ui:
            tell(Line(f"the workers' jobs are at {application.ui}"))
        slots = Slots(application, self._settings.workers, tell)
        threading.Thread(target=self._hear, args=(self._tail(), slots), name="falkirk-hear", daemon=True).start()
        try:
            for job in jobs if not self._failed else []:
                job.start()
            while not self._failed and not finished():
                time.sleep(0.1)
        finally:
            self._leave([job for job in jobs if job.ident is not None])
            application.close()
        if self._failed:
            raise self._failed[0]

    @property
    def working(self) -> bool:
        """Always: their application has requested its cores already, and Spark gives the first all that it wants."""
        return True

    def kill(self) -> None:
        """There is nothing to run: no application was started."""

    def _begin(self, application: Application) -> None:
        """Start it once for all jobs, and filter its JVM's output."""
        try:
            with quiet(lambda line: self._tell(Line(line))), application.at_work():
                pass
        except FalkirkError as error:
            self._failed.append(error)

    def _leave(self, jobs: list[threading.Thread]) -> None:
        self._leaving.set()
        cluster, control = self._settings.cluster(), self._app.control
        try:
            if any(job.is_alive() for job in jobs):
                order_to_leave(cluster, control, self._run)
                deadline = time.monotonic() + LEAVE
                for job in jobs:
                    job.join(max(0.0, deadline - time.monotonic()))
                forget(cluster, control, self._run)
        except UnreachableError as error:
            self._tell(Line(f"the workers cannot be asked to stop, so they are ended: {error}"))
        self._over.set()

    # -- one slot --------------------------------------------------------------------------------------------------

    def _keep(self, slot: int, application: Application) -> None:
        from falkirk.connectors.spark.errors import ApplicationEnded

        fruitless = 0
        while not self._leaving.is_set():
            began = time.monotonic()
            try:
                ended = self._job(slot, application)
            except ApplicationEnded as error:
                self._tell(Line(str(error)))
            except FalkirkError as error:
                if self._leaving.is_set():
                    return
                fruitless = 0 if self._works(slot, began) else fruitless + 1
                if type(error) is not FalkirkError or fruitless == FRUITLESS:
                    self._failed.append(error)
                    return
                self._tell(Line(f"worker {slot} is begun again. {error.what}"))
            except Exception as error:  # noqa: BLE001  # whatever it is, a slot without its thread would be missed by nobody
                self._failed.append(FalkirkError(f"worker {slot} cannot be run on Spark: {error!r}"))
                return
            else:
                if ended is not None:
                    self._failed.append(retold(*ended))
                return
            self._leaving.wait(AGAIN)

    def _job(self, slot: int, application: Application) -> Failure | None:
        """Run a slot's task, to its end."""
        from falkirk.connectors.spark.epochs.watching import watched

        with application.at_work() as (spark, check):
            context = spark.sparkContext
            tasks = context.parallelize([slot], 1).map(hosting(self._assignment))
            began = time.monotonic()

            def look(_: object) -> None:
                check()
                if self._over.is_set() or (self._leaving.is_set() and not self._works(slot, began)):
                    raise FalkirkError("the run is over")

            ended: list[Failure | None] = watched(
                context, f"worker {slot} of {self._app.name}", ["worker"], tasks.collect, look
            )
            return ended[0]

    def _works(self, slot: int, began: float) -> bool:
        """Whether a worker has reported since then. One that has not has nothing to leave, and may have no slot yet."""
        return self._heard.get(slot, began) > began

    # -- what is heard ---------------------------------------------------------------------------------------------

    def _tail(self) -> Tail:
        tail = Tail(self._settings.cluster(), TopicPartition(self._app.control, REPORTS))
        tail.skip()
        return tail

    def _hear(self, tail: Tail, slots: Slots) -> None:
        while not self._over.wait(HEAR):
            slots.look(len(self._pids))
            for record in tail.look():
                said = announced(record)
                if said is not None and said.run == self._run:
                    self._take(said)
            for slot, heard in self._heard.items():
                if slot in self._pids and time.monotonic() - heard > SILENCE:
                    ended = Ended(slot, self._pids.pop(slot), "does not report", "Spark must run it again", SILENCE)
                    self._tell(ended)
        tail.close()

    def _take(self, said: SentReport) -> None:
        slot, pid, now = said.report.slot, said.report.pid, time.monotonic()
        if (before := self._pids.get(slot)) != pid:
            if before is not None:
                then = f"another worker takes its place on {said.host}"
                self._tell(Ended(slot, before, "is no more", then, now - self._heard[slot]))
            self._pids[slot] = pid
            self._tell(Started(slot, pid))
        self._heard[slot] = now
        self._tell(said.report)

    def _spark_settings(self) -> Mapping[str, str]:
        """A standalone master gives an application all existing cores, unless it says how many it needs: nothing would be
        left for batch parts. Those may have their own number, which is not meant here."""
        cpus = int(self._settings.spark_settings.get("spark.task.cpus", "1"))
        return {
            "spark.log.level": "ERROR",
            **self._settings.spark_settings,
            "spark.cores.max": str(cpus * self._settings.workers),
        }


class Slots:
    """Reports missing slots: Spark waits for them in silence."""

    def __init__(self, application: Application, wanted: int, tell: Callable[[WorkerEvent], None]) -> None:
        self._application, self._wanted, self._tell = application, wanted, tell
        self._next = time.monotonic() + SLOTS
        self._told: int | None = None

    def look(self, begun: int) -> None:
        """Call it often. `begun`: workers that have reported."""
        if begun >= self._wanted or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + SLOTS
        offered = self._application.tasks()
        if offered < self._wanted and offered != self._told:
            self._told = offered
            self._tell(
                Line(
                    f"waiting for {self._wanted} slots: the cluster offers {offered}. Give it more cores, or fewer --workers "
                    "(a worker is a task, and takes spark.task.cpus cores)"
                )
            )


def hosting(assignment: bytes) -> Host:
    """What each task runs. It is made here, and so travels whole: even without Falkirk there it arrives, and says so."""
    from falkirk.connectors.spark.workers import importer

    imported = importer()

    def host(slot: int) -> Failure | None:
        ended: Failure | None = imported("falkirk.runtime.spark_workers.task").host(slot, assignment)
        return ended

    return host


def check_shared(settings: Settings) -> None:
    """Raises ConfigError unless a worker that Spark has moved to another host can find the versions."""
    if not settings.checkpoints and not is_local(settings.spark):
        raise ConfigError(
            "workers on Spark can move to another host, but their versions would stay behind",
            where=f"--on spark, master {settings.spark}; no --checkpoints is given",
            hint="give a --checkpoints URL that all executors reach, such as s3://bucket/app",
        )


def there(settings: Settings) -> Settings:
    """The settings for workers on Spark. Those on this machine share its state directory."""
    state_dir = settings.state_dir
    if is_local(settings.spark):
        return replace(settings, state_dir=str(Path(state_dir).absolute()))
    return replace(settings, state_dir=settings.executors_state_dir)


@contextmanager
def quiet(tell: Callable[[str], None]) -> Iterator[None]:
    """The standard error of any process started meanwhile goes to `tell`, line by line, without Spark's greetings."""
    ours = os.dup(2)
    read, write = os.pipe()
    os.dup2(write, 2)
    os.close(write)

    def pass_on() -> None:
        with os.fdopen(read, errors="replace") as lines:
            for line in lines:
                if not chatter(line):
                    tell(line.rstrip("\n"))

    threading.Thread(target=pass_on, name="falkirk-jvm", daemon=True).start()
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
