"""Batch: no steps, but epochs (`falkirk.checkpoint.publishing`).

results of an epoch = fold over its recorded division
"""

from __future__ import annotations

from typing import ClassVar

from falkirk.checkpoint.regimes.recovery import Recovery, Requires


class Batch(Recovery):
    """What of an epoch is not published yet is computed again from its division."""

    name: ClassVar[str] = "batch"
    in_epochs: ClassVar[bool] = True
    requires: ClassVar[Requires] = Requires(same_records=True)
