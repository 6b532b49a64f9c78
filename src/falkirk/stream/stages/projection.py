"""Which columns are looked at: the others are neither decoded nor sent between stages.

needed(o) = ∪ over the readers r of o:  what r reads itself  ∪  what r hands on of needed(r)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from falkirk.stream.dataflow.operator import Operator
from falkirk.stream.formats import Format
from falkirk.stream.operators.sources.source import Source


def columns_needed(operators: Sequence[Operator]) -> Mapping[Operator, frozenset[str]]:
    """For each operator, given in the order of definition, which of its output columns are needed."""
    needed: dict[Operator, set[str]] = {o: set() for o in operators}
    for reader in reversed(operators):
        for port, before in enumerate(reader.inputs):
            needed[before] |= columns_read_by(reader, port, needed[reader])
    for source in (o for o in operators if isinstance(o, Source)):
        if all(o.gives_errors for o in operators if source in o.inputs):
            needed[source] = set(source.schema)  # whoever wants its errors alone wants all of them
    return {
        o: frozenset(columns | (o.own_columns if isinstance(o, Source) else set())) for o, columns in needed.items()
    }


def projected(source: Source, needed: Set[str]) -> Format:
    """The format that decodes of a source what is needed."""
    return source.value.project([c for c in source.value_columns if c in needed and c not in source.metadata])


def columns_read_by(reader: Operator, port: int, handed_on: Set[str]) -> Set[str]:
    """The columns of an input that `reader` reads, or hands on to those who need them."""
    return reader.reads(port, handed_on) & reader.inputs[port].schema.keys()
