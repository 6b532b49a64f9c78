"""Threads that run jobs, and do not block the end of the process: a job may hang as long as a dead mount does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class ThreadPool:
    """This many threads, started as they are needed."""

    def __init__(self, size: int, name: str) -> None:
        self._size, self._name = size, name
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._begun, self._closed = 0, False
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Run it as soon as a thread is free. Raises RuntimeError if the pool is closed: no thread would run it."""
        if self._closed:
            raise RuntimeError(f"the threads {self._name} have been ended")
        future: Future[T] = Future()
        self._jobs.put((future, job))
        if not self._idle.acquire(blocking=False) and self._begun < self._size:
            self._begun += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._begun}", daemon=True).start()
        return future

    def close(self) -> None:
        """Let each thread end when no job is left. It does not wait: a job may hang."""
        if not self._closed:
            self._closed = True
            for _ in range(self._begun):
                self._jobs.put(None)

    def _work(self) -> None:
        while (given := self._jobs.get()) is not None:
            future, job = given
            try:
                future.set_result(job())
            except BaseException as error:  # noqa: BLE001  # it is raised again where the result is asked for
                future.set_exception(error)
            # Until its next job, a thread would keep what these refer to: of an error, its frames, and a store's iterators
            # in them, which keep the store's files locked.
            del given, future, job
            self._idle.release()


class ConcurrencyLimit:
    """Limits how many threads do something at a time; one that only waits makes room for another.

    >>> slots = ConcurrencyLimit(1)
    >>> with slots, slots.left():
    ...     with slots:
    ...         "another's turn"
    "another's turn"
    """

    def __init__(self, size: int) -> None:
        self._free = threading.Semaphore(size)
        self._held = threading.local()

    def __enter__(self) -> None:
        self._free.acquire()
        self._held.depth = getattr(self._held, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        self._held.depth -= 1
        self._free.release()

    @contextmanager
    def left(self) -> Iterator[None]:
        """While this thread waits. Nothing happens if it has no slot."""
        if not getattr(self._held, "depth", 0):
            yield
            return
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()
