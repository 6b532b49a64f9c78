"""How often Python looks for garbage that holds itself in cycles: by default, each time there are 700 objects more.

Messages are read by the hundred thousand, and none of them is in a cycle: to look there costs a third of all the time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (200_000, 50, 100)
"""So many objects more; and of how many looks one is at older objects, and of how many of those one is at all."""


def collect_rarely() -> None:
    """From now on. What there is already is never looked at again: for a process that is ours alone."""
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
