"""Which state each processor goes back to after failures, so that all are consistent (seed 000, sections 3.4 to 3.6).

A processor p can go back to F*(p): the frontiers that it has persisted something about, which is Ξ(p, f) for each f. A
choice f(p) ∈ F*(p) for all p, with notification frontiers fₙ(p), is consistent if

    discarded      D̄(e, f(p)) ⊆ f(dst e)                     for each edge e out of p: nobody needs what p discarded
    delivered      M̄(d, f(p)) ⊆ φ(d)(f(src d))               for each edge d into p: nothing delivered is sent again otherwise
    notified       N̄(p, f(p)) ⊆ fₙ(p) ⊆ f(p)
                   fₙ(p) ⊆ φ(d)(fₙ(src d))                   no time that p was told is complete gets new messages

`choose` begins with the greatest frontiers, and lowers them until all of this holds (figure 6). What it ends with is the
greatest consistent choice: of two consistent choices, the larger frontier at each processor is consistent too.

A processor that has not failed also has ⊤: all that it has done. Its Ξ(p, ⊤) says what was really delivered and discarded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from falkirk.checkpoint.frontiers.frontier import Frontier, intersection
from falkirk.checkpoint.frontiers.projections import Message, Projection

NOTHING = Frontier.nothing()


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of the dataflow."""

    name: str
    src: str
    dst: str
    projection: Projection
    logged: bool = False
    """Whether every message is kept until its receiver never needs it again: D̄ = ∅."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Ξ(p, f): what is known of a frontier that p can go back to (table 1). What is left out is estimated safely."""

    frontier: Frontier
    notified: Frontier | None = None
    """N̄(p, f); None: f itself. ∅ where there are no notifications, as with sequence numbers."""
    delivered: Mapping[str, Frontier] = field(default_factory=dict)
    """M̄(d, f), by the edge's name; f itself for edges that are left out."""
    discarded: Mapping[str, Frontier] = field(default_factory=dict)
    """D̄(e, f), by the edge's name; `Projection.sends(f)` for edges that are left out."""


@dataclass(frozen=True, slots=True)
class AnyFrontier:
    """F* of a processor that keeps no state between times: it can go back to every frontier, and has persisted nothing."""


Available: TypeAlias = Sequence[Checkpoint] | AnyFrontier
"""F*(p): checkpoints in ascending order, the first of which is ∅ unless a low-watermark has passed it."""


class Graph:
    """Processors and edges.

    >>> from falkirk.checkpoint.frontiers.projections import Same
    >>> graph = Graph(["p", "q"], [Edge("e", "p", "q", Same())])
    >>> [e.name for e in graph.out("p")], [e.name for e in graph.into("p")]
    (['e'], [])
    """

    def __init__(self, processors: Iterable[str], edges: Iterable[Edge]) -> None:
        """Raises ValueError for an edge between processors that do not exist, or for a name that is taken."""
        self.processors = tuple(processors)
        self._out: dict[str, list[Edge]] = {p: [] for p in self.processors}
        self._into: dict[str, list[Edge]] = {p: [] for p in self.processors}
        names = set[str]()
        for edge in edges:
            if edge.name in names or edge.src not in self._out or edge.dst not in self._into:
                raise ValueError(f"edge {edge.name!r} is there already, or one of its ends is missing")
            names.add(edge.name)
            self._out[edge.src].append(edge)
            self._into[edge.dst].append(edge)

    def out(self, processor: str) -> Sequence[Edge]:
        """Its output edges."""
        return self._out[processor]

    def into(self, processor: str) -> Sequence[Edge]:
        """Its input edges."""
        return self._into[processor]

    def neighbours(self, processor: str) -> Iterator[str]:
        """Whose constraints speak of its frontier, or whose frontiers its own constraints speak of."""
        yield from (e.dst for e in self.out(processor))
        yield from (e.src for e in self.into(processor))


@dataclass(slots=True)
class Rollback:
    """A choice of frontiers."""

    frontiers: dict[str, Frontier] = field(default_factory=dict)
    """f(p)"""
    notified: dict[str, Frontier] = field(default_factory=dict)
    """fₙ(p)"""


def choose(graph: Graph, available: Mapping[str, Available]) -> Rollback:
    """The greatest consistent choice. Raises ValueError if there is none: then some F* lacks ∅.

    >>> from falkirk.checkpoint.frontiers.projections import Same
    >>> from falkirk.checkpoint.frontiers.times import Structured
    >>> at = lambda n: Frontier.below(Structured(), [(n,)]) if n else Frontier.nothing()
    >>> graph = Graph(["p", "q"], [Edge("e", "p", "q", Same())])
    >>> saved = {"p": [Checkpoint(at(n)) for n in (0, 1, 3)], "q": [Checkpoint(at(n)) for n in (0, 1, 2)]}
    >>> choose(graph, saved).frontiers         # q has not kept epoch 3, and p has discarded its messages
    {'p': ↓{(1,)}, 'q': ↓{(1,)}}
    """
    greatest = {p: greatest_of(available[p]) for p in graph.processors}
    choice = Rollback(dict(greatest), dict(greatest))
    lower(graph, available, choice, graph.processors)
    return choice


def greatest_of(available: Available) -> Frontier:
    """max F*(p)"""
    return Frontier.everything() if isinstance(available, AnyFrontier) else available[-1].frontier


def lower(graph: Graph, available: Mapping[str, Available], choice: Rollback, movable: Collection[str]) -> None:
    """Figure 6, from a choice that is too large: lower the frontiers of the `movable` processors until it is consistent.
    Raises ValueError if it cannot be."""
    movable = frozenset(movable)
    queue, queued = (
        deque(p for p in graph.processors if p in movable) if len(movable) > 1 else deque(movable),
        set(movable),
    )
    while queue:
        p = queue.popleft()
        queued.discard(p)
        before = choice.frontiers[p], choice.notified[p]
        choice.frontiers[p] = _lowered(graph, available[p], choice, p)
        choice.notified[p] = intersection(
            (choice.frontiers[p], choice.notified[p], *(d.projection(choice.notified[d.src]) for d in graph.into(p)))
        )
        if (choice.frontiers[p], choice.notified[p]) != before:
            again = [q for q in dict.fromkeys((p, *graph.neighbours(p))) if q in movable and q not in queued]
            queue.extend(again)
            queued.update(again)


def _lowered(graph: Graph, available: Available, choice: Rollback, p: str) -> Frontier:
    """max { g ∈ F*(p) : g ⊆ f(p), and the constraints hold at g }"""
    if isinstance(available, AnyFrontier):
        return intersection(
            (
                choice.frontiers[p],
                choice.notified[p],
                *(d.projection(choice.frontiers[d.src]) for d in graph.into(p)),
                *(d.projection(choice.notified[d.src]) for d in graph.into(p)),
                *(e.projection.within(choice.frontiers[e.dst]) for e in graph.out(p) if not e.logged),
            )
        )
    for checkpoint in reversed(available):
        if checkpoint.frontier <= choice.frontiers[p] and consistent(graph, choice, p, checkpoint):
            return checkpoint.frontier
    raise ValueError(f"{p} has no checkpoint that is consistent with the others', not even its beginning")


def consistent(graph: Graph, choice: Rollback, p: str, checkpoint: Checkpoint) -> bool:
    """Whether p may go back to this checkpoint, if the others go back to theirs. That fₙ(p) ⊆ φ(d)(fₙ(src d)) holds is the
    matter of `lower`: it lowers fₙ(p), and then p is looked at again."""
    f = checkpoint.frontier
    notified = f if checkpoint.notified is None else checkpoint.notified
    return (
        notified <= choice.notified[p]
        and all(discarded(e, checkpoint) <= (f if e.dst == p else choice.frontiers[e.dst]) for e in graph.out(p))
        and all(
            checkpoint.delivered.get(d.name, f) <= d.projection(f if d.src == p else choice.frontiers[d.src])
            for d in graph.into(p)
        )
    )


def discarded(edge: Edge, checkpoint: Checkpoint) -> Frontier:
    """D̄(e, f)"""
    if edge.logged:
        return NOTHING
    known = checkpoint.discarded.get(edge.name)
    return edge.projection.sends(checkpoint.frontier) if known is None else known


def after(available: Available, chosen: Frontier) -> Available:
    """F*′(p) = { f′ ∈ F*(p) : f′ ⊆ f(p) }: what is left after the rollback."""
    return available if isinstance(available, AnyFrontier) else [c for c in available if c.frontier <= chosen]


def sent_again(logged: Iterable[Message], sender: Frontier, receiver: Frontier) -> list[Message]:
    """Q′(e): the logged messages that p sent because of events in f(p), and whose times are not in f(dst e).

    >>> from falkirk.checkpoint.frontiers.times import Structured
    >>> at = lambda n: Frontier.below(Structured(), [(n,)])
    >>> sent_again([Message((1,), (1,)), Message((2,), (2,)), Message((3,), (3,))], at(2), at(1))
    [Message(cause=(2,), time=(2,))]
    """
    return [message for message in logged if message.cause in sender and message.time not in receiver]
