"""How often Python looks for garbage in reference cycles: by default, after each 700 new objects.

Messages are read by the hundred thousand, and none of them is in a cycle: the search costs a third of all the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (200_000, 50, 100)
"""Look after so many new objects; one of how many looks takes older ones, one of how many of those all."""


def collect_rarely() -> None:
    """From now on. Existing objects are never looked at again: only for a process of our own."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


@contextmanager
def collected_rarely() -> Iterator[None]:
    """For a while, in a process that others use too.

    >>> before = gc.get_threshold()
    >>> with collected_rarely():
    ...     gc.get_threshold()
    (200000, 50, 100)
    >>> gc.get_threshold() == before
    True
    """
    before = gc.get_threshold()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
