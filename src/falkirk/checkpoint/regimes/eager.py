"""Eager: each step logs its state changes.

state(n) = state(v) overwritten by every change since
"""

from __future__ import annotations

from typing import ClassVar

from falkirk.checkpoint.regimes.recovery import Recovery


class Eager(Recovery):
    """The end of the changelog is applied, and no step runs again."""

    name: ClassVar[str] = "eager"
    logs_changes: ClassVar[bool] = True
