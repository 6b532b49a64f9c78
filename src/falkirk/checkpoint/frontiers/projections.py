"""Projections φ(e): from a frontier of an edge's sender to one of its receiver (seed 000, section 3.2).

    φ(e)(f)    = times on e that are fixed by f: no event outside f makes the sender send a message with such a time
    sends(f)   = ↓ of the times that messages may have which events in f cause: D̄(e, f), if all of them are discarded
    within(h)  = the greatest f with sends(f) ⊆ h

All three are monotone. `within` bounds a processor that can roll back to any frontier and discards what it sends: beyond that
frontier it would have discarded messages that its receiver needs again. `check` tries φ and `sends` on a history.

| edge                | projection          | φ(f)                                  | sends(f)                      |
|---------------------|---------------------|---------------------------------------|-------------------------------|
| times stay          | `Same()`            | f                                     | f                             |
| into a loop         | `Enter(d)`          | { (t, c) : t ∈ f }                    | ↓{ (t, 0) : t ∈ f }           |
| out of a loop       | `Leave(d)`          | { t : (t, c) ∈ f for every c }        | { t : (t, c) ∈ f for some c } |
| around a loop       | `Around(d)`         | { (t, c) : c = 0 or (t, c − 1) ∈ f }  | ↓{ (t, c + 1) : (t, c) ∈ f }  |
| to another domain   | `Recorded([…])`     | what was recorded with the last f' ⊆ f | the same                     |
| nothing is known    | `Unknown()`         | ∅                                     | ⊤                             |
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from falkirk.checkpoint.frontiers.frontier import Frontier
from falkirk.checkpoint.frontiers.times import FOREVER, Structured, Time


class Projection(Protocol):
    """φ(e) of one edge, and what goes with it."""

    def __call__(self, f: Frontier) -> Frontier:
        """φ(e)(f), in the receiver's domain."""
        ...

    def sends(self, f: Frontier) -> Frontier:
        """↓ of the times of messages that events in f may cause, in the receiver's domain."""
        ...

    def within(self, h: Frontier) -> Frontier:
        """The greatest f with sends(f) ⊆ h."""
        ...


@dataclass(frozen=True, slots=True)
class Same:
    """A message has the time of the event that causes it: epochs, event time.

    A sender "into the future" has the same φ, but states D̄ with each checkpoint.

    >>> Same()(Frontier.below(Structured(), [(4,)]))
    ↓{(4,)}
    """

    def __call__(self, f: Frontier) -> Frontier:
        return f

    def sends(self, f: Frontier) -> Frontier:
        return f

    def within(self, h: Frontier) -> Frontier:
        return h


@dataclass(frozen=True, slots=True)
class Unknown:
    """The estimate that is always safe, and keeps none of the receiver's work."""

    def __call__(self, f: Frontier) -> Frontier:
        return f if f.whole else Frontier.nothing()

    def sends(self, f: Frontier) -> Frontier:
        return f if f.empty else Frontier.everything()

    def within(self, h: Frontier) -> Frontier:
        return h if h.whole else Frontier.nothing()


@dataclass(frozen=True, slots=True)
class Enter:
    """Into a loop: a message of time t becomes one of time (t, 0), and nothing else enters at t.

    >>> Enter(Structured(2))(Frontier.below(Structured(), [(1,)])) == Frontier.below(Structured(2), [(1, FOREVER)])
    True
    """

    inside: Structured

    def __call__(self, f: Frontier) -> Frontier:
        return _with_rounds(self.inside, f, FOREVER)

    def sends(self, f: Frontier) -> Frontier:
        return _with_rounds(self.inside, f, 0)

    def within(self, h: Frontier) -> Frontier:
        return _some_round(self.inside, h)


@dataclass(frozen=True, slots=True)
class Leave:
    """Out of a loop: a message of time (t, c) becomes one of time t. Time t is fixed when all its rounds are.

    >>> inside = Structured(2)
    >>> Leave(inside)(Frontier.below(inside, [(0, FOREVER), (1, 3)]))
    ↓{(0,)}
    """

    inside: Structured

    def __call__(self, f: Frontier) -> Frontier:
        if f.whole or f.empty:
            return f
        full = [t[:-1] for t in f.times if t[-1] == FOREVER]
        if self.inside.order == "lexicographic":  # a time has all rounds of those before it below it
            full += [before for t in f.times if t[-1] != FOREVER and (before := _before(t[:-1])) is not None]
        return Frontier.below(_outer(self.inside), full)

    def sends(self, f: Frontier) -> Frontier:
        return _some_round(self.inside, f)

    def within(self, h: Frontier) -> Frontier:
        return _with_rounds(self.inside, h, FOREVER)


@dataclass(frozen=True, slots=True)
class Around:
    """The back edge of a loop: a message of time (t, c) becomes one of time (t, c + 1). So the loop's head may keep round
    c + 1 where its tail keeps round c (seed 000, figure 7c), and round 0 whatever the tail does.

    >>> inside = Structured(2, "lexicographic")
    >>> Around(inside)(Frontier.below(inside, [(1, 3)]))
    ↓{(1, 4)}
    """

    inside: Structured

    def __call__(self, f: Frontier) -> Frontier:
        if f.whole:
            return f
        next_round = [(*t[:-1], _plus(t[-1], 1)) for t in f.times]
        if self.inside.order == "product":
            return Frontier.below(self.inside, [*next_round, (*[FOREVER] * (self.inside.arity - 1), 0)])
        # In a total order, round 0 of a time comes after all rounds of the time before it.
        following = [(*after, 0) for t in f.times if t[-1] == FOREVER and (after := _after(t[:-1])) is not None]
        return Frontier.below(self.inside, [*next_round, *following, (0,) * self.inside.arity])

    def sends(self, f: Frontier) -> Frontier:
        if f.whole or f.empty:
            return f
        return Frontier.below(self.inside, [(*t[:-1], _plus(t[-1], 1)) for t in f.times])

    def within(self, h: Frontier) -> Frontier:
        if h.whole or h.empty:
            return h
        back = [(*t[:-1], _plus(t[-1], -1)) for t in h.times if t[-1] != 0]
        if self.inside.order == "lexicographic":
            back += [(*before, FOREVER) for t in h.times if t[-1] == 0 and (before := _before(t[:-1])) is not None]
        return Frontier.below(self.inside, back)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A change of domain that depends on history: with each frontier, the sender recorded what that fixes on the edge.

    Steps to sequence numbers: after step n it had sent s messages (figure 2a). Epochs to sequence numbers: 73 messages in
    epoch 1 give φ(↓{1}) = ↓{(e, 73)}. Sequence numbers to epochs: the number, size or clock that closed each epoch.

    >>> from falkirk.checkpoint.frontiers.times import Sequences
    >>> epochs, sent = Structured(), Sequences()
    >>> phi = Recorded([(Frontier.below(epochs, [(1,)]), Frontier.below(sent, [("e", 73)]))])
    >>> phi(Frontier.below(epochs, [(1,)])), phi(Frontier.below(epochs, [(0,)]))
    (↓{('e', 73)}, ∅)
    """

    known: Sequence[tuple[Frontier, Frontier]]
    """Frontiers of the sender in ascending order, and what each fixes."""

    def __call__(self, f: Frontier) -> Frontier:
        if f.whole:
            return f
        return next((fixed for known, fixed in reversed(self.known) if known <= f), Frontier.nothing())

    def sends(self, f: Frontier) -> Frontier:
        return self(f)

    def within(self, h: Frontier) -> Frontier:
        if h.whole:
            return h
        return next((known for known, fixed in reversed(self.known) if fixed <= h), Frontier.nothing())


class Message(NamedTuple):
    """A message that was sent."""

    cause: Time
    """The time of the event that caused it, in the sender's domain."""
    time: Time
    """Its own, in the receiver's domain."""


def check(projection: Projection, history: Iterable[Message], frontiers: Iterable[Frontier]) -> Message | None:
    """The contract of a projection, tried on what was sent. Returns a message that breaks it; None if none does.

        cause ∉ f  ⟹  time ∉ φ(f)
        cause ∈ f  ⟹  time ∈ sends(f)

    >>> check(Same(), [Message((2,), (1,))], [Frontier.below(Structured(), [(1,)])])     # it was sent back in time
    Message(cause=(2,), time=(1,))
    """
    known = [(f, projection(f), projection.sends(f)) for f in frontiers]
    for message in history:
        for f, fixed, sent in known:
            if message.time not in sent if message.cause in f else message.time in fixed:
                return message
    return None


def _outer(inside: Structured) -> Structured:
    """The domain around a loop."""
    return Structured(inside.arity - 1, inside.order if inside.arity > 2 else "product")


def _with_rounds(inside: Structured, f: Frontier, rounds: int) -> Frontier:
    """{ (t, c) : t ∈ f, c ≤ rounds }, closed downwards."""
    return f if f.whole or f.empty else Frontier.below(inside, [(*t, rounds) for t in f.times])


def _some_round(inside: Structured, f: Frontier) -> Frontier:
    """{ t : (t, c) ∈ f for some c }"""
    return f if f.whole or f.empty else Frontier.below(_outer(inside), [t[:-1] for t in f.times])


def _plus(part: str | int, by: int) -> int:
    assert isinstance(part, int)
    return part if part == FOREVER else part + by


def _after(time: Time) -> Time | None:
    """The next time of a total order, if each time has finitely many rounds; None if there is none.

    >>> _after((1, 4)), _after((1, FOREVER)), _after((FOREVER, FOREVER))
    ((1, 5), (2, 0), None)
    """
    *outer, last = time
    if last != FOREVER:
        return (*outer, _plus(last, 1))
    after = _after(tuple(outer)) if outer else None
    return None if after is None else (*after, 0)


def _before(time: Time) -> Time | None:
    """The time before; None for the first."""
    *outer, last = time
    if last != 0:
        return (*outer, _plus(last, -1))
    before = _before(tuple(outer)) if outer else None
    return None if before is None else (*before, FOREVER)
