"""A flow's plan as a drawing, for Mermaid and Graphviz: topics, stages, and the operators in them.

    topic ──▶ [ stage: source ──▶ operator ──▶ … ──▶ sink ] ──▶ topic

The drawing omits dead letters, because every stage can write them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from falkirk.stream.batch.stage import BatchStage
from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.flow.flow import Flow
from falkirk.stream.operators.sinks.sink import Sink
from falkirk.stream.stages.stage import PhysicalStage


@dataclass(frozen=True, slots=True)
class Arrow:
    """An arrow between two nodes. An arrow from a broadcast table to its lookups is dashed."""

    start: str
    end: str
    dashed: bool = False


@dataclass(slots=True)
class Box:
    """A stage or a batch part, with the labels of its operators by node."""

    label: str
    operators: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Drawing:
    """Nodes are named t0, t1 … (topics) and o0, o1 … (operators)."""

    name: str
    boxes: list[Box] = field(default_factory=list)
    topics: dict[str, str] = field(default_factory=dict)
    """From topic to node."""
    arrows: list[Arrow] = field(default_factory=list)
    _count: int = 0

    def topic(self, name: str) -> str:
        """The node of a topic."""
        return self.topics.setdefault(name, f"t{len(self.topics)}")

    def box(self, part: PhysicalStage | BatchStage) -> None:
        """Add a part of the flow."""
        kind = "stage" if isinstance(part, PhysicalStage) else "batch part"
        regime = f" ({part.regime.kind})" if isinstance(part, PhysicalStage) else ""
        box, nodes = Box(f"{kind} {part.id}{regime}"), dict[Operator, str]()
        self.boxes.append(box)
        for operator in (*part.sources, *part.operators):
            nodes[operator] = node = f"o{self._count}"
            self._count += 1
            box.operators[node] = operator.described()
        for i in part.inputs:
            for source in part.sources:
                if source.id == i.id:
                    self.arrows.append(Arrow(self.topic(i.topic), nodes[source]))
        for operator in part.operators:
            self.arrows += [Arrow(nodes[before], nodes[operator]) for before in operator.inputs if before in nodes]
            if isinstance(operator, Sink):
                self.arrows.append(Arrow(nodes[operator], self.topic(operator.topic)))
        if isinstance(part, PhysicalStage):
            self._connect(part, nodes)

    def _connect(self, stage: PhysicalStage, nodes: Mapping[Operator, str]) -> None:
        """The topics between stages, and the broadcast tables."""
        self.arrows += [Arrow(nodes[edge.before], self.topic(edge.topic)) for edge in stage.edges_out]
        self.arrows += [Arrow(self.topic(edge.topic), nodes[edge.after]) for edge in stage.edges_in]
        for table in stage.shared:
            lookups = [operator for operator in stage.operators if table.source in operator.inputs]
            self.arrows += [Arrow(self.topic(table.source.topic), nodes[lookup], dashed=True) for lookup in lookups]


def drawing(flow: Flow, prefix: str) -> Drawing:
    """The drawing of a flow."""
    plan = flow.plan(prefix)
    drawn = Drawing(plan.app)
    for part in plan.planned_parts:
        drawn.box(part)
    return drawn


def mermaid(drawn: Drawing) -> str:
    """For Mermaid, which GitHub and many editors show.

    >>> print(mermaid(Drawing("words", [Box("stage a", {"o0": 'filter: x > "1"'})], {"in": "t0"}, [Arrow("t0", "o0")])))
    flowchart LR
      t0[("in")]
      subgraph s0["stage a"]
        o0["filter: x #gt; #quot;1#quot;"]
      end
      t0 --> o0
    """
    lines = ["flowchart LR"]
    lines += [f'  {node}[("{_for_mermaid(topic)}")]' for topic, node in drawn.topics.items()]
    for number, box in enumerate(drawn.boxes):
        lines.append(f'  subgraph s{number}["{_for_mermaid(box.label)}"]')
        lines += [f'    {node}["{_for_mermaid(label)}"]' for node, label in box.operators.items()]
        lines.append("  end")
    lines += [f"  {arrow.start} {'-.->' if arrow.dashed else '-->'} {arrow.end}" for arrow in drawn.arrows]
    return "\n".join(lines)


def dot(drawn: Drawing) -> str:
    """For Graphviz: `falkirk explain app:flow --format dot | dot -Tsvg > flow.svg`.

    >>> print(dot(Drawing("words", [Box("stage a", {"o0": "len"})], {"in": "t0"}, [Arrow("t0", "o0", dashed=True)])))
    digraph "words" {
      rankdir=LR
      node [shape=box]
      t0 [shape=cylinder label="in"]
      subgraph cluster_0 {
        label="stage a"
        o0 [label="len"]
      }
      t0 -> o0 [style=dashed]
    }
    """
    lines = [f'digraph "{_for_dot(drawn.name)}" {{', "  rankdir=LR", "  node [shape=box]"]
    lines += [f'  {node} [shape=cylinder label="{_for_dot(topic)}"]' for topic, node in drawn.topics.items()]
    for number, box in enumerate(drawn.boxes):
        lines += [f"  subgraph cluster_{number} {{", f'    label="{_for_dot(box.label)}"']
        lines += [f'    {node} [label="{_for_dot(label)}"]' for node, label in box.operators.items()]
        lines.append("  }")
    lines += [f"  {arrow.start} -> {arrow.end}{' [style=dashed]' if arrow.dashed else ''}" for arrow in drawn.arrows]
    return "\n".join([*lines, "}"])


def _for_mermaid(label: str) -> str:
    names = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;"}
    return "".join(names.get(letter, letter) for letter in label)


def _for_dot(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"')


FORMATS: Mapping[str, Callable[[Drawing], str]] = {"mermaid": mermaid, "dot": dot}
