"""A gateway: the HTTP sources and the sinks of an app, and the server in front of them.

listens ──topics are there──▶ reads the answers ──to their end──▶ takes requests ──SIGTERM──▶ lets those under way end
   │ └──────────── 503 ────────────────┘                                │
   └────────────────────────── the app is deleted ◀─────────────────────┘

Subscribers of a sink need none of this: they get what is committed in its topic, whether the app runs or not.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from falkirk.connectors.http.app import Limits, application
from falkirk.connectors.http.messages import Asked, Events, Reply, Subscribe, refused
from falkirk.connectors.http.server import Server, bound_socket, serve
from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import ConfigError, FalkirkError, IdentityError
from falkirk.runtime.gateway.appender import Appender
from falkirk.runtime.gateway.desk import Desk, ToAppend
from falkirk.runtime.gateway.health import Health
from falkirk.runtime.gateway.metrics import Metrics, ReducedRows
from falkirk.runtime.gateway.options import GatewayOptions, check_options
from falkirk.runtime.gateway.recording import as_they_are, reduced_by
from falkirk.runtime.gateway.subscriptions import Subscriptions
from falkirk.runtime.gateway.table import Heard, Table
from falkirk.runtime.gateway.tail import Tail
from falkirk.runtime.gateway.topics import AppTopics, aside
from falkirk.runtime.host.identity import hold, host_name
from falkirk.runtime.host.listening import EVERYWHERE, is_loopback, parse_address, shown_address
from falkirk.runtime.host.open_files import raise_file_limit
from falkirk.runtime.host.settings import Settings
from falkirk.stream.definition.names import control_topic
from falkirk.stream.definition.requests import RequestsPlan
from falkirk.stream.formats import Json
from falkirk.stream.operators.sinks.answer import AnswerSink
from falkirk.stream.operators.sources.reduction import Reduction
from falkirk.stream.operators.sources.requests import HttpSource
from falkirk.stream.stages.plan import Plan
from falkirk.stream.stages.stage import PhysicalStage

MOST_HERE = 64
"""Gateways that may share a state directory."""

FIELDS = 10_000
"""Bytes that a record may have beside its body."""

NOT_YET = refused(503, "the app has not run yet", again=5)
READING = refused(503, "the gateway is starting: it reads the answers", again=1)
LATE = refused(
    504, "there is no answer yet: the request has been taken, or may have been",
    hint="ask again with the same Idempotency-Key", again=1,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Served:
    """An HTTP source, and whether the flow answers it with rows."""

    plan: RequestsPlan
    value: Json
    """The format of the records of requests."""
    reduction: Reduction | None
    """What is done with the rows of requests before they are appended."""
    with_rows: bool
    stages: frozenset[str]
    """Those on the way from the requests to the answers."""


def served_by(plan: Plan) -> dict[str, Served]:
    """The HTTP sources of a flow, by name.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> flow.http("orders", value=fk.Json({"usd": int})).sink("all", value=fk.Json())
    >>> flow.http("asked", value=fk.Json({"usd": int})).answer("asked")
    >>> {name: served.with_rows for name, served in served_by(flow.plan()).items()}
    {'orders': False, 'asked': True}
    """
    stages = plan.planned
    with_rows = {o.plan for stage in stages for o in stage.operators if isinstance(o, AnswerSink) and o.has_rows}
    found: dict[str, Served] = {}
    for source in (source for stage in stages for source in stage.sources if isinstance(source, HttpSource)):
        assert isinstance(source.value, Json)
        way = stages_between(stages, source)
        found[source.id] = Served(source.plan, source.value, source.reduction, source.plan in with_rows, way)
    return found


def stages_between(stages: Sequence[PhysicalStage], source: HttpSource) -> frozenset[str]:
    """The stages that a request passes until it is answered. `stages`: upstream first."""
    written = {edge.topic: stage for stage in stages for edge in stage.edges_out}
    behind: set[str] = set()
    for stage in stages:
        if source in stage.sources or any(written[edge.topic].id in behind for edge in stage.edges_in):
            behind.add(stage.id)
    before: set[str] = set()
    for stage in reversed(stages):
        answers = any(isinstance(o, AnswerSink) and o.plan is source.plan for o in stage.operators)
        if answers or stage.id in before:
            before |= {stage.id, *(written[edge.topic].id for edge in stage.edges_in)}
    return frozenset(behind & before)


class SourceGateway:
    """One source, as long as its topics exist."""

    def __init__(
        self,
        gateway: Gateway,
        served: Served,
        answers: TopicInfo,
        folder: Path,
        settings: Settings,
        options: GatewayOptions,
    ) -> None:
        plan, cluster, loop = served.plan, settings.cluster(), asyncio.get_running_loop()
        self.table = Table(folder / f"{plan.name}.db", answers.id, plan.keep)

        def heard(records: list[Heard]) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self.desk.heard, records)

        def failed(error: Exception) -> None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(gateway.fail, error)

        def lost(key: str, reply: Reply) -> None:
            self.desk.failed(key, reply)

        def empty(one: ToAppend) -> None:
            self.desk.nothing_left(one.key, one.digest, time.time_ns() // 1_000_000)

        reduction = served.reduction
        records = as_they_are(served.value) if reduction is None else reduced_by(reduction, plan.name, gateway.rows)
        self.appender = Appender(
            cluster,
            plan.topic,
            records,
            largest=options.body + FIELDS,
            patience=options.within,
            failed=lost,
            empty=empty,
        )
        self.desk = Desk(
            plan.keep, served.with_rows, options.in_flight, self.table, self.appender.append,
            lambda: gateway.health.lately(time.monotonic(), served.stages), reduces=reduction is not None,
        )  # fmt: skip
        self.tail = Tail(cluster, plan.answers, answers.partitions, self.table, plan.keep, heard, failed)
        self.tail.start()

    def close(self) -> None:
        """End its threads."""
        self.appender.close()
        self.tail.close()
        self.table.close()


class Gateway:
    """Of one app. See `falkirk.connectors.http.messages.Desk`."""

    def __init__(self, plan: Plan, settings: Settings, options: GatewayOptions, folder: Path) -> None:
        self._plan, self._settings, self._options, self._folder = plan, settings, options, folder
        self._served = served_by(plan)
        self._sources: dict[str, SourceGateway] = {}
        self.health = Health()
        self.error: Exception | None = None
        self._ended = threading.Event()
        self.stop: Callable[[], None] = lambda: None
        """Ends the server."""
        self.stops: Callable[[], bool] = lambda: False
        """Whether the server ends."""
        self._subscriptions = Subscriptions(plan, settings, options.subscribers, self._ends)
        self.rows = ReducedRows(name for name, served in self._served.items() if served.reduction is not None)
        self._metrics = Metrics(self._subscriptions.metrics, self.rows)

    def check(self) -> None:
        """Raises ConfigError if there is nothing to serve, or if a request may be appended so late that its key counts no
        longer."""
        if not self._served and not self._subscriptions.sinks:
            raise ConfigError(
                f"flow {self._plan.app!r} has no HTTP source, and no sink to subscribe to",
                hint='define one: flow.http("orders", value=fk.Json({"usd": int}))'
                + ("" if self._options.subscribers else "; and sinks are served with --subscribers"),
            )
        for name, served in self._served.items():
            if served.plan.keep < 2000 * self._options.within:
                raise ConfigError(
                    f"a request may wait for longer than its key counts: --answer-within is {self._options.within:g} s",
                    where=f"HTTP source {name!r}, keep= of {served.plan.keep / 1000:g} s",
                    hint="let keep= be twice as long at least",
                )

    def _ends(self) -> bool:
        return self.stops()

    def knows(self, source: str) -> bool:
        return source in self._served

    def takes_rows(self, source: str) -> bool:
        return self._served[source].reduction is not None

    def why_not(self) -> str:
        """Why requests are refused now; "": they are taken."""
        if self._served and not self._sources:
            return "the app has not run yet"
        if not all(source.tail.ready for source in self._sources.values()):
            return "the gateway is starting"
        now = time.monotonic()
        found = (self.health.why_not(now, served.stages) for served in self._served.values())
        return next((str(msgspec.json.decode(why.body)["error"]) for why in found if why is not None), "")

    async def ask(self, asked: Asked) -> Reply:
        """Answer a request, or refuse it."""
        if (source := self._sources.get(asked.source)) is None:
            return NOT_YET
        if not source.tail.ready:
            return READING
        told: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def tell(reply: Reply) -> None:
            if not told.done():
                told.set_result(reply)

        try:
            leave = source.desk.arrives(asked, tell, time.monotonic(), time.time_ns() // 1_000_000)
        except FalkirkError as error:
            self.fail(error)
            return refused(503, "the gateway ends: see its log", again=5)
        if leave is None:
            return told.result()
        try:
            async with asyncio.timeout(self._options.within):
                return await told
        except TimeoutError:
            return LATE
        finally:
            leave()

    async def subscribe(self, asked: Subscribe) -> tuple[Events, str] | Reply:
        """The events of a new subscriber, and where it begins; or why it gets none."""
        return await self._subscriptions.subscribe(asked)

    def metrics(self) -> Reply:
        """What is measured."""
        return self._metrics.reply()

    async def open(self) -> None:
        """Wait until the topics of requests and answers exist; then begin. If the app is deleted, begin again with the next
        one of its name. Raises FalkirkError."""
        if not self._served:
            return
        control = control_topic(self._settings.prefix, self._plan.app)
        names = {name for served in self._served.values() for name in (served.plan.topic, served.plan.answers)}
        topics = AppTopics(await asyncio.to_thread(Topics, self._settings.cluster()), {control, *names}, self._ended)
        while (found := await aside(topics.wait)) is not None:
            self.health.listen(self._settings.cluster(), control)
            for name, served in self._served.items():
                self._sources[name] = SourceGateway(
                    self, served, found[served.plan.answers], self._folder, self._settings, self._options
                )
            await aside(partial(topics.watch, found))
            if not self._ended.is_set():
                await self._let_go()

    async def _let_go(self) -> None:
        """The app was deleted: nothing that is known of it counts any more."""
        self.health.close()
        self.health = Health()
        gone, self._sources = self._sources, {}
        for source in gone.values():
            source.desk.give_up(LATE)
        await asyncio.sleep(0)  # what came in this turn is appended
        for source in gone.values():
            await asyncio.to_thread(source.close)

    def fail(self, error: Exception) -> None:
        """It cannot go on."""
        self.error = self.error or error
        self.stop()

    def close(self) -> None:
        """End its threads."""
        self._ended.set()
        self._subscriptions.close()
        self.health.close()
        for source in self._sources.values():
            source.close()


async def serve_app(
    plan: Plan, settings: Settings, options: GatewayOptions, told: Callable[[str, Server], None] = lambda *_: None
) -> None:
    """Serve the HTTP sources and the sinks of an app until a signal, or until the server is stopped. `told` gets the URL and
    the server when it listens. Raises FalkirkError."""
    token = check_options(options)
    raise_file_limit()  # each connection is one
    host, port = parse_address(options.listen, "--listen")
    with folder_of_its_own(Path(settings.state_dir) / plan.app) as folder:
        gateway = Gateway(plan, settings, options, folder)
        gateway.check()
        limits = Limits(options.body, token, loopback=is_loopback(host))
        at = bound_socket(host, port)
        app = application(gateway, limits, is_loopback)
        # Connections that are open and idle count, too.
        server = serve(app, at, 2 * options.in_flight + options.subscribers + 1000, options.tls)
        gateway.stop = server.stop
        gateway.stops = lambda: server.stops
        shown = shown_address(host_name() if host in EVERYWHERE else host, at.getsockname()[1])
        told(f"http{'s' if options.tls else ''}://{shown}", server)
        opening = asyncio.create_task(gateway.open())
        opening.add_done_callback(lambda done: None if done.cancelled() else _ended(done, gateway))
        try:
            await server.run()
        finally:
            gateway.close()
            opening.cancel()
            with suppress(asyncio.CancelledError, Exception):  # its error is the gateway's
                await opening
    if gateway.error is not None:
        raise gateway.error


def _ended(opening: asyncio.Task[None], gateway: Gateway) -> None:
    if isinstance(error := opening.exception(), Exception):
        gateway.fail(error)


@contextmanager
def folder_of_its_own(of_app: Path) -> Iterator[Path]:
    """A folder that no other gateway uses as long as this one runs. Raises IdentityError and DiskError."""
    with ExitStack() as stack:
        for number in range(MOST_HERE):
            folder = of_app / f"gateway-{number}"
            try:
                stack.enter_context(hold(folder / "lock", f"gateway {number} of app {of_app.name!r}"))
            except IdentityError:
                continue
            break
        else:
            raise IdentityError(
                f"there are {MOST_HERE} gateways of app {of_app.name!r} already", where=str(of_app),
                hint="give this one a separate state directory with --state-dir",
            )  # fmt: skip
        yield folder
