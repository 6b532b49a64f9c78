"""Batch: no steps, but epochs.

results of an epoch = fold over its recorded division
"""

from __future__ import annotations

from typing import ClassVar

from falkirk.checkpoint.regimes.recovery import Recovery


class Batch(Recovery):
    """What of an epoch is not published yet is computed again from its division."""

    name: ClassVar[str] = "batch"
    in_epochs: ClassVar[bool] = True
    rereads: ClassVar[bool] = True
