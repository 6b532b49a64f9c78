"""The low-watermarks: frontiers below which no processor goes back, whatever fails (seed 000, section 4.2).

    low(p) = f(p) of the greatest consistent choice among all that is persisted, if every processor failed

A new checkpoint can only raise them: a consistent choice stays consistent when there is more to choose from. So the
monitor looks again only at processors whose frontier may rise, and keeps nothing below a low-watermark. Its answer depends
on what it was told and not on the order: two monitors that were told the same say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from falkirk.checkpoint.frontiers.frontier import Frontier
from falkirk.checkpoint.frontiers.rollback import (
    NOTHING,
    AnyFrontier,
    Available,
    Checkpoint,
    Graph,
    Rollback,
    consistent,
    greatest_of,
    lower,
)


class Monitor:
    """Keeps the low-watermarks of a graph.

    >>> from falkirk.checkpoint.frontiers.projections import Same
    >>> from falkirk.checkpoint.frontiers.rollback import Edge
    >>> from falkirk.checkpoint.frontiers.times import Structured
    >>> monitor = Monitor(Graph(["p", "q"], [Edge("e", "p", "q", Same())]))
    >>> first = Checkpoint(Frontier.below(Structured(), [(1,)]))
    >>> monitor.persisted("p", first)              # q may still need what p has discarded
    {}
    >>> monitor.persisted("q", first)
    {'q': ↓{(1,)}, 'p': ↓{(1,)}}
    """

    def __init__(self, graph: Graph, stateless: frozenset[str] = frozenset()) -> None:
        """`stateless` processors can go back to any frontier."""
        self._graph = graph
        begin = [Checkpoint(NOTHING, NOTHING)]
        self._available: dict[str, Available] = {
            p: AnyFrontier() if p in stateless else list(begin) for p in graph.processors
        }
        self._greatest = {p: greatest_of(a) for p, a in self._available.items()}
        self._low = Rollback(dict(self._greatest), dict(self._greatest))
        lower(graph, self._available, self._low, graph.processors)

    @property
    def low(self) -> Mapping[str, Frontier]:
        """The low-watermark of each processor."""
        return self._low.frontiers

    def kept(self, processor: str) -> Available:
        """Its checkpoints that are still needed: from its low-watermark on."""
        return self._available[processor]

    def persisted(self, processor: str, checkpoint: Checkpoint) -> dict[str, Frontier]:
        """A processor has persisted a checkpoint, which is greater than all before. Returns the low-watermarks that this
        raised. Raises ValueError if it is not greater."""
        kept = self._available[processor]
        if isinstance(kept, AnyFrontier) or not kept[-1].frontier < checkpoint.frontier:
            raise ValueError(f"{processor} has {greatest_of(kept)}, and {checkpoint.frontier} does not follow it")
        self._available[processor] = [*kept, checkpoint]
        self._greatest[processor] = checkpoint.frontier
        # Usually others have not come so far yet, and nothing rises before they have.
        if not consistent(self._graph, Rollback(self._greatest, self._greatest), processor, checkpoint):
            return {}
        region = self._may_rise(processor)
        before = {p: self._low.frontiers[p] for p in region}
        for p in region:
            self._low.frontiers[p] = self._low.notified[p] = self._greatest[p]
        lower(self._graph, self._available, self._low, region)
        raised = {p: self._low.frontiers[p] for p in region if self._low.frontiers[p] != before[p]}
        for p, low in raised.items():
            if not isinstance(of := self._available[p], AnyFrontier):
                self._available[p] = [c for c in of if low <= c.frontier]
        return raised

    def _may_rise(self, processor: str) -> dict[str, None]:
        """Processors that are connected with it by others whose frontiers may rise, too. The rest stay as they are: their
        frontiers are the greatest that they have, or depend on nothing that changes."""
        found = {processor: None}
        queue = deque([processor])
        while queue:
            for p in self._graph.neighbours(queue.popleft()):
                if p not in found and self._low.notified[p] != self._greatest[p]:
                    found[p] = None
                    queue.append(p)
        return found
