"""What the proxy does to a request, and what decides it: a rule that a test gives, or a plan that a seed decides.

A fault is one thing done to one frame, at one moment, and one thing done to its connection afterwards:

    at        REQUEST: before the broker has it · RESPONSE: after the broker has answered, before the client knows
    frame     PASS · DROP · DELAY · DUPLICATE · HOLD: kept, and delivered later, behind requests that came after it
    line      KEEP · RESET: the client gets an RST · HALF_CLOSE: FIN in the frame's direction, after it

    DROP + RESET at REQUEST        the request is lost with its connection
    PASS + RESET at REQUEST        the broker has it, and the client never learns what became of it
    HOLD + RESET at REQUEST        the client sends it again on another connection; the first one arrives later
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tests.faults.frames import Api, Request, shown


class At(StrEnum):
    """When a fault happens."""

    REQUEST = "request"
    RESPONSE = "response"


class Frame(StrEnum):
    """What becomes of the request or response."""

    PASS = "pass"
    DROP = "drop"
    DELAY = "delay"
    """It and all that comes behind it on its connection."""
    DUPLICATE = "duplicate"
    HOLD = "hold"
    """Of requests alone. It is delivered on the connection to the broker that it came for, which stays open."""


class Line(StrEnum):
    """What becomes of the client's connection."""

    KEEP = "keep"
    RESET = "reset"
    HALF_CLOSE = "half-close"


@dataclass(frozen=True, slots=True)
class Until:
    """When a held request is delivered: as a request comes by of the next transaction of the same transactional id."""

    api: Api = Api.PRODUCE
    at: At = At.RESPONSE
    """RESPONSE: that one has been answered; its client is told when the held one has been answered, too. REQUEST: that one
    is forwarded when the held one has been answered."""
    seconds: float = 10.0
    """It is delivered then if no such request has come."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault."""

    frame: Frame = Frame.PASS
    line: Line = Line.KEEP
    at: At = At.REQUEST
    seconds: float = 0.0
    """How long a DELAY is, at most where a plan chooses it."""
    until: Until | None = None
    """When what is held is delivered; None: after `seconds`."""

    def __str__(self) -> str:
        words = [] if self.frame is Frame.PASS else [str(self.frame)]
        words += [] if self.line is Line.KEEP else [str(self.line)]
        if self.frame is Frame.HOLD:
            words.append(f"until {shown(self.until.api)} {self.until.at}" if self.until else "for a time")
        return f"{self.at}: {' + '.join(words[:2])}{' ' + words[2] if len(words) > 2 else ''}"


HOLD = Fault(Frame.HOLD, Line.RESET, until=Until())
"""The request arrives within the next transaction, between its first Produce and its second."""
LOSE = Fault(Frame.DROP, Line.RESET)
"""The request is lost with its connection."""
IGNORE = Fault(Frame.DROP)
"""The request is never answered, though its connection stands."""
CUT_OFF = Fault(Frame.PASS, Line.RESET)
"""The broker has the request, and its connection breaks."""
LOSE_ANSWER = Fault(Frame.DROP, Line.RESET, At.RESPONSE)
"""The broker did as it was asked, and the connection breaks before it can say so."""

MIX: Sequence[tuple[float, Fault]] = (
    (25, HOLD),
    (5, Fault(Frame.HOLD, Line.RESET, until=Until(at=At.REQUEST))),
    (10, Fault(Frame.HOLD, Line.RESET, seconds=0.3)),
    (12, LOSE),
    (10, CUT_OFF),
    (12, LOSE_ANSWER),
    (8, Fault(Frame.DELAY, seconds=0.1)),
    (6, Fault(Frame.DELAY, at=At.RESPONSE, seconds=0.1)),
    (8, Fault(Frame.DUPLICATE)),
    (2, Fault(line=Line.HALF_CLOSE)),
    (2, Fault(line=Line.HALF_CLOSE, at=At.RESPONSE)),
    # Nobody is told of what is never answered: seconds pass before the client gives it up.
    (0.3, IGNORE),
    (0.3, Fault(Frame.DROP, at=At.RESPONSE)),
)
"""Faults of a plan, each with its share."""


@dataclass
class Rule:
    """A fault for the requests that match: the nth of them, and as many as `times` says; None: all from there on."""

    fault: Fault
    apis: Iterable[int]
    nth: int = 1
    times: int | None = 1
    matches: Callable[[Request], bool] = lambda _: True
    """Of requests of these APIs, by connection for example."""
    met: int = field(default=0, init=False)

    def chosen(self, request: Request) -> bool:
        """Whether the fault hits this request. Counts it."""
        if request.api not in self.apis or not self.matches(request):
            return False
        self.met += 1
        return self.met >= self.nth and (self.times is None or self.met < self.nth + self.times)


@dataclass(frozen=True)
class Plan:
    """Random faults. Which one hits the nth request of an API is decided by the seed alone."""

    seed: int
    rates: Mapping[int, float]
    """How many of an API's requests suffer a fault, of all."""
    mix: Sequence[tuple[float, Fault]] = MIX

    def fault(self, request: Request) -> Fault | None:
        """What is done to a request.

        >>> plan = Plan(7, {Api.END_TXN: 0.5})
        >>> [str(plan.fault(Request(Api.END_TXN, 1, 1, nth=n))) for n in (1, 2, 3)]
        ['None', 'None', 'request: duplicate']
        """
        rate = self.rates.get(request.api, 0.0)
        if not rate:
            return None
        dice = random.Random(f"{self.seed} {request.api} {request.nth}")
        if dice.random() >= rate:
            return None
        (fault,) = dice.choices([fault for _, fault in self.mix], [share for share, _ in self.mix])
        return replace(fault, seconds=dice.uniform(0.0, fault.seconds))
