"""The requests of an HTTP endpoint, as a gateway has appended them to a topic: `falkirk.stream.definition.requests`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.topics import Made
from falkirk.stream.definition.requests import RequestsPlan
from falkirk.stream.operators.sources.source import Source


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HttpSource(Source):
    """The requests of an HTTP endpoint."""

    kind: ClassVar[str] = "http"
    plan: RequestsPlan

    @property
    def made(self) -> Made:
        """How the app makes the topic of requests."""
        return Made(self.plan.partitions, self.plan.of_requests)
