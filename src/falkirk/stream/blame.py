"""Whose line it was: errors about a flow name the user's call, not ours."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable
from pathlib import Path

_OURS = str(Path(__file__).resolve().parent.parent) + os.sep


def user_line() -> str:
    """`file:line` of the innermost call that is not Falkirk's own code."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return f"{os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not among the known ones.

    >>> did_you_mean("pirce", ["auction", "price"])
    "did you mean 'price'? there are: auction, price"
    """
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=2)
    guess = f"did you mean {' or '.join(repr(c) for c in close)}? " if close else ""
    return f"{guess}there are: {', '.join(names)}"
