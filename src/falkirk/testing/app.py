"""A flow under test: send it records, let it step, crash it, and look at what its sinks, dead letters and state hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from falkirk import durations
from falkirk.checkpoint.ids import Millis, TopicPartition
from falkirk.durations import DurationLike
from falkirk.errors import ConfigError, FalkirkError
from falkirk.stream.access.endpoints import views_of
from falkirk.stream.access.producing import Rows, Sent, encoded, placed, source_named, topic_of
from falkirk.stream.dataflow.process import moment
from falkirk.stream.flow.flow import Flow
from falkirk.testing.cluster import BEGINNING, Cluster, Message
from falkirk.testing.dates import clock_of, warn_of_unused, warned_of_dates
from falkirk.testing.epochs import EpochRuns
from falkirk.testing.looking import Looking
from falkirk.testing.outlets import outlets_of
from falkirk.testing.process import Process
from falkirk.testing.simulator.plan import FOREVER
from falkirk.wording import counted

OnDivergence: TypeAlias = Literal["stop", "correct"]


class App(Looking):
    """A flow with its topics, a worker and its state, all in this process: no Kafka, no files, and a clock of its own.

    >>> import falkirk as fk
    >>> flow = fk.Flow("words")
    >>> words = flow.source("words", key="word", value=fk.Json({"word": str}))
    >>> words.group_by("word", id="counts").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
    >>> app = fk.testing.App(flow)
    >>> app.send("words", [{"word": "to"}, {"word": "be"}])
    >>> app.run()
    >>> app.send("words", [{"word": "to"}])
    >>> app.run()
    >>> [record.value for record in app.sinks["counts"].records]
    [{'word': 'to', 'n': 1}, {'word': 'be', 'n': 1}, {'word': 'to', 'n': 2}]
    >>> app.sinks["counts"].table
    {'to': {'word': 'to', 'n': 2}, 'be': {'word': 'be', 'n': 1}}
    """

    def __init__(
        self,
        flow: Flow,
        *,
        partitions: int | Mapping[str, int] = 1,
        step_rows: int | None = None,
        topics: Collection[str] = (),
        on_divergence: OnDivergence = "stop",
        now: datetime | None = None,
    ) -> None:
        """`partitions` is the number of partitions of each topic that the flow reads, or a dict by topic. `topics` are
        existing topics that match a pattern and are not in `partitions`. A step reads up to `step_rows` records of
        each partition; None: all that wait. Tables that rows are looked up in are read to their end.
        `on_divergence` is that of `falkirk run`. `now` is where the clock begins: a datetime with a zone; None: at the
        start of 2026, in UTC. Raises DefinitionError, ConfigError and SourceError.
        """
        if step_rows is not None and step_rows < 1:
            raise ConfigError(f"a step cannot read {step_rows} records", hint="step_rows=1, or None: all that wait")
        self.step_rows = step_rows
        self.steps = 0
        """The number of steps so far. All tasks with something to do step together, in one transaction."""
        self.late = 0
        """How many rows came too late (`late=` of their source), and count in no result."""
        self._late = 0
        """Those of the steps that are closed and not committed."""
        if not isinstance(flow, Flow):
            raise ConfigError(f"{flow!r:.60} is not a flow", hint="import it from your app: from app import flow")
        plan = flow.plan()
        warn_of_unused(flow, plan)
        self._cluster = Cluster(plan, partitions, topics, BEGINNING if now is None else clock_of(now))
        self._cluster.corrects = on_divergence == "correct"
        self._epochs = EpochRuns(self._plan, self._cluster)
        self._sinks = {view.name: view for view in views_of(self._plan) if view.kind == "sink"}
        self._outlets = outlets_of(self._plan)
        self._written: dict[str, list[Message]] = {topic: [] for topic in self._outputs()}
        self._at: Counter[TopicPartition] = Counter()
        """How far the topics of sinks and dead letters have been read."""
        self._unkeyed: Counter[str] = Counter()
        self._warned = False
        self._process: Process | None = None
        self._worker()

    # -- what comes in --------------------------------------------------------------------------------------------------

    def send(self, source: str, rows: Rows) -> None:
        """Write records to the topic of a source or table.

        `rows` are dicts or a Polars frame, which the source's formats encode; or `Record`s; or pairs of key and value.
        For a source of several topics, `source` is the topic; a new one that its pattern matches is created. Raises
        ConfigError for a row that does not fit.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("words", value=fk.Json({"word": str})).sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.send("words", [{"word": "to"}, ("be", b'{"word": "be"}')])
        >>> app.waiting
        2
        """
        at = source_named(self._plan, source)
        topic = topic_of(at, source)
        if topic not in self._cluster.counts:
            self.join(topic)
        for sent in encoded(at, rows, self._cluster.clock):
            self._append(topic, sent)

    def join(self, topic: str, partitions: int = 1) -> None:
        """Create a topic that a source's pattern matches. The next step records where it begins, as on a real cluster.

        >>> import falkirk as fk
        >>> flow = fk.Flow("orders")
        >>> orders = flow.source("orders", topic=fk.Pattern("orders-.*"), value=fk.Json({"id": int}), metadata=["topic"])
        >>> orders.sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow, topics=["orders-eu"])
        >>> app.join("orders-us", partitions=2)
        >>> app.send("orders-us", [{"id": 7}])
        >>> app.run()
        >>> app.sinks["copies"].rows
        [{'id': 7, 'topic': 'orders-us'}]
        """
        self._cluster.join(topic, partitions)
        self._die(keep=FOREVER)

    def grow(self, topic: str, partitions: int) -> None:
        """Give a source's topic more partitions. The next step records where they begin, as on a real cluster. Raises
        ConfigError if the flow cannot read them: a key's rows would be in two tasks.

        >>> import falkirk as fk
        >>> flow = fk.Flow("orders")
        >>> orders = flow.source("orders", value=fk.Json({"id": int}), metadata=["partition"])
        >>> orders.sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.grow("orders", 2)
        >>> app.send("orders", [{"id": 7}, {"id": 8}])
        >>> app.run()
        >>> sorted(row["partition"] for row in app.sinks["copies"].rows)
        [0, 1]
        """
        self._cluster.grow(topic, partitions)
        self._die(keep=FOREVER)

    def advance(self, duration: DurationLike) -> None:
        """Move the clock forward: "10s" or a timedelta. Timers that are due then fire in the next step.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("words", value=fk.Json({"word": str})).sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> before = app.now
        >>> app.advance("10s")
        >>> (app.now - before).total_seconds()
        10.0
        """
        self._cluster.clock = Millis(self._cluster.clock + durations.duration(duration) // timedelta(milliseconds=1))
        self._cluster.broker.now = self._cluster.clock

    @property
    def waiting(self) -> int:
        """How many records wait in the fullest partition that the flow reads, without tables."""
        return self._worker().waiting()

    @property
    def now(self) -> datetime:
        """The clock, in UTC. It begins at the start of 2026, or where `now=` says, and moves only by `advance`."""
        return moment(self._cluster.clock)

    # -- what happens ---------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Run one step of each task that has something to do, and commit them. False: nothing was left to do.

        Raises what stops a worker (UserCodeError, SourceError, DivergenceError); the next step tries the same records
        again.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("words", value=fk.Json({"word": str})).sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.send("words", [{"word": "to"}])
        >>> app.step(), app.step()
        (True, False)
        """
        if not self._closed():
            return False
        self._worker().commit()
        self._worker().flush()
        self._note()
        return True

    def run(self) -> None:
        """Run steps until nothing is left to do; then an epoch of each batch part that has new input. Raises what
        `step` raises.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("words", value=fk.Json({"word": str})).sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.send("words", [{"word": "to"}])
        >>> app.run()
        >>> app.sinks["copies"].rows
        [{'word': 'to'}]
        """
        while self.step():
            pass
        self.run_epochs()

    def run_epochs(self) -> None:
        """Run an epoch of each batch part that has new input, and the steps that follow from it.

        >>> import falkirk as fk
        >>> flow = fk.Flow("copy")
        >>> flow.source("words", value=fk.Json({"word": str})).sink("copies", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.run_epochs()  # this flow has no batch part
        """
        for topic, sent in self._epochs.run():
            for record in sent:
                self._append(topic, record)
        self._look()
        while self.step():
            pass

    def crash(self, *, host: bool = False) -> None:
        """Kill the worker; another takes over its tasks. With `host=True` its disk is lost too, and state is recovered
        from Kafka.

        Raises DivergenceError if a lazy step that runs again gives another result.

        >>> import falkirk as fk
        >>> flow = fk.Flow("words")
        >>> words = flow.source("words", key="word", value=fk.Json({"word": str}))
        >>> words.group_by("word", id="counts").agg(n=fk.len()).sink("counts", key="word", value=fk.Json())
        >>> app = fk.testing.App(flow)
        >>> app.send("words", [{"word": "to"}])
        >>> app.run()
        >>> app.crash(host=True)
        >>> app.state("counts").rows()
        [('to', 1)]
        """
        self._die(host=host)
        self._worker()

    def change(
        self,
        flow: Flow,
        *,
        drop: Collection[str] = (),
        rebuild: Collection[str] = (),
        host: bool = False,
        on_divergence: OnDivergence | None = None,
    ) -> None:
        """End the worker, and continue under the app's name with another flow, as `falkirk run` would.

        It has the state that it keeps or migrates. `rebuild` are operators whose state is computed again from their
        input (the worker then ends cleanly); `drop` are those whose state is deleted. With `host=True` the disk is
        lost too, and the new flow runs lazy steps again. `on_divergence`, if given, replaces the app's. Raises
        StateError, SourceError, ConfigError and DivergenceError.

        >>> import falkirk as fk
        >>> def counting(sink):
        ...     flow = fk.Flow("words")
        ...     words = flow.source("words", key="word", value=fk.Json({"word": str}))
        ...     words.group_by("word", id="counts").agg(n=fk.len()).sink(sink, key="word", value=fk.Json())
        ...     return flow
        >>> app = fk.testing.App(counting("counts"))
        >>> app.send("words", [{"word": "to"}])
        >>> app.run()
        >>> app.change(counting("totals"))
        >>> app.send("words", [{"word": "to"}])
        >>> app.run()
        >>> app.sinks["totals"].rows
        [{'word': 'to', 'n': 2}]
        """
        if rebuild:
            self._worker().leave()
            self._die()
        self._cluster.change(flow.plan(), drop, rebuild)
        if on_divergence is not None:
            self._cluster.corrects = on_divergence == "correct"
        self._die(host=host)
        self._epochs.change(self._plan)
        self._sinks = {view.name: view for view in views_of(self._plan) if view.kind == "sink"}
        self._outlets = outlets_of(self._plan)
        self._written = {topic: [] for topic in self._outputs()} | self._written
        self._worker()

    def _worker(self) -> Process:
        if self._process is None:
            try:
                self._process = Process(self._cluster)
            except FalkirkError:
                self._die()
                raise
            self._process.flush()  # or each death would make it recover everything again
            self._look()
        return self._process

    def _die(self, *, keep: int = 0, host: bool = False) -> None:
        if self._process is not None:
            self._process.end()
        self._process = None
        self._cluster.disk.crash(keep)
        if host:
            self._cluster.lose_disk()

    def _closed(self) -> bool:
        try:
            closed = self._worker().close(self.step_rows)
        except FalkirkError:
            self._die()
            raise
        self._late = self._worker().late()
        return closed

    def _note(self) -> None:
        self.steps += 1
        self.late += self._late
        known = {topic: len(self._written[topic]) for topic in self._letters()}
        self._look()
        letters = [m.value() for topic, n in known.items() for m in self._written[topic][n:]]
        self._warned = self._warned or warned_of_dates(letters, self.now)

    def _append(self, topic: str, record: Sent) -> None:
        count = self._cluster.counts[topic]
        place = TopicPartition(topic, placed(record, topic, count, self._unkeyed))
        if not 0 <= place.partition < count:
            raise ConfigError(
                f"topic {topic!r} has {counted(count, 'partition')} from 0 on, and not {place.partition}",
                hint=f"partitions={{{topic!r}: {place.partition + 1}}} gives it more",
            )
        self._cluster.broker[place].append(record.key, record.value, record.millis, None, record.headers)
