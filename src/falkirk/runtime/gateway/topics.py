"""The topics of an app that a gateway needs: they are waited for, and then watched.

    missing ──the app runs──▶ there ──deleted, or made again──▶ missing

A gateway outlives an app that is deleted and runs again under its name. Positions in the topics of the old app, and the
answers that were read from them, mean nothing in those of the new one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import TypeVar

from falkirk.connectors.kafka.admin.described import TopicInfo
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.errors import FalkirkError, UnreachableError

T = TypeVar("T")

LOOK = 0.5
"""Seconds between two looks whether the topics are there."""

WATCH = 5.0
"""Seconds between two looks whether they are still the same."""

MISSING = 5.0
"""Seconds for which a topic must be missing: a broker that has just started may not know all of them."""


class AppTopics:
    """Those of one app. Its calls block, until `ended`."""

    def __init__(self, topics: Topics, names: Collection[str], ended: threading.Event) -> None:
        self._topics, self._names, self._ended = topics, frozenset(names), ended

    def wait(self) -> dict[str, TopicInfo] | None:
        """Wait until all are there. None: it has ended before. Raises ClusterError."""
        said = False
        while not self._ended.is_set():
            try:
                found = self._topics.describe(self._names)
                if not (missing := self._names - found.keys()):
                    return found
                if not said:
                    logger.warning(
                        "the gateway waits for topics that the app makes when it runs: %s", ", ".join(sorted(missing))
                    )
                    said = True
            except UnreachableError as error:
                logger.warning("the gateway waits: %s", error.what)
            self._ended.wait(LOOK)
        return None

    def watch(self, known: Mapping[str, TopicInfo]) -> None:
        """Wait until they are others, or gone."""
        since: float | None = None
        """When some were first seen to be missing."""
        while not self._ended.wait(WATCH if since is None else LOOK):
            try:
                found = self._topics.describe(self._names)
            except FalkirkError as error:  # then nothing is known of them
                logger.debug("whether the app's topics are still there is not known: %s", error)
                continue
            if other := [name for name, info in found.items() if info.id != known[name].id]:
                logger.warning("the gateway begins again: the app was deleted, and has another topic %s", min(other))
                return
            if not (missing := self._names - found.keys()):
                since = None
                continue
            since = time.monotonic() if since is None else since
            if time.monotonic() - since >= MISSING:
                logger.warning("the gateway begins again: the app was deleted, and topic %s with it", min(missing))
                return


async def aside(call: Callable[[], T]) -> T:
    """The result of a call that blocks, in a thread that holds up nothing: at the end of its loop, nobody waits for it."""
    loop = asyncio.get_running_loop()
    told: asyncio.Future[T] = loop.create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if told.done():
            return
        if error is not None:
            told.set_exception(error)
        else:
            told.set_result(result)  # type: ignore[arg-type]  # there is one if there is no error

    def work() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as raised:  # noqa: BLE001  # whatever it is, it is the caller's
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=work, name="falkirk-topics", daemon=True).start()
    return await told
