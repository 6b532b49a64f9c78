"""Which columns are looked at: the others are neither decoded nor sent between stages.

needed(o) = ∪ over the readers r of o:  what r reads itself  ∪  what r hands on of needed(r)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from falkirk.stream import operators as op
from falkirk.stream.expressions import columns_read
from falkirk.stream.formats import Format


def columns_needed(operators: Sequence[op.Operator]) -> Mapping[op.Operator, frozenset[str]]:
    """For each operator, given in the order of definition, which of its output columns are needed."""
    needed: dict[op.Operator, set[str]] = {o: set() for o in operators}
    for reader in reversed(operators):
        for before in reader.inputs:
            needed[before] |= columns_read_by(reader, before, needed[reader])
    for source in (o for o in operators if isinstance(o, op.Source)):
        if all(isinstance(o, op.Errors) for o in operators if source in o.inputs):
            needed[source] = set(source.schema)  # whoever wants its errors alone wants all of them
    return {o: frozenset(columns | (_own(o) if isinstance(o, op.Source) else set())) for o, columns in needed.items()}


def _own(source: op.Source) -> Set[str]:
    """The columns that a source itself looks at."""
    keys = source.key.columns if source.checked and source.key is not None else ()
    return {*keys, *filter(None, [source.time])}


def projected(source: op.Source, needed: Set[str]) -> Format:
    """The format that decodes of a source what is needed."""
    of_value = source.value_columns if isinstance(source, op.TableSource) else source.schema
    return source.value.project([c for c in of_value if c in needed and c not in source.metadata])


def columns_read_by(reader: op.Operator, before: op.Operator, handed_on: Set[str]) -> Set[str]:
    """The columns of `before` that `reader` reads, or hands on to those who need them."""
    return _read_by(reader, before, handed_on) & before.schema.keys()


def _read_by(reader: op.Operator, before: op.Operator, handed_on: Set[str]) -> Set[str]:
    match reader:
        case op.Filter():
            return handed_on | columns_read(reader.predicates, before.schema)
        case op.WithColumns():
            return handed_on | columns_read(reader.exprs, before.schema)
        case op.Select():
            return columns_read(reader.exprs, before.schema)
        case op.Group():
            arguments = [e for bound in reader.aggregates.values() for e in bound.arguments.values()]
            return set(reader.columns) | columns_read(arguments, before.schema)
        case op.Lookup() if before is reader.inputs[0]:
            return handed_on | set(reader.on.columns)
        case op.Lookup():
            return set(reader.key.columns) | reader.columns.keys()
        case op.Repartition():
            return handed_on | set(reader.key.columns)
        case op.WithRegime():
            return handed_on | set(reader.partitioned.columns if reader.partitioned else ())
        case op.Route():
            return handed_on | {reader.by}
        case op.Concat():
            return handed_on
        case op.Errors():
            return set()
        case _:
            # Sinks write all columns, and functions may look at any.
            return set(before.schema)
