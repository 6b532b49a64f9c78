"""Requests of an HTTP endpoint, as a gateway appends them to a topic, and their answers: see docs/internals/http.md.

A record of a request is its body with two more fields:

    request           the Idempotency-Key, or a name that the gateway has made up; it is the record's key, too
    request_digest    of the body, in hex; "": the request has no Idempotency-Key, so nobody can ask again

A source with `reduce=` has requests of many rows. Their fields are not beside these two, but in a list:

    rows              those that the gateway has left (`falkirk.stream.operators.sources.reduction`)
"""

from __future__ import annotations

from dataclasses import dataclass

REQUEST, DIGEST, ROWS = "request", "request_digest", "rows"

MINUTE, DAY = 60_000, 24 * 3_600_000

MARGIN = 10 * MINUTE
"""Milliseconds for which answers stay longer than the flow drops repeated requests. Whoever asks again is then always
answered: what the flow drops has an answer that is still there, though clocks differ."""

_BROKER_TIME = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}


@dataclass(frozen=True, slots=True)
class RequestsPlan:
    """An HTTP endpoint of a flow.

    >>> plan = RequestsPlan("orders", "orders", "orders-answers", keep=3_600_000, partitions=4)
    >>> plan.of_requests["retention.ms"], plan.of_answers["retention.ms"], plan.of_answers["segment.ms"]
    ('604800000', '4200000', '900000')
    """

    name: str
    topic: str
    """Of requests."""
    answers: str
    """The topic of answers."""
    keep: int
    """Milliseconds for which a request with the same key is the same request."""
    partitions: int
    """Of the topic of requests, if the app makes it."""

    @property
    def of_requests(self) -> dict[str, str]:
        """The settings of their topic: requests stay for a week, or for as long as their keys count."""
        return {**_BROKER_TIME, "retention.ms": str(max(7 * DAY, 2 * self.keep))}

    @property
    def of_answers(self) -> dict[str, str]:
        """The settings of their topic. A segment is deleted as a whole, so segments are short."""
        segment = min(max(self.keep // 4, 10 * MINUTE), DAY)
        return {**_BROKER_TIME, "retention.ms": str(self.keep + MARGIN), "segment.ms": str(segment)}
