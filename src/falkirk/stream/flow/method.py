"""Operators as methods of a stream: `unique = method(unique)` in the class is all that an operator needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from falkirk.blame import user_line
from falkirk.stream.dataflow.operator import Operator

if TYPE_CHECKING:
    from falkirk.stream.flow.streams import Stream

P = ParamSpec("P")
RowT = TypeVar("RowT")


def method(
    make: Callable[Concatenate[Operator, str, P], Operator],
) -> Callable[Concatenate[Stream[RowT], P], Stream[RowT]]:
    """A method that adds an operator behind a stream. `make` is given the stream's operator, the user's line, and what the
    user gives; rows keep their type."""

    @wraps(make)
    def added(stream: Stream[RowT], /, *args: P.args, **options: P.kwargs) -> Stream[RowT]:
        try:
            signature.bind(stream, *args, **options)
        except TypeError as error:
            raise TypeError(f"{make.__name__}(): {error}") from None
        before = stream._op
        operator = make(before, user_line(), *args, **options)
        return type(stream)(stream._graph, stream._graph.add(operator, exchange=operator.root != before.root))

    # What help() shows: without the operator and the line, which are not the user's to give.
    _, _, *given = inspect.signature(make).parameters.values()
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.Signature([itself, *given], return_annotation="Stream[RowT]")
    added.__signature__ = signature  # type: ignore[attr-defined]
    return added
