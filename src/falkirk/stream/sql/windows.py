"""Windows as table functions of a from clause, in Flink's syntax.

tumble(table t, descriptor(at), size)           fk.tumbling(at, size)
hop(table t, descriptor(at), every, size)       fk.hopping(at, size, every=every)

Before names are qualified, a function becomes a subquery with two more columns, so that stars and scopes see them:

(select *, of_window(at, …) as window_start, of_window(at, …) as window_end from t) as t
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from falkirk.stream.definition.windows import END, START, Window, hopping, tumbling
from falkirk.stream.sql.scalar.times import duration_of
from falkirk.stream.sql.text import Text

FUNCTIONS = {"tumble": "tumble(table bids, descriptor(at), interval '1' minute)",
             "hop": "hop(table bids, descriptor(at), interval '10' second, interval '1' minute)"}  # fmt: skip
"""Each function, and how it is written: hop has the distance of windows before their size."""

_OF = "of_window"


@dataclass(frozen=True)
class Asked:
    """A table function of the query."""

    table: exp.Expr
    column: exp.Column
    lengths: list[exp.Expr]
    function: str
    alias: str


def expand(tree: exp.Query, text: Text) -> None:
    """Replaces window functions of from clauses by subqueries. Raises DefinitionError."""
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
            call = call.expressions[0]
        if isinstance(call, exp.Anonymous) and call.name.lower() in FUNCTIONS:
            table.replace(_subquery(table, call, text))


def _subquery(table: exp.Table, call: exp.Anonymous, text: Text) -> exp.Subquery:
    name = call.name.lower()
    of, time = (*call.expressions, None, None)[:2]
    described = isinstance(time, exp.Anonymous) and time.name.lower() == "descriptor" and len(time.expressions) == 1
    lengths = call.expressions[2:]
    if not isinstance(of, exp.Column) or of.table or not described or len(lengths) not in _counts(name):
        raise text.error(call, f"{name} has other arguments", f"write {FUNCTIONS[name]}")
    assert time is not None
    source = exp.Table(this=of.this.copy())
    arguments = [exp.Literal.string(name), time.expressions[0], *lengths]
    marks = [exp.alias_(exp.Anonymous(this=_OF, expressions=[a.copy() for a in arguments]), c) for c in (START, END)]
    inner = exp.Select(expressions=[exp.Star(), *marks]).from_(source, copy=False)
    alias = table.args.get("alias") or exp.TableAlias(this=of.this.copy())
    return exp.Subquery(this=inner, alias=alias.copy())


def _counts(name: str) -> tuple[int, ...]:
    """How many intervals a function takes: with an offset, one more."""
    return (1, 2) if name == "tumble" else (2, 3)


def asked(node: exp.Expr) -> Asked | None:
    """The window function that a subquery stands for."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        return None
    last = node.this.expressions[-1].unalias()
    if not isinstance(last, exp.Anonymous) or last.name != _OF:
        return None
    function, column, *lengths = last.expressions
    return Asked(node.this.args["from_"].this, column, lengths, function.name, node.alias)


def window_of(asked: Asked, column: str, text: Text) -> Window:
    """The windows, of a column of the stream. Raises DefinitionError."""
    lengths = [duration_of(node, text, "the length of a window") for node in asked.lengths]
    with text.at(asked.column):
        if asked.function == "tumble":
            return tumbling(column, lengths[0], offset=(*lengths, None)[1])
        return hopping(column, lengths[1], lengths[0], offset=(*lengths, None)[2])
