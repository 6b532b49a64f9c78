"""The requests of an HTTP endpoint, as a gateway has appended them to a topic: see docs/internals/http.md.

A record is the body with two more fields:

    request           the Idempotency-Key, or a name that the gateway has made up; it is the record's key, too
    request_digest    of the body, in hex; "": the request has no Idempotency-Key, so nobody can ask again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from falkirk.stream.dataflow.topics import Made
from falkirk.stream.operators.sources.source import Source

REQUEST, DIGEST = "request", "request_digest"

MINUTE, DAY = 60_000, 24 * 3_600_000

MARGIN = 10 * MINUTE
"""Milliseconds for which answers stay longer than the flow drops repeated requests. Whoever asks again is then always
answered: what the flow drops has an answer that is still there, though clocks differ."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class HttpSource(Source):
    """The requests of an HTTP endpoint."""

    kind: ClassVar[str] = "http"
    answers: str
    """The topic of the answers."""
    keep: int
    """Milliseconds for which a request with the same key is the same request."""
    partitions: int
    """Of the topic of requests, if the app makes it."""

    @property
    def made(self) -> Made:
        """The topic of requests: the broker dates them. They stay for a week, or for as long as their keys count."""
        kept = max(7 * DAY, 2 * self.keep)
        return Made(
            self.partitions,
            {"message.timestamp.type": "LogAppendTime", "retention.ms": str(kept), "cleanup.policy": "delete"},
        )

    @property
    def kept_answers(self) -> dict[str, str]:
        """The settings of the topic of answers. A segment is deleted as a whole, so segments are short."""
        segment = min(max(self.keep // 4, 10 * MINUTE), DAY)
        return {
            "message.timestamp.type": "LogAppendTime",
            "retention.ms": str(self.keep + MARGIN),
            "segment.ms": str(segment),
            "cleanup.policy": "delete",
        }

    @property
    def exact_words(self) -> str:
        return f"{super().exact_words}, answers in {self.answers}"
