"""Watches this host's workers: the news goes to the board, to people, and to the control topic.

    supervisor or worker ──tell──▶ queue ──▶ the watch's own thread ──▶ terminal or log, every moment
                                                                    ──▶ control topic, every five seconds
                                    another thread ──▶ what is left to read, if it is little; other hosts

Nothing here can block the workers or the replacement of dead ones: a stopped terminal (Ctrl-S), a full pipe or a cluster that
does not answer blocks only these threads.
"""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rich.console import Console
from rich.live import Live
from rich.text import Text

from falkirk.connectors.kafka.admin.topics import Topics
from falkirk.connectors.kafka.client.config import logger
from falkirk.connectors.kafka.reading.lag import Counts
from falkirk.errors import FalkirkError
from falkirk.runtime.app.app import App
from falkirk.runtime.app.hosts import Hosts
from falkirk.runtime.host.clock import WallClock
from falkirk.runtime.host.logs import formed, stamped
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.ends import forget_end
from falkirk.runtime.messages.events import Ended, Line, WorkerEvent
from falkirk.runtime.messages.reports import ReportSender
from falkirk.runtime.observe import console
from falkirk.runtime.observe.board import Board

if TYPE_CHECKING:
    from falkirk.runtime.observe.metrics import Metrics

Progress = Callable[[], tuple[int, int]]

FRAME = 0.25
"""Seconds between two frames on a terminal."""
LOG_EVERY = 5.0
"""Seconds between two lines elsewhere."""
LAG_EVERY = 2.0


class Show(Protocol):
    """How people see it."""

    def say(self, lines: list[str]) -> None:
        """Write lines that stay."""
        ...

    def update(self) -> None:
        """Show the board as it is now, if it is time."""
        ...

    def close(self) -> None:
        """Let the lines written so far stand alone."""
        ...


class Watch:
    """Watches an app's workers on one host. `tell` may be called from any thread, and never waits."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        workers: int,
        *,
        live: bool,
        progress: Progress | None = None,
        elsewhere: bool = False,
    ) -> None:
        """`elsewhere`: the workers are on other hosts, and announced there."""
        self.board = Board(app, workers)
        self._metrics: Metrics | None = None
        if settings.http:
            # Imported only if needed: a restarted run is as quick as its imports.
            from falkirk.runtime.observe.http import Http
            from falkirk.runtime.observe.metrics import Metrics

            self._metrics = Metrics(self.board)
            self._http = Http(settings.http, self._metrics)
        self._news: queue.SimpleQueue[WorkerEvent | None] = queue.SimpleQueue()
        self._show: Show = LiveShow(self.board, settings, progress) if live else LogShow(self.board, progress)
        self._announcing, self._elsewhere = ReportSender(settings.cluster(), app.control), elsewhere
        self._lags = threading.Thread(target=self._look_around, args=(app, settings), name="falkirk-lag", daemon=True)
        self._thread = threading.Thread(target=self._run, name="falkirk-watch", daemon=True)
        self._closed = threading.Event()
        self._live, self._handlers = live, logging.root.handlers

    def start(self) -> None:
        """Begin. On a terminal, this process's log lines are shown as news from here on."""
        if self._live and self._handlers:
            lines = Lines(self.tell)
            lines.setFormatter(self._handlers[0].formatter)
            logging.root.handlers = [lines]
        self._lags.start()
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of metrics and probes; "" if there is none."""
        return "" if self._metrics is None else self._http.url

    def turned(self) -> None:
        """The loop of the supervisor, or of the worker itself, has turned once more: it is alive."""
        if self._metrics is not None:
            self._metrics.turned()

    def tell(self, news: WorkerEvent) -> None:
        """Something happened."""
        if self._metrics is not None:
            self._metrics.heard(news)
        self._news.put(news)

    def close(self) -> None:
        """Show all news, and report on the control topic that the workers have left. Waits a few seconds at most."""
        self._closed.set()
        self._news.put(None)
        self._thread.join(5)
        logging.root.handlers = self._handlers
        if self._metrics is not None:
            self._http.close()

    def _run(self) -> None:
        answered = self.board.answers()
        while not self._closed.is_set():
            self._take(FRAME)
            self._show.update()
            before, answered = answered, self.board.answers()
            if self._announcing.due() or answered != before:
                self._announcing.say(() if self._elsewhere else self.board.to_announce(), self.board.epochs.values())
        while not self._news.empty():  # a process's end is not the last news: others' last counts come after it
            self._take(0)
        self._show.close()
        self._announcing.close()

    def _take(self, timeout: float) -> None:
        """Process all news that comes within `timeout` seconds."""
        deadline, lines = time.monotonic() + timeout, []
        take = self.board.take if self._metrics is None else self._metrics.take
        while True:
            try:
                news = self._news.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                break
            if isinstance(news, Line):
                lines.append(news.text)
            elif news is not None and (event := take(news)) is not None:
                lines.append(stamped(event))
            if isinstance(news, Ended) or len(lines) > 1000:
                break
        if lines:
            self._show.say(lines)

    def _look_around(self, app: App, settings: Settings) -> None:
        counts, hosts = Counts(settings.cluster()), Hosts(app, settings, Topics(settings.cluster()))
        before: int | None = WallClock().now()
        while not self._closed.wait(LAG_EVERY):
            try:
                if before is not None:
                    forget_end(settings.cluster(), app.control, before)
                    before = None
                self.board.counted = counts.of(self.board.left())
                hosts.look()
            except FalkirkError as error:
                logger.debug("lag: %s", error)


class LogShow:
    """A line every few seconds, on standard error."""

    def __init__(self, board: Board, progress: Progress | None) -> None:
        self._board, self._progress = board, progress
        self._last = time.monotonic()

    def say(self, lines: list[str]) -> None:
        sys.stderr.write("\n".join(map(formed, lines)) + "\n")
        sys.stderr.flush()

    def update(self) -> None:
        if time.monotonic() - self._last >= LOG_EVERY:
            self._last = time.monotonic()
            progress = self._progress and self._progress()
            self.say([stamped(console.line(self._board, progress))])

    def close(self) -> None:
        pass


class LiveShow:
    """A frame at the foot of a terminal; lines scroll away above it."""

    def __init__(self, board: Board, settings: Settings, progress: Progress | None) -> None:
        self._board, self._brokers, self._progress = board, settings.brokers, progress
        self._console = Console(stderr=True, highlight=False)
        self._live = Live(
            console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )
        self._live.start()

    def say(self, lines: list[str]) -> None:
        self._console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)

    def update(self) -> None:
        self._live.update(console.frame(self._board, self._brokers, self._progress and self._progress()), refresh=True)

    def close(self) -> None:
        self._live.stop()


class Lines(logging.Handler):
    """This process's log records as news: on a terminal they must not run into the frame."""

    def __init__(self, tell: Callable[[WorkerEvent], None]) -> None:
        super().__init__()
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        self._tell(Line(self.format(record)))
