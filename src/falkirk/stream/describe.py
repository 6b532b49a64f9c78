"""An operator in a line, for people who look at a plan and for fingerprints."""

from __future__ import annotations

from falkirk.stream import operators as op
from falkirk.stream.expressions import text
from falkirk.stream.tables import bounds, state_words


def described(operator: op.Operator, *, exactly: bool = False) -> str:
    """What an operator does. `exactly` adds what another result would follow from, though nobody wants to read it."""
    words = _words(operator)
    if operator.on_error is not None:
        words += f"; what fails: {operator.on_error!r}"
    return f"{words} ({_more(operator)})" if exactly else words


def _words(operator: op.Operator) -> str:
    match operator:
        case op.Filter():
            return f"filter: {', '.join(map(text, operator.predicates))}"
        case op.Route():
            return (
                f"sink {operator.id}: each row to the topic that {operator.by} names, of {', '.join(operator.topics)}"
            )
        case op.Select() | op.WithColumns():
            return f"{operator.kind}: {', '.join(map(text, operator.exprs))}"
        case op.Group():
            kept = ", ".join(f"{b.name} = {b.kind}" for b in bounds(operator) if b.name)
            placed = ", ".join(operator.partitioned.columns) if operator.partitioned else ""
            return f"group_by {operator.id}: {', '.join(operator.columns)} → {kept}; state placed by {placed}"
        case op.Processing():
            tables = ", ".join(operator.tables) or "none"
            return f"process {operator.id}: by {', '.join(operator.columns)}; tables: {tables}"
        case op.Lookup():
            added = ", ".join(operator.columns.values()) or "nothing"
            return f"lookup {operator.id}: {', '.join(operator.on.columns)} in {operator.inputs[1].id} → {added}"
        case op.Concat():
            return f"concat of {len(operator.inputs)} streams"
        case op.WithRegime():
            return f"with_regime: {operator.regime.kind}"
        case op.Repartition():
            return f"repartition: by {', '.join(operator.key.columns)}"
        case _:
            return f"{operator.kind} {operator.id}"


def _more(operator: op.Operator) -> str:
    match operator:
        case op.Source():
            time = f", {operator.time}" if operator.time is not None else ""
            read = f"{operator.topic}, {operator.key!r}, {operator.value!r}"
            return f"{read}, {operator.start}, {dict(operator.metadata)}{time}"
        case op.Route():
            return ""
        case op.Sink():
            return f"{operator.topic}, {operator.key!r}, {operator.value!r}"
        case op.Lookup():
            return f"{state_words(operator)}, {dict(operator.columns)}, {operator.how}"
        case op.Group():
            arguments = [
                f"{b.name}: {', '.join(map(text, b.arguments.values()))}" for b in operator.aggregates.values()
            ]
            return f"{state_words(operator)}, {'; '.join(arguments)}"
        case _:
            return state_words(operator)
