"""Run a protocol coroutine to its end. Every port call blocks instead of suspending."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The coroutine's result. Its ports must not suspend: only the simulator's do.

    >>> async def protocol() -> int:
    ...     return 7
    >>> run(protocol())
    7
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coroutine.close()
    raise RuntimeError("a blocking port suspended")
