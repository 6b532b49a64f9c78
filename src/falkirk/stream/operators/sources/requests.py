"""The requests of an HTTP endpoint, as a gateway has appended them to a topic: `falkirk.stream.definition.requests`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.topics import Made
from falkirk.stream.definition.requests import RequestsPlan
from falkirk.stream.operators.sources.reduction import Reduction
from falkirk.stream.operators.sources.source import Source


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HttpSource(Source):
    """The requests of an HTTP endpoint."""

    kind: ClassVar[str] = "http"
    plan: RequestsPlan
    reduction: Reduction | None = None
    """What gateways do with the rows of requests. It is no part of what the flow computes from the topic: a flow with another
    one reads the records that are there as any source does, by the schema that it has now."""

    @property
    def notes(self) -> Sequence[str]:
        return () if self.reduction is None else self.reduction.notes

    @property
    def made(self) -> Made:
        """How the app makes the topic of requests."""
        return Made(self.plan.partitions, self.plan.of_requests)
