"""What joins by event time have in common: their state goes when the watermark says that it is not needed any more."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.task_tables import TaskTable
from falkirk.stream.operators.joins.interval_expiry import ENDS, Buckets
from falkirk.stream.operators.joins.join import Join


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TimedJoin(Join):
    """A join of rows whose times are near each other."""

    timed: ClassVar[bool] = True
    passes_time: ClassVar[bool] = True
    times: tuple[str, str]
    """The event time of both sides."""

    @property
    @abstractmethod
    def delay(self) -> int:
        """How far the watermark of the result is behind that of its inputs, in milliseconds."""

    @property
    def expire(self) -> bool:
        """Whether the watermark tells when a row is not needed any more."""
        return all(before.settled for before in self.inputs)

    @property
    def forgets(self) -> bool:
        return self.expire

    @property
    def settled(self) -> bool:
        return self.watermarked and self.expire

    @property
    def growing(self) -> str:
        return "" if self.expire else super().growing

    @property
    def asks_time(self) -> bool:
        return self.expire

    @property
    def watermarked(self) -> bool:
        return self.time is not None and super().watermarked

    def reads(self, port: int, needed: Set[str]) -> Set[str]:
        return {*super().reads(port, needed), self.times[port]}

    def tables(self) -> Sequence[str]:
        return [*super().tables(), ENDS] if self.expire else super().tables()

    def task_tables(self) -> Mapping[str, TaskTable]:
        return {ENDS: Buckets()} if self.expire else {}
