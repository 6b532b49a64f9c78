"""The supervisor: N worker processes, a warm spare for the one that dies next, and the end of them all.

    spare ──slot k──▶ worker k ──dies──▶ the spare becomes worker k; a new spare is started
                         │ FalkirkError that no restart can fix ──▶ all stop; its words and its exit code are ours

A spare has imported everything, loaded the flow and connected to the cluster. After a death, it only joins the group under
the dead worker's identity and takes its tasks over.

A restarted run is as quick as its imports, which keep a processor busy for a second. So the supervisor waits until the first
workers work before it imports what it needs itself.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import IO, Self

from falkirk.errors import CrashError
from falkirk.runtime.host.settings import Settings
from falkirk.runtime.messages.events import Ended, Line, Started, WorkerEvent
from falkirk.runtime.messages.protocol import (
    Failed,
    FromWorker,
    Ready,
    Report,
    Work,
    at_work,
    decode_from_worker,
    encode,
    error_of,
)
from falkirk.runtime.processes.parent import command

CRASHES = 5
"""This many deaths of workers in a row, each within `CRASH_WINDOW` seconds of the start, end the run."""
CRASH_WINDOW = 10.0

SPARE_PAUSE, LONGEST_PAUSE = 5.0, 60.0
"""Seconds until a spare that failed, beside workers, is tried again: a file may be being edited. They double each time: each
start takes a second of a processor, and the cluster may be away for long."""


@dataclass(slots=True, eq=False)
class Child:
    """One worker process."""

    process: subprocess.Popen[bytes]
    slot: int | None = None
    started: float = field(default_factory=time.monotonic)
    ready: bool = False
    works: float = inf
    """When it first had all its tasks running."""
    excused: bool = False
    """It ended for lack of a broker: not its own fault."""


@dataclass(slots=True)
class FromChild:
    """Something a child said, or its end (`said` is None)."""

    child: Child
    said: FromWorker | None


class Supervisor:
    """Runs an app's workers on this host."""

    def __init__(
        self,
        target: str,
        settings: Settings,
        *,
        listen: bool = False,
        slots: Sequence[int] | None = None,
        spare_after: float = 0.0,
    ) -> None:
        """With `listen`, what workers write to standard error is news too. Without `slots`, all that the settings count run.
        A spare is started when all workers have worked for `spare_after` seconds."""
        self._target, self._settings, self._listen_to_errors = target, settings, listen
        self._held: list[WorkerEvent] = []
        """News from before anybody listened."""
        self._news: Callable[[WorkerEvent], None] = self._held.append
        self._events: queue.Queue[FromChild] = queue.Queue()
        self._unheard: deque[FromChild] = deque()
        """Events that came during another wait: handled first."""
        self._workers: dict[int, Child] = {}
        self._spares: list[Child] = []
        self._vacant: deque[int] = deque(range(settings.workers) if slots is None else slots)
        self._spare_after = spare_after
        self._quick_deaths = 0
        self._hold_off, self._pause = 0.0, SPARE_PAUSE

    def __enter__(self) -> Self:
        """Start the first processes: their imports and requests take as long as the caller's own preparations."""
        self._spawn_missing()
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the remaining processes."""
        self.kill()

    def ready(self, stopping: Callable[[], bool] = lambda: False) -> str:
        """Wait until a process can be a worker. Returns of which app: "" if there is an error first, which the caller's own
        preparations will also meet. Other events are left to `run`."""
        later: list[FromChild] = []
        app = ""
        while not app and not stopping():
            if (event := self._event(0.05)) is None:
                continue
            if isinstance(event.said, Ready) and event.said.app:
                event.child.ready, app = True, event.said.app
                continue
            later.append(event)
            if not isinstance(event.said, Report):
                break
        self._unheard.extendleft(reversed(later))
        return app

    def begin(self, stopping: Callable[[], bool]) -> None:
        """Let ready processes work, and the others as soon as they are ready."""
        self._fill(first=True)
        while self._vacant and self.ready(stopping):
            self._fill(first=True)

    def run(self, finished: Callable[[], bool], tell: Callable[[WorkerEvent], None]) -> None:
        """Keep the workers going until `finished()`; then let them leave cleanly. Raises the error of a worker that no
        restart can fix, and CrashError.

        `tell` receives all news, and must not wait.
        """
        self._news = tell
        for news in self._held:
            tell(news)
        self._fill()
        while not finished():
            self._turn(0.05)
        self._leave()

    def _event(self, timeout: float) -> FromChild | None:
        if self._unheard:
            return self._unheard.popleft()
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _turn(self, timeout: float) -> None:
        if (event := self._event(timeout)) is None:
            return
        child = event.child
        match event.said:
            case Ready():
                child.ready, self._pause = True, SPARE_PAUSE
            case Report() as report:
                if child.works == inf and at_work(report):
                    child.works = time.monotonic()
                self._news(report)
                self._quick_deaths = 0 if time.monotonic() - child.started > CRASH_WINDOW else self._quick_deaths
            case Failed() as said:
                self._failed(child, said)
            case None:
                self._ended(child)
        self._fill()

    def _failed(self, child: Child, said: Failed) -> None:
        """Tell of a child's error if another child in its place may succeed. Raises it if none would."""
        spare, error = child in self._spares and bool(self._workers), error_of(said)
        if not said.passing and not spare:
            raise error
        child.excused = True
        if spare:
            again = f"a spare cannot start; retrying in {self._pause:.0f} s"
            self._hold_off = time.monotonic() + self._pause
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self._news(Line(f"{again}: {error}" if spare else str(error)))

    def _fill(self, *, first: bool = False) -> None:
        """Give ready spares the vacant slots; start what is missing."""
        for child in [c for c in self._spares if c.ready]:
            if self._vacant:
                self._spares.remove(child)
                child.slot = self._vacant.popleft()
                self._workers[child.slot] = child
                self._news(Started(child.slot, child.process.pid))
                self._order(child, Work(child.slot, first))
        self._spawn_missing()

    @property
    def working(self) -> bool:
        """Whether all workers work, so that nothing else that starts takes the processor from one that starts or restores."""
        return self._working_since() < inf

    def _working_since(self) -> float:
        return max((child.works for child in self._workers.values()), default=inf)

    def _spawn_missing(self) -> None:
        """A process for each vacant slot; and a spare once all workers work, as a start takes the processor from others."""
        if time.monotonic() < self._hold_off:
            return
        spare = time.monotonic() - self._working_since() >= self._spare_after
        while len(self._spares) < len(self._vacant) + spare:
            self._spares.append(self._spawn())

    def _ended(self, child: Child) -> None:
        code = child.process.wait()
        if child in self._spares:
            self._spares.remove(child)
        elif child.slot is not None and self._workers.get(child.slot) is child:
            del self._workers[child.slot]
            self._vacant.append(child.slot)
        self._news(Ended(child.slot, child.process.pid, ending(code)))
        if time.monotonic() - child.started < CRASH_WINDOW and code > 0 and not child.excused:
            self._quick_deaths += 1
            if self._quick_deaths >= CRASHES:
                when = "at their start" if child.works == inf else "soon after they begin to work"
                raise CrashError(f"workers die {when} ({CRASHES} times): see their tracebacks above")

    def _leave(self) -> None:
        """SIGTERM to all: last steps committed, last versions made. A worker that dies meanwhile is not replaced."""
        for child in self._children():
            child.process.terminate()
        deadline = time.monotonic() + 60
        while self._workers and time.monotonic() < deadline:
            if (event := self._event(0.1)) is None:
                continue
            if isinstance(event.said, Failed):
                self._failed(event.child, event.said)
            if isinstance(event.said, Report):
                self._news(event.said)
            if event.said is None and event.child.slot is not None:
                self._workers.pop(event.child.slot, None)

    def kill(self) -> None:
        """Kill the remaining processes."""
        for child in self._children():
            child.process.kill()
            child.process.wait()

    def _children(self) -> list[Child]:
        return [*self._workers.values(), *self._spares]

    def _spawn(self) -> Child:
        arguments = command("falkirk.runtime.processes.process", self._target)
        pipe = subprocess.PIPE
        errors = pipe if self._listen_to_errors else None
        process = subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=errors, env=os.environ.copy())
        write_line(process, encode(self._settings))
        child = Child(process)
        assert process.stdout is not None
        threading.Thread(target=self._listen, args=(child, process.stdout), daemon=True).start()
        if process.stderr is not None:
            threading.Thread(target=self._pass_on, args=(process.stderr,), daemon=True).start()
        return child

    def _pass_on(self, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._news(Line(line.decode(errors="replace").rstrip("\n")))

    def _listen(self, child: Child, pipe: IO[bytes]) -> None:
        for line in pipe:
            self._events.put(FromChild(child, decode_from_worker(line)))
        self._events.put(FromChild(child, None))

    @staticmethod
    def _order(child: Child, message: Work) -> None:
        write_line(child.process, encode(message))


def write_line(process: subprocess.Popen[bytes], line: bytes) -> None:
    """To the standard input of a process: nobody else sees it there, unlike its arguments. A process that just died reads
    nothing; its owner learns of its end."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.write(line + b"\n")
        process.stdin.flush()


def ending(code: int) -> str:
    """How a process ended, in words.

    >>> ending(-9), ending(70)
    ('was killed by signal 9', 'ended with code 70')
    """
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
