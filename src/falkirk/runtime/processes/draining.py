"""Leaving when the work is done: at the end of what the sources held at the start, or when someone asks for a drain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from falkirk.checkpoint.ids import Offset, TopicPartition
from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.errors import FalkirkError
from falkirk.runtime.app.app import App, prepared
from falkirk.runtime.app.until_end import UntilEnd
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.protocol import Request
from falkirk.runtime.messages.requests import RequestListener

LOOK = 1.0
"""Seconds between two looks for what the workers have recorded."""


class Following:
    """Looks for the end in its own thread: a cluster that does not answer must not block the supervisor."""

    def __init__(self, end: Callable[[], UntilEnd]) -> None:
        self._error: FalkirkError | None = None
        self._ended = threading.Event()
        threading.Thread(target=self._follow, args=(end,), daemon=True).start()

    def finished(self) -> bool:
        """Whether everything is processed. Raises FalkirkError if that is not known."""
        if self._error is not None:
            raise self._error
        return self._ended.is_set()

    def _follow(self, make: Callable[[], UntilEnd]) -> None:
        try:
            end = make()
            while not end.finished():
                time.sleep(0.1)
        except FalkirkError as error:
            self._error = error
        self._ended.set()


class Draining:
    """Listens for drains from now on. An earlier one is for those who ran then."""

    def __init__(self, app: App, settings: Settings, topics: Topics, tell: Callable[[str], None]) -> None:
        self._app, self._settings, self._topics, self._tell = app, settings, topics, tell
        self._requests = RequestListener(settings.cluster(), app.control)
        self._before: str | None = None
        self._following: Following | None = None

    def finished(self) -> bool:
        """Whether to leave. Cheap to ask often. Raises FalkirkError if that is not known."""
        if self._following is not None:
            return self._following.finished()
        heard = self._requests.heard()
        if heard is None or not self._app.tasks:
            return False
        asked = heard.drain
        if self._before is None:
            self._before = "" if asked is None else asked.id
        if asked is not None and asked.id != self._before:
            self._tell(
                f"{self._app.name} drains, on request of {asked.by}: it stops when what the sources hold now is processed"
            )
            self._following = Following(lambda: self._until(asked))
        return False

    def close(self) -> None:
        """Stop listening."""
        self._requests.close()

    def _until(self, asked: Request) -> UntilEnd:
        ends = {TopicPartition(t, p): Offset(end) for t, ends in asked.ends.items() for p, end in enumerate(ends)}
        return UntilEnd(self._present(ends.keys()), self._settings.cluster(), self._topics, ends)

    def _present(self, places: Collection[TopicPartition]) -> App:
        """The app as its workers run it: topics and partitions may have joined its sources since this run began. They are in
        the layout, from which the request has them."""
        app = self._app
        if app.until is not None or set(places) <= {i.place for bound in app.tasks for i in bound.inputs}:
            return app
        while (now := prepared(app.plan, self._settings, self._topics)) is None:
            time.sleep(LOOK)  # more have come, and a worker is about to record them
        return now
