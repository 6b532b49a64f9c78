"""Checks of users' functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
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
            hint="write it with def, or call others with .enrich(…), which records the answers; a lookup from a table of a "
            "topic needs no wait",
        )


def checked_async(function: Any, where: str) -> None:
    """Raises DefinitionError for what `enrich` cannot call: it is neither an async function, nor makes objects that can be
    called so."""
    called = function
    while isinstance(called, partial):
        called = called.func
    if isinstance(called, type):
        if not (hasattr(called, "__aenter__") or _is_async(getattr(called, "__call__", None))):  # noqa: B004
            raise DefinitionError(
                f"objects of {called.__qualname__} cannot be called asynchronously",
                where=where,
                hint="give the class async def __call__(self, row), and __aenter__ and __aexit__ to open and close a client",
            )
        return
    if hasattr(called, "__aenter__"):
        raise DefinitionError(
            f"{called!r} would be opened once for all tasks, and each task has an event loop of its own",
            where=where,
            hint="pass the class, or functools.partial(Class, url): each task makes its own object",
        )
    is_called = inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(getattr(called, "__call__", None))  # noqa: B004
    if not is_called:
        name = getattr(called, "__qualname__", repr(called))
        raise DefinitionError(
            f"{name} is not an async function",
            where=where,
            hint="write async def, and await in it what takes long; a function that waits for nobody is for .map(…)",
        )


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
