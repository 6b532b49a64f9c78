"""Where a soak stands, for the screen and the report."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.soak.system import now


@dataclass(slots=True)
class Progress:
    """Where a soak stands, for the screen and the report."""

    planned: int
    began: float = field(default_factory=now)
    kills: Counter[str] = field(default_factory=Counter)
    doing: str = "starting"
    sent: int = 0
    read: int = 0
    steps: int = 0
    records: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    longest_gap: tuple[float, str, float] = (0.0, "", 0.0)
    recoveries: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def found(self) -> int:
        return sum(self.counts.values())
