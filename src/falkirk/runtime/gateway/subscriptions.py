"""The subscribers of one gateway: who may subscribe to what, and how many.

    subscribe ──unknown sink, no position, too many──▶ refused
        └──▶ has a place ──▶ begins ──▶ some ──▶ some ──▶ … ──▶ its consumer is closed ──▶ the place is free

Each has a consumer of its own, and a thread as long as it reads. All else happens in the thread of a loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property

from falkirk.blame import did_you_mean
from falkirk.connectors.http.messages import Ended, Events, Reply, Some, Subscribe, refused
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import FalkirkError
from falkirk.runtime.gateway.decoded import Decoded
from falkirk.runtime.gateway.follower import Follower, begun, in_words
from falkirk.runtime.gateway.metrics import SubscriberMetrics
from falkirk.runtime.gateway.positions import Position
from falkirk.runtime.host.settings import Settings
from falkirk.stream.access.endpoints import View, views_of
from falkirk.stream.operators.sinks.answer import AnswerSink
from falkirk.stream.stages.plan import Plan
from falkirk.wording import counted

LOOK = 0.5
"""Seconds between two looks whether the gateway stops."""

OFF = refused(404, "this gateway has no subscribers", hint="start it with --subscribers")


def sinks_of(plan: Plan) -> dict[str, View]:
    """The sinks that can be subscribed to, by name. Answers to requests are for those who asked.

    >>> import falkirk as fk
    >>> flow = fk.Flow("shop")
    >>> orders = flow.http("orders", value=fk.Json({"usd": int}))
    >>> orders.sink("all", value=fk.Json())
    >>> orders.answer("orders")
    >>> list(sinks_of(flow.plan()))
    ['all']
    """
    answers = {o.id for stage in plan.planned for o in stage.operators if isinstance(o, AnswerSink)}
    return {view.name: view for view in views_of(plan) if view.kind == "sink" and view.name not in answers}


class Subscriptions:
    """Of one gateway. It is used in the thread of a loop."""

    def __init__(self, plan: Plan, settings: Settings, most: int, stops: Callable[[], bool]) -> None:
        """`most`: subscribers at a time. `stops`: whether the gateway stops."""
        self.sinks = sinks_of(plan) if most else {}
        self.metrics = SubscriberMetrics(self.sinks)
        self.stops = stops
        self._app, self._settings, self._most = plan.app, settings, most
        self._held = 0
        self._decoded = {name: Decoded(view) for name, view in self.sinks.items()}
        # A subscriber makes one call at a time.
        self.pool = ThreadPoolExecutor(max(1, most), "falkirk-subscriber")

    @cached_property
    def _topics(self) -> Topics:
        return Topics(self._settings.cluster())

    async def subscribe(self, asked: Subscribe) -> tuple[Events, str] | Reply:
        """The events of a new subscriber, and where it begins; or why it gets none."""
        if not self._most:
            return OFF
        if (view := self.sinks.get(asked.sink)) is None:
            return refused(404, f"the flow has no sink {asked.sink!r}", hint=did_you_mean(asked.sink, self.sinks))
        start = asked.start if asked.start in ("earliest", "latest") else Position.parse(asked.start)
        if start is None:
            return refused(
                400, f"{asked.start[:80]!r} is not a position",
                hint="give earliest, latest, or the id of an event as it came",
            )  # fmt: skip
        if self._held >= self._most:
            self.metrics.refused[view.name] += 1
            return refused(503, f"the gateway has {counted(self._most, 'subscriber')} already (--subscribers)", again=5)
        return await self._begin(view, start, asked.key)

    async def _begin(self, view: View, start: str | Position, key: str | None) -> tuple[Events, str] | Reply:
        self._held += 1
        loop = asyncio.get_running_loop()
        beginning = self.pool.submit(self._follower, view, start, key)
        try:
            made = await asyncio.wrap_future(beginning)
        except FalkirkError as error:
            self._held -= 1
            return in_words(error)
        except BaseException:
            # The request is given up, and the thread may still make a consumer.
            beginning.add_done_callback(lambda done: self._give_up(done, loop))
            raise
        if isinstance(made, Reply):
            self._held -= 1
            return made
        self.metrics.subscribers[view.name] += 1
        logger.info("a subscriber of sink %s begins", view.name)
        return Subscription(self, view.name, made), made.position.text()

    def _follower(self, view: View, start: str | Position, key: str | None) -> Follower | Reply:
        at = begun(self._topics, view, start)
        if isinstance(at, Reply):
            return at
        return Follower(self._settings.cluster(), self._topics, self._decoded[view.name], at, key)

    def _give_up(self, beginning: Future[Follower | Reply], loop: asyncio.AbstractEventLoop) -> None:
        made = None if beginning.cancelled() or beginning.exception() is not None else beginning.result()
        if isinstance(made, Follower):
            made.close()
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(self._free)

    def _free(self) -> None:
        self._held -= 1

    def left(self, sink: str) -> None:
        """A subscriber has gone, and its consumer is closed."""
        self._free()
        self.metrics.subscribers[sink] -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self.pool.shutdown(wait=False, cancel_futures=True)


class Subscription:
    """One subscriber. See `falkirk.connectors.http.messages.Events`."""

    def __init__(self, of: Subscriptions, sink: str, follower: Follower) -> None:
        self._of, self._sink, self._follower = of, sink, follower
        self._loop = asyncio.get_running_loop()
        self._reading: Future[Some] | None = None

    async def some(self) -> Some | None:
        if self._of.stops():
            return None
        self._reading = self._of.pool.submit(self._follower.read)
        coming = asyncio.wrap_future(self._reading)
        try:
            # While the cluster is away, a read takes long.
            while not (await asyncio.wait({coming}, timeout=LOOK))[0]:
                if self._of.stops():
                    return None
            found = coming.result()
        except FalkirkError as error:
            raise Ended(in_words(error)) from error
        self._of.metrics.events[self._sink] += len(found.events)
        return found

    def cut(self) -> None:
        self._of.metrics.cut[self._sink] += 1
        logger.warning(
            "a subscriber of sink %s takes nothing: it is cut off, and can go on after its last event", self._sink
        )

    def close(self) -> None:
        if self._reading is None:
            self._end(None)
        else:  # a consumer that is read is not to be closed
            self._reading.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        with suppress(RuntimeError):  # the gateway has ended
            self._of.pool.submit(self._closed)

    def _closed(self) -> None:
        try:
            self._follower.close()
        finally:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._of.left, self._sink)
