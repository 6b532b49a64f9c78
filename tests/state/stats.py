"""The store that the tests of RocksStore use: of one task of a stage `stats`."""

from __future__ import annotations

from falkirk.state.store import Identity, Progress

WHOSE = Identity("app", "stats/0", "f00", "stats v1")
LAST_KEY = b"\xfe"


def at(step: int) -> Progress:
    """The progress of a step that has read one record more than the one before."""
    return Progress(step, step + 1, step)
