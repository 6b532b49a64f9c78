"""Whose line it was: errors about a flow name the user's call, not ours."""

from __future__ import annotations

import difflib
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

FIX = "fix it and start again: the app goes on from this record"
"""What to do about a user's function that fails."""

FAILURES: tuple[type[BaseException], ...]
"""What users' functions and expressions may raise. One that calls `sys.exit`, or for which Polars panics, must not end a
worker: the next one would take up its record."""

_OURS = str(Path(__file__).resolve().parent) + os.sep
_NOT_THEIRS = (
    _OURS,
    "<",
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
)
"""Where code lies that is no user's: ours, the interpreter's, and what is installed."""


_attributed: ContextVar[str] = ContextVar("attributed", default="")


@contextmanager
def attributed(place: str) -> Iterator[None]:
    """Within it, the user's line is this place: a file that is no Python."""
    before = _attributed.set(place)
    try:
        yield
    finally:
        _attributed.reset(before)


def user_line() -> str:
    """`file:line` of the innermost call that is not Falkirk's own code."""
    if place := _attributed.get():
        return place
    frame = sys._getframe(1)
    # A dataclass's __init__ is made from a string.
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_OURS, "<string>")):
        frame = frame.f_back
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"


def is_users(path: str) -> bool:
    """Whether the code in a file is a user's: neither ours nor installed.

    >>> is_users(__file__), is_users("<string>"), is_users("app.py")
    (False, False, True)
    """
    return not path.startswith(_NOT_THEIRS)


def raised_at(error: BaseException) -> str:
    """`file:line` of the user's line in which an exception arose, however deep in others' code; "" if it is in none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{os.path.relpath(error.filename)}:{error.lineno}"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users(frame.filename):
            return f"{os.path.relpath(frame.filename)}:{frame.lineno}"
    return ""


def __getattr__(name: str) -> object:
    """FAILURES, when it is first asked for: the command line says what it can do without Polars."""
    if name != "FAILURES":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from polars.exceptions import PanicException

    globals()[name] = (Exception, SystemExit, PanicException)
    return globals()[name]


def in_brief(error: BaseException) -> str:
    """Kind and first paragraph of an exception: some libraries' go on for pages.

    >>> in_brief(KeyError("price"))
    "KeyError: 'price'"
    """
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    words = " ".join(text.split("\n\n")[0].split())
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def raised(what: str, error: BaseException) -> str:
    """That something of the user's raised, with the line where it did."""
    line = raised_at(error)
    return f"{what} raised {in_brief(error)}{f' ({line})' if line else ''}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not among the known ones.

    >>> did_you_mean("pirce", ["auction", "price"])
    "did you mean 'price'? there are: auction, price"
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=2)
    guess = f"did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{guess}there are: {', '.join(names)}"
