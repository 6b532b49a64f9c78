"""Stateless: tasks that keep nothing, in any regime of steps.

state(n) = ∅
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from falkirk.checkpoint.records import RecordedStep
from falkirk.checkpoint.regimes.recovery import LogBounds, Means, Recovery
from falkirk.checkpoint.tasks import Owned


class Stateless(Recovery):
    """A task starts from its last step record."""

    rebuilds: ClassVar[bool] = True
    keeps_state: ClassVar[bool] = False

    async def recover(self, means: Means, owned: Owned, steps: Sequence[RecordedStep], bounds: LogBounds) -> bool:
        """Note the last step."""
        if steps:
            offset, last = steps[-1]
            store = owned.opened()
            store.write({}, store.progress.at(last.step, offset + 1, 0, last.clock))
        return True
