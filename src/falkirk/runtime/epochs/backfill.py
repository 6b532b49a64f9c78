"""The driver of a backfill: it opens it, claims the app's tasks, has Spark compute it, and ends it.

    none ──▶ open ──claimed──▶ RUNNING ──every result partition published──▶ complete: for good
               │ a step is there: the app has run        │ a person gives it up
               └───────────────▶ abandoned ◀─────────────┘

Like the driver of a batch part it relies on the log alone: the next run of the command continues after one that died.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing

from falkirk.checkpoint.backfill import claim
from falkirk.checkpoint.driver import run
from falkirk.checkpoint.epochs import Abandoned, Epochs, propose
from falkirk.checkpoint.ids import OwnerId
from falkirk.checkpoint.reading import decoded
from falkirk.checkpoint.records import StepRecord
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.app_topics.epochs import publisher_log
from falkirk.connectors.kafka.reading.reader import BoundedReader
from falkirk.errors import SourceError, StateError
from falkirk.runtime.app.app import App, prepare
from falkirk.runtime.epochs.backfill_binding import bind_backfill
from falkirk.runtime.epochs.driver import Compute, Driver, Tell
from falkirk.runtime.host.identity import fresh_nonce, host_name
from falkirk.runtime.host.settings import Settings
from falkirk.stream.backfill import History
from falkirk.stream.definition.names import BACKFILL
from falkirk.stream.stages.plan import Plan

ANOTHER = "give the flow another name: it then starts from scratch, beside this one, and can be backfilled"


class BackfillDriver(Driver):
    """Drives an app's backfill until it is complete or abandoned."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        topics: Topics,
        compute: Compute,
        tell: Tell,
        *,
        histories: Sequence[History] = (),
        abandon: bool = False,
    ) -> None:
        """With `abandon` it opens none: someone asked to abandon the open one."""
        self.bound, self.app, self.settings = bind_backfill(app, histories), app, settings
        self.abandoned = False
        self._begun, self._claimed = abandon, False
        timeout = settings.transaction_timeout_ms
        super().__init__(
            app.name,
            self.bound,
            settings.cluster(),
            topics,
            compute,
            tell,
            until_end=True,
            transaction_timeout_ms=timeout,
        )

    @property
    def definition(self) -> str:
        """What it is a backfill of."""
        return "that flow, with the --history that it was begun with,"

    @property
    def abandoning(self) -> str:
        """The command that abandons a backfill."""
        return "falkirk backfill … --abandon"

    def _finished(self, epochs: Epochs) -> bool:
        # No matter who abandoned it, the next run of the command opens another, not this run.
        self.abandoned = epochs.complete is None and self._begun and not epochs.open
        return epochs.complete is not None or self.abandoned

    def _run(self, epochs: Epochs) -> None:
        self._begun = True
        if not self._claimed:
            self._claim(epochs)
            self._claimed = True
        super()._run(epochs)

    def _claim(self, epochs: Epochs) -> None:
        """From here on no task makes a first step but on this backfill's result. Raises StateError if one has."""
        opened = epochs.opened
        assert opened is not None
        timeout = self.settings.transaction_timeout_ms
        # Each claim has its own id: two drivers with one id could fence each other forever.
        owner = OwnerId(f"{self.app.name}.{BACKFILL}.{fresh_nonce()}")
        log = publisher_log(self.settings.cluster(), owner, timeout, 1_000_000)
        with closing(log):
            step = run(claim(log, [b.task for b in self.app.tasks], fresh_nonce, host_name()))
        if step is not None:
            why = f"task {step.task} has made step {step.step}"
            run(propose(self._log, self._batch.openings, epochs, Abandoned(opened.epoch, self._clock.now(), why)))
            raise has_run(self.app, step)


def prepared(plan: Plan, settings: Settings, topics: Topics) -> App:
    """Bind a flow that is to be backfilled to a cluster: the layout then records that a backfill exists.

    Raises what `prepare` raises, and StateError if the app has run; it then records nothing.
    """
    app = prepare(plan, settings, topics)
    if app.backfill is None:
        check_fresh(app, settings)
        check_sources(app, topics)
    while app.backfill is None:  # another run may have recorded a layout first
        app = prepare(plan, settings, topics, backfill=True)
    return app


def check_fresh(app: App, settings: Settings) -> None:
    """No task has made a step yet. Only for a good message: what counts is what the driver finds when it claims the tasks."""
    places = [b.task.steps for b in app.tasks]
    with closing(BoundedReader(settings.cluster())) as reader:
        at, marks = reader.watermarks(places, end=False), reader.watermarks(places, end=True)
        for place in places:
            position = at[place]
            while position < marks[place]:
                read = reader.read({place: (position, marks[place])}, committed=True)[place]
                for _, record in decoded(read):
                    if isinstance(record, StepRecord):
                        raise has_run(app, record)
                if read.position == position:
                    break
                position = read.position


def check_sources(app: App, topics: Topics) -> None:
    """No source is compacted: if a Spark task fails, what it reads again would differ. Raises SourceError."""
    sources = {i.topic for part in app.plan.parts for i in part.inputs if i.kind == "source"}
    for topic, config in topics.configs(sources).items():
        if "compact" in config.get("cleanup.policy", ""):
            raise SourceError(
                f"a backfill cannot read topic {topic!r}: it is compacted, so reading it again would give other records",
                where=f"app {app.name}",
                hint="run the app from the start instead, or read a topic that keeps every record",
            )


def has_run(app: App, step: StepRecord) -> StateError:
    """The app is past its beginning."""
    return StateError(
        f"app {app.name!r} has already run. A backfill is only for a new app: otherwise it would count everything twice",
        where=f"task {step.task}, which has made step {step.step}, by {step.owner}",
        hint=ANOTHER,
    )


def driving(
    app: App,
    settings: Settings,
    topics: Topics,
    compute: Compute,
    tell: Tell,
    stopping: Callable[[], bool],
    *,
    histories: Sequence[History] = (),
    abandon: bool = False,
) -> BackfillDriver:
    """Drive the app's backfill until it is complete, abandoned, or `stopping()`. Raises FalkirkError."""
    driver = BackfillDriver(app, settings, topics, compute, tell, histories=histories, abandon=abandon)
    with closing(driver):
        driver.drive(stopping)
    return driver
