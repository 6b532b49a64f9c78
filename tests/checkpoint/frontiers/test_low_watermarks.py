"""The monitor finds what production trims by, and shows: the older of the last two copies is a task's low-watermark."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.frontiers.small import NOTHING, numbers

from falkirk.checkpoint.frontiers import Checkpoint, Edge, Frontier, Graph, Monitor, Sequences
from falkirk.checkpoint.frontiers.projections import Recorded
from falkirk.state.store import Progress, low_watermark


@dataclass
class Tasks:
    """Tasks that step, read what others have committed, and copy versions. The monitor is told of a version when another one
    after it is copied: until then it counts as one that may turn out to be damaged."""

    names: str
    pairs: list[tuple[str, str]]
    logged: bool = True
    steps: dict[str, int] = field(init=False)
    copied: dict[str, list[Progress]] = field(init=False)
    monitor: Monitor = field(init=False)

    def __post_init__(self) -> None:
        self.steps = dict.fromkeys(self.names, 0)
        self.copied = {p: [] for p in self.names}
        self._saved: dict[str, dict[int, Checkpoint]] = {p: {-1: Checkpoint(NOTHING, NOTHING)} for p in self.names}
        self._sent: dict[str, list[tuple[Frontier, Frontier]]] = {f"e{n}": [] for n in range(len(self.pairs))}
        self._read = dict.fromkeys(self._sent, 0)
        self.edges = [
            Edge(e, src, dst, Recorded(self._sent[e]), self.logged)
            for e, (src, dst) in zip(self._sent, self.pairs, strict=True)
        ]
        self.monitor = Monitor(Graph(self.names, self.edges))

    def step(self, p: str, reads: int) -> None:
        """One more, which reads up to so many steps of each sender. Its record and its rows are committed at once, so they
        are fixed, whichever of its versions a task goes back to. Without a log they are sent again by that version."""
        self.steps[p] += 1
        for edge in self.edges:
            if edge.dst == p:
                self._read[edge.name] = min(self._read[edge.name] + reads, self.steps[edge.src])
            if edge.src == p and self.logged:
                self._sent[edge.name][:] = [(NOTHING, numbers(**{edge.name: self.steps[p]}))]

    def copy(self, p: str) -> None:
        """A version of its last step, if there is none yet."""
        step = self.steps[p]
        if step == 0 or step in self._saved[p]:
            return
        read = {e.name: self._read[e.name] for e in self.edges if e.dst == p}
        at = Frontier.below(Sequences(), [(p, step), *((e, n) for e, n in read.items() if n)])
        self._saved[p][step] = Checkpoint(at, NOTHING, {e: numbers(**{e: n}) for e, n in read.items()})
        if not self.logged:
            for edge in (e for e in self.edges if e.src == p):
                self._sent[edge.name].append((at, numbers(**{edge.name: step})))
        self.copied[p].append(Progress(step, 10 * step, 0))
        if len(self.copied[p]) > 1:
            self.monitor.persisted(p, self._saved[p][self.copied[p][-2].step])

    def low(self, p: str) -> Frontier:
        """As production finds it."""
        return self._saved[p][low_watermark(self.copied[p]).step].frontier


@st.composite
def apps(draw: st.DrawFn) -> Tasks:
    """Up to three tasks, and logged edges of any kind between them, loops included."""
    names = "pqr"[: draw(st.integers(1, 3))]
    end = st.sampled_from(names)
    return Tasks(names, draw(st.lists(st.tuples(end, end), max_size=4)))


@given(apps(), st.data())
def test_where_all_edges_are_logged_the_monitor_says_what_production_trims_by(app: Tasks, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 25))):
        p = data.draw(st.sampled_from(app.names))
        if data.draw(st.booleans()):
            app.step(p, data.draw(st.integers(0, 3)))
        else:
            app.copy(p)
        assert dict(app.monitor.low) == {q: app.low(q) for q in app.names}


def test_where_an_edge_is_not_logged_a_task_may_have_to_go_back_further() -> None:
    """What p has sent is gone, and q may need it again: so a region of such edges could not trim by the same rule."""
    app = Tasks("pq", [("p", "q")], logged=False)
    for _ in range(2):
        app.step("p", 0)
        app.copy("p")
    assert app.low("p") == numbers(p=1)
    assert app.monitor.low["p"] == NOTHING
