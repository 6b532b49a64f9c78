"""Checks of users' functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from falkirk.errors import DefinitionError


def checked_function(function: Callable[..., Any], where: str) -> None:
    """Raises DefinitionError if it is not callable, or is async: an async call returns a coroutine and not a row."""
    if not callable(function):
        raise DefinitionError(
            f"{function!r} is not a function", where=where, hint="pass the function itself, not its name"
        )
    if any(map(_is_async, (function, getattr(function, "__call__", None)))):  # noqa: B004  # an object may be async to call
        name = getattr(function, "__qualname__", type(function).__qualname__)
        raise DefinitionError(
            f"{name} is async, and a step cannot wait for a coroutine",
            where=where,
            hint="write it with def. What has to wait for others can do so before the records are produced, or after a sink; "
            "a lookup from a table of a topic needs no wait",
        )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
