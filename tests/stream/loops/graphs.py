"""Loops over graphs, and independent recomputations of each in plain Python."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import falkirk as fk

EDGE = {"a": int, "b": int, "w": int}
"""An edge from a to b of some weight."""
Edge = tuple[int, int, int]
Rows = Counter[tuple[Any, ...]]
Loop = Callable[[Any], Any]


def closure(edges: Any) -> Any:
    """Which node can be reached from which."""
    links = edges.select("a", "b")

    def further(near: Any) -> Any:
        return near.join(links, left_on="b", right_on="a", suffix="2").select("a", b="b2").concat(links).unique()

    return links.iterate(further, id="loop")


def squared(edges: Any) -> Any:
    """The same, by paths that double in each iteration: a loop that is not linear."""
    links = edges.select("a", "b")

    def further(near: Any) -> Any:
        return near.join(near, left_on="b", right_on="a", suffix="2").select("a", b="b2").concat(links).unique()

    return links.iterate(further, id="loop")


def components(edges: Any) -> Any:
    """The least node of each component."""
    links = edges.select("a", "b")
    both = links.concat(links.select(a="b", b="a"), id="both").unique(id="ways")
    nodes = both.select(node="a", label="a").unique(id="nodes")

    def least(labels: Any) -> Any:
        told = labels.join(both, left_on="node", right_on="a").select(node="b", label="label")
        return told.concat(nodes).group_by("node").agg(label=fk.min("label"))

    return nodes.iterate(least, id="loop")


def greatest(edges: Any) -> Any:
    """The greatest node that can reach each node, as text; the nodes are those that edges lead to or come from."""
    links = edges.select("a", "b")
    ends = links.select(node="a").concat(links.select(node="b"), id="ends").unique(id="nodes")
    nodes = ends.select("node", label=fk.col("node").cast(fk.String))

    def most(labels: Any) -> Any:
        told = labels.join(links, left_on="node", right_on="a").select(node="b", label="label")
        return told.concat(nodes).group_by("node").agg(label=fk.max("label"))

    return nodes.iterate(most, id="loop")


def shortest(edges: Any) -> Any:
    """The least distance of each node from node 0."""
    start = edges.filter(fk.col("a") == 0).select(node="a", far=fk.lit(0).cast(fk.Int64)).unique(id="start")

    def nearer(far: Any) -> Any:
        steps = far.join(edges, left_on="node", right_on="a").select(node="b", far=fk.col("far") + fk.col("w"))
        return steps.concat(start).group_by("node").agg(far=fk.min("far"))

    return start.iterate(nearer, id="loop")


def ranks(edges: Any) -> Any:
    """PageRank in thousandths, rounded down: a node gives 85 % of its rank to the nodes that it leads to."""
    links = edges.select("a", "b").unique(id="links")
    shares = links.join(links.group_by("a", id="out").agg(n=fk.len()), on="a", id="shares")
    ends = links.select(node="a").concat(links.select(node="b"), id="ends").unique(id="nodes")
    nodes = ends.select("node", rank=fk.lit(150).cast(fk.Int64))

    def given(ranks: Any) -> Any:
        paid = ranks.join(shares, left_on="node", right_on="a")
        told = paid.select(node="b", rank=fk.col("rank") * 85 // (fk.col("n") * 100))
        return told.concat(nodes).group_by("node").agg(rank=fk.sum("rank"))

    return nodes.iterate(given, id="loop")


def unreached(edges: Any) -> Any:
    """Nodes that win a game: a move leads to a node that loses. Not monotone; the number of moves is bounded, so it ends."""
    moves = edges.filter(fk.col("a") < fk.col("b")).select("a", "b").unique(id="moves")
    first = moves.select(node="a").unique(id="movers")

    def wins(win: Any) -> Any:
        return moves.join(win, left_on="b", right_on="node", how="anti").select(node="a").unique()

    return first.iterate(wins, id="loop")


def closure_of(edges: Iterable[Edge]) -> Rows:
    after = _after(edges)
    return Counter((a, b) for a in after for b in _reached(after, after[a]))


def components_of(edges: Iterable[Edge]) -> Rows:
    after: dict[int, set[int]] = {}
    for a, b, _ in edges:
        after.setdefault(a, set()).add(b)
        after.setdefault(b, set()).add(a)
    return Counter((a, min(_reached(after, [a]))) for a in after)


def greatest_of(edges: Iterable[Edge]) -> Rows:
    edges = list(edges)
    before = _after((b, a, w) for a, b, w in edges)
    nodes = {node for a, b, _ in edges for node in (a, b)}
    return Counter((node, max(map(str, _reached(before, [node])))) for node in nodes)


def shortest_of(edges: Iterable[Edge]) -> Rows:
    edges = list(edges)
    far = {0: 0} if any(a == 0 for a, _, _ in edges) else {}
    for _ in range(len(edges) + 1):
        for a, b, w in edges:
            if a in far:
                far[b] = min(far.get(b, far[a] + w), far[a] + w)
    return Counter(far.items())


def ranks_of(edges: Iterable[Edge]) -> Rows:
    after = _after(edges)
    nodes = {*after, *(b for found in after.values() for b in found)}
    now = dict.fromkeys(nodes, 150)
    while True:
        told: dict[int, list[int]] = {node: [150] for node in nodes}
        for a, found in after.items():
            for b in found:
                told[b].append(now[a] * 85 // (100 * len(found)))
        later = {node: sum(parts) for node, parts in told.items()}
        if later == now:
            return Counter(now.items())
        now = later


def unreached_of(edges: Iterable[Edge]) -> Rows:
    moves: dict[int, set[int]] = {}
    for a, b, _ in edges:
        if a < b:
            moves.setdefault(a, set()).add(b)
    wins: set[int] = set()
    for node in sorted(moves, reverse=True):
        if moves[node] - wins:
            wins.add(node)
    return Counter((node,) for node in wins)


def _after(edges: Iterable[Edge]) -> dict[int, set[int]]:
    after: dict[int, set[int]] = {}
    for a, b, _ in edges:
        after.setdefault(a, set()).add(b)
    return after


def _reached(after: Mapping[int, Iterable[int]], start: Iterable[int]) -> set[int]:
    seen, waiting = set(start), deque(start)
    while waiting:
        for node in after.get(waiting.popleft(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return seen


LOOPS: dict[str, tuple[Loop, Callable[[Iterable[Edge]], Rows]]] = {
    "closure": (closure, closure_of),
    "squared": (squared, closure_of),
    "components": (components, components_of),
    "greatest": (greatest, greatest_of),
    "shortest": (shortest, shortest_of),
    "ranks": (ranks, ranks_of),
    "unreached": (unreached, unreached_of),
}
