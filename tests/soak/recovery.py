"""How long a reader waits after a harm: for each task, until the first output of a step that closed after it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.soak.check.task import Settled


@dataclass(slots=True)
class Wound:
    """One harm and what became of it. Times are seconds since 1970."""

    kind: str
    at: float
    owners: Mapping[str, str]
    """Every task's ownership just before."""
    again: dict[str, float] = field(default_factory=dict)
    """When a reader saw each task's first output of a step that closed after the harm."""
    moved: set[str] = field(default_factory=set)
    """Tasks that another ownership went on with."""
    alone: bool = True
    """No other harm was done before this one had healed."""

    @property
    def healed(self) -> bool:
        return self.again.keys() >= self.owners.keys()

    @property
    def missing(self) -> list[str]:
        return sorted(self.owners.keys() - self.again.keys())

    @property
    def seconds(self) -> float:
        """Until the last task had put something out again."""
        return max((seen for task, seen in self.again.items() if task in self.owners), default=self.at) - self.at


class Recoveries:
    """All harms of a run, healed and open."""

    def __init__(self) -> None:
        self.owners: dict[str, str] = {}
        self.open: list[Wound] = []
        self.healed: list[Wound] = []

    def hurt(self, kind: str, at: float) -> Wound:
        """A harm was done at `at`."""
        wound = Wound(kind, at, dict(self.owners), alone=not self.open)
        for other in self.open:
            other.alone = False
        self.open.append(wound)
        return wound

    def see(self, steps: Iterable[Settled]) -> None:
        """Steps that the reader settled, in their order for each task."""
        for step in steps:
            if not step.records:
                continue
            self.owners[step.task] = step.nonce
            for wound in self.open:
                if step.clock > wound.at * 1000:
                    wound.again.setdefault(step.task, step.first_arrival)
                    if step.nonce != wound.owners.get(step.task, step.nonce):
                        wound.moved.add(step.task)
        self.healed += [wound for wound in self.open if wound.healed]
        self.open = [wound for wound in self.open if not wound.healed]

    def summary(self) -> dict[str, dict[str, float]]:
        """Count, median, 90th percentile and maximum in seconds, by kind. A child that owned nothing is a spare."""
        times: dict[str, list[float]] = {}
        for wound in self.healed:
            kind = "spare" if wound.kind.startswith("worker") and not wound.moved else wound.kind
            kind = kind if wound.alone else "several at once"
            times.setdefault(kind, []).append(wound.seconds)
        return {
            kind: {
                "count": len(found),
                "median": round(statistics.median(found), 3),
                "p90": round(sorted(found)[math.ceil(0.9 * len(found)) - 1], 3),
                "max": round(max(found), 3),
            }
            for kind, found in sorted(times.items())
        }
