"""What survives a crash, and how: one file for each regime. No other code asks which one it is.

recovery.py    what all of them answer
eager.py       each step logs its state changes, and the log is applied
lazy.py        steps log no state, and recorded steps run again
batch.py       no steps: epochs are computed again
"""

from __future__ import annotations

from collections.abc import Mapping

from falkirk.checkpoint.regimes.batch import Batch
from falkirk.checkpoint.regimes.eager import Eager
from falkirk.checkpoint.regimes.lazy import Lazy
from falkirk.checkpoint.regimes.recovery import Recovery

RECORDED: Mapping[str, type[Recovery]] = {recovery.name: recovery for recovery in (Eager, Lazy)}
"""Those with steps, by the names that layouts record."""

__all__ = ["RECORDED", "Batch", "Eager", "Lazy", "Recovery"]
