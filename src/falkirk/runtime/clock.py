"""Wall time."""

from __future__ import annotations

from time import time_ns

from falkirk.checkpoint.ids import Millis


class WallClock:
    """`falkirk.checkpoint.ports.Clock`."""

    def now(self) -> Millis:
        """Milliseconds since 1970, UTC."""
        return Millis(time_ns() // 1_000_000)
