"""Small graphs, and every consistent choice on them by brute force: the constraints of seed 000, section 3.5."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from hypothesis import strategies as st

from falkirk.checkpoint.frontiers import FOREVER, Checkpoint, Domain, Edge, Frontier, Graph, Sequences, Structured, Time
from falkirk.checkpoint.frontiers.projections import Around, Enter, Leave, Projection, Same, Unknown

EPOCHS = Structured()
NOTHING = Frontier.nothing()
ALL = Frontier.everything()


def epochs(n: int) -> Frontier:
    """The epochs 1 to n."""
    return Frontier.below(EPOCHS, [(n,)]) if n else NOTHING


def numbers(**by_edge: int) -> Frontier:
    """The messages 1 to n of each edge."""
    return Frontier.below(Sequences(), [(edge, n) for edge, n in by_edge.items() if n])


def times_of(domain: Domain) -> list[Time]:
    """Some times of a domain: enough to tell small frontiers apart."""
    match domain:
        case Structured(arity=1):
            return [(n,) for n in range(5)]
        case Structured(arity=2):
            return [*product(range(3), (0, 1, 2, 3, FOREVER))]
        case Structured(arity=3):
            times = product(range(2), (0, 1, FOREVER), (0, 1, FOREVER))
            # In a total order nothing comes after all rounds.
            return [t for t in times if domain.order == "product" or t[1] != FOREVER or t[2] == FOREVER]
        case _:
            return [*product("ab", range(1, 4))]


@st.composite
def frontiers(draw: st.DrawFn, domain: Domain) -> Frontier:
    """∅, ⊤ or a frontier of a few times."""
    times = draw(st.lists(st.sampled_from(times_of(domain)), max_size=3))
    return ALL if draw(st.integers(0, 9)) == 0 else Frontier.below(domain, times)


def choices(graph: Graph, available: Mapping[str, Sequence[Checkpoint]]) -> Iterator[dict[str, Checkpoint]]:
    """Every choice for which some notification frontiers exist."""
    for chosen in product(*(available[p] for p in graph.processors)):
        choice = dict(zip(graph.processors, chosen, strict=True))
        if holds(graph, choice):
            yield choice


def holds(graph: Graph, choice: Mapping[str, Checkpoint]) -> bool:
    """The constraints, for the greatest notification frontiers that there can be."""
    f = {p: c.frontier for p, c in choice.items()}
    notified = notification_frontiers(graph, f)
    for p, c in choice.items():
        if not (f[p] if c.notified is None else c.notified) <= notified[p]:
            return False
        for e in graph.out(p):
            gone = NOTHING if e.logged else c.discarded.get(e.name, e.projection.sends(f[p]))
            if not gone <= f[e.dst]:
                return False
        for d in graph.into(p):
            if not c.delivered.get(d.name, f[p]) <= d.projection(f[d.src]):
                return False
    return True


def notification_frontiers(graph: Graph, f: Mapping[str, Frontier]) -> dict[str, Frontier]:
    """The greatest with fₙ(p) ⊆ f(p) and fₙ(p) ⊆ φ(d)(fₙ(src d))."""
    notified = dict(f)
    while True:
        after = dict(notified)
        for p in graph.processors:
            for d in graph.into(p):
                after[p] &= d.projection(after[d.src])
        if after == notified:
            return notified
        notified = after


def greatest(found: Sequence[Mapping[str, Checkpoint]]) -> dict[str, Frontier]:
    """The choice that is greatest at each processor."""
    return {
        p: max((c[p].frontier for c in found), key=lambda f: sum(c[p].frontier <= f for c in found)) for p in found[0]
    }


@st.composite
def systems(draw: st.DrawFn) -> tuple[Graph, dict[str, list[Checkpoint]]]:
    """Up to four processors of epochs, edges of any kind between them, loops included, and checkpoints that say more or less
    than the estimates."""
    names = "pqrs"[: draw(st.integers(1, 4))]
    ends = draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(names)), max_size=5))
    edges = [
        Edge(f"e{n}", src, dst, draw(st.sampled_from([Same(), Unknown()])), logged=draw(st.booleans()))
        for n, (src, dst) in enumerate(ends)
    ]
    graph = Graph(names, edges)
    upto = st.integers(0, 3)
    available = {}
    for p in names:
        kept = sorted(draw(st.sets(st.integers(1, 3))))
        available[p] = [Checkpoint(NOTHING, NOTHING)]
        for n in kept:
            available[p].append(
                Checkpoint(
                    epochs(n),
                    draw(st.sampled_from([None, NOTHING, epochs(min(n, 1))])),
                    {d.name: epochs(min(n, draw(upto))) for d in graph.into(p) if draw(st.booleans())},
                    {e.name: epochs(draw(upto)) for e in graph.out(p) if draw(st.booleans())},
                )
            )
        if draw(st.booleans()):  # it has not failed
            available[p].append(
                Checkpoint(
                    ALL,
                    epochs(draw(upto)),
                    {d.name: epochs(draw(upto)) for d in graph.into(p)},
                    {e.name: epochs(draw(upto)) for e in graph.out(p)},
                )
            )
    return graph, available


LOOP, TOTAL = Structured(2), Structured(2, "lexicographic")
INNER_LOOP, INNER_TOTAL = Structured(3), Structured(3, "lexicographic")
INSIDE = {LOOP: EPOCHS, TOTAL: EPOCHS, INNER_LOOP: LOOP, INNER_TOTAL: TOTAL}
"""The domains in loops, and those around them."""
PROJECTIONS: list[tuple[Projection, Domain, Domain]] = [
    (Same(), EPOCHS, EPOCHS),
    (Unknown(), EPOCHS, EPOCHS),
    *((Enter(inside), outside, inside) for inside, outside in INSIDE.items()),
    *((Leave(inside), inside, outside) for inside, outside in INSIDE.items()),
    *((Around(inside), inside, inside) for inside in INSIDE),
]
"""Each with the domains of its sender and of its receiver."""
