"""Where a simulated worker can be stopped, and what may happen to it there.

Every call of a port yields a `Point` to the driver of the coroutine, which answers with an `Order`. A request to the cluster
is two points: before it takes effect, and after, when the reply has not been seen yet.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from enum import Enum
from types import coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Order(Enum):
    """What the driver does to a request."""

    GO = "goes on"
    LOSE = "is lost; the sender does not know"
    DELAY = "is under way when the sender stops waiting for it"
    REFUSE = "is refused: the transaction aborts"
    TWICE = "is sent twice by the client, since its connection broke: the first one is still under way"


@dataclass(frozen=True, slots=True)
class Point:
    """One place between two things that a worker does."""

    what: str
    request: Callable[[], object] | None = None
    """The request about to be sent, if its loss leaves the sender in doubt."""
    waits: bool = False
    """The worker can do nothing until something else happens."""
    takes: float = 0.0
    """Seconds, if time is simulated (`copies.py`)."""


@coroutine
def reach(point: Point) -> Generator[Point, Order, Order]:
    """Stop here until the driver continues."""
    return (yield point)


def drive(work: Coroutine[Any, Any, T], at_point: Callable[[Point], object] = lambda _: None) -> T:
    """Run a coroutine to its end, calling `at_point` wherever it stops; every request goes through.

    >>> async def work():
    ...     return await reach(Point("here"))
    >>> drive(work(), print)
    Point(what='here', request=None, waits=False, takes=0.0)
    <Order.GO: 'goes on'>
    """
    order: Order | None = None
    while True:
        try:
            at_point(work.send(order))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        order = Order.GO
