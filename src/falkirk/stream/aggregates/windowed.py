"""A function of the rows around each row, as a column: `fk.sum("price").over("auction")`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from falkirk.stream.aggregates.bound import AggregateLike


class Window(NamedTuple):
    """The options of `stream.over`, in a form that tells which of them are the same."""

    columns: tuple[Any, ...]
    order_by: Any
    descending: Any
    rows: Any
    range: Any
    id: str | None
    version: int


@dataclass(frozen=True)
class OverColumn:
    """A function, and the rows that it is of, for `with_columns`."""

    function: AggregateLike
    window: Window


def frozen(given: Any) -> Any:
    """Sequences as tuples, so that they can be compared and hashed.

    >>> frozen(["at", "id"]), frozen("at"), frozen(None)
    (('at', 'id'), 'at', None)
    """
    return tuple(given) if isinstance(given, Sequence) and not isinstance(given, str) else given
