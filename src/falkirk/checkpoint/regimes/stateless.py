"""Stateless: tasks that keep nothing, in any regime of steps.

state(n) = ∅
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from falkirk.checkpoint.records import RecordedStep
from falkirk.checkpoint.regimes.recovery import LogBounds, Means, Recovery
from falkirk.checkpoint.tasks import Owned
from falkirk.state.store import Progress


class Stateless(Recovery):
    """A task starts from its last step record."""

    rebuilds: ClassVar[bool] = True
    keeps_state: ClassVar[bool] = False

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        """Note the last step, and what the state began with that the stage may have had."""
        if steps:
            offset, last = steps[-1]
            owned.opened().write({}, Progress(last.step, offset + 1, 0, last.clock, last.base))
        return True
