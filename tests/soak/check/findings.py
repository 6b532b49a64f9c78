"""What the checker holds against a run, counted by kind, with the first examples of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

EXAMPLES = 20


class Kind(StrEnum):
    """What can be wrong with a stream of output records."""

    LOST = "lost"
    """A record that the oracle expects is not there."""
    DOUBLED = "doubled"
    """A record is there again: the same task, step and sequence number, or a step of a number that was there before."""
    OUT_OF_ORDER = "out_of_order"
    """Within a task and a partition, a record comes after one that should follow it."""
    WRONG = "wrong"
    """A record has another key, value or partition than the oracle gives it."""
    TORN = "torn"
    """A record is visible that no step record vouches for."""
    CHAIN = "chain"
    """The step records are no chain: a gap, a division that does not follow, a former owner's step."""
    INPUT = "input"
    """The input is not what the generator made, or was not read: the harness is at fault, not the system."""
    TABLE = "table"
    """The last value of a key is not what the whole input gives."""
    CONDUCT = "conduct"
    """The processes misbehave: one exits by itself, outlives its supervisor, or puts out nothing more."""


@dataclass(slots=True)
class Findings:
    """Counts by kind, and for each kind the first few in words.

    >>> found = Findings()
    >>> found.add(Kind.LOST, "sink[0]", "step 3 lacks number 1")
    >>> found.total, list(found)
    (1, ['lost: sink[0]: step 3 lacks number 1'])
    """

    counts: Counter[Kind] = field(default_factory=Counter)
    examples: dict[Kind, list[str]] = field(default_factory=dict)

    def add(self, kind: Kind, where: str, what: str, count: int = 1) -> None:
        """Hold `count` things of one kind against the run."""
        self.counts[kind] += count
        words = self.examples.setdefault(kind, [])
        if len(words) < EXAMPLES:
            words.append(f"{where}: {what}")

    def forgive(self, kind: Kind) -> None:
        """One of these has turned out to be something else."""
        self.counts[kind] -= 1

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def __iter__(self) -> Iterator[str]:
        for kind, words in self.examples.items():
            yield from (f"{kind}: {word}" for word in words)

    def as_dict(self) -> dict[str, int]:
        """Every kind with its count, zeros included."""
        return {kind.value: self.counts[kind] for kind in Kind}
