"""Questions to a cluster that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PendingAnswer(Generic[T]):
    """A pending question to the cluster."""

    def __init__(self, futures: Collection[Future[Any]], answer: Callable[[], T]) -> None:
        self._futures, self._answer = futures, [answer]

    def done(self) -> bool:
        """Whether `result` need not wait."""
        return all(future.done() for future in self._futures)

    def result(self) -> T:
        """The answer, which is given once. Raises ClusterError."""
        # The traceback of an error refers to whoever holds this object. If the object still referred to the error, both would
        # be a cycle of garbage, with the client that was asked in it; and its threads go on until garbage is looked for.
        self._futures = ()
        return self._answer.pop()()
