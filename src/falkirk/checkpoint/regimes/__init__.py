"""What survives a crash, and how: one file for each regime. No other code asks which one it is.

recovery.py    what all of them answer
eager.py       each step logs its state changes, and the log is applied
lazy.py        steps log no state, and recorded steps run again
selective.py   which recorded steps need not run again
stateless.py   tasks without state, in either of these
batch.py       no steps: epochs are computed again
floors.py      what may be trimmed, if records that nobody needs stay for some time
"""

from __future__ import annotations

from falkirk.checkpoint.regimes.batch import Batch
from falkirk.checkpoint.regimes.eager import Eager
from falkirk.checkpoint.regimes.lazy import Lazy
from falkirk.checkpoint.regimes.recovery import RECORDED, LogBounds, Means, Recovery, Requires
from falkirk.checkpoint.regimes.stateless import Stateless

__all__ = ["RECORDED", "Batch", "Eager", "Lazy", "LogBounds", "Means", "Recovery", "Requires", "Stateless"]
