"""Lazy: steps log no state.

state(n) = fold of the circuit over the recorded divisions since state(v)
"""

from __future__ import annotations

from typing import ClassVar

from falkirk.checkpoint.regimes.recovery import Recovery


class Lazy(Recovery):
    """The recorded steps since the newest version run again."""

    name: ClassVar[str] = "lazy"
    replays: ClassVar[bool] = True
    rereads: ClassVar[bool] = True
