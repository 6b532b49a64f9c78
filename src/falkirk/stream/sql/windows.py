"""Windows as table functions of a from clause, in Flink's syntax.

tumble(table t, descriptor(at), size)                           fk.tumbling(at, size)
hop(table t, descriptor(at), every, size)                       fk.hopping(at, size, every=every)
session(table t partition by k, descriptor(at), gap)            fk.session(at, gap), of groups by k

Before names are qualified, a function becomes a subquery with two more columns, so that stars and scopes see them:

(select *, of_window(at, …) as window_start, of_window(at, …) as window_end from t) as t

Rows get their windows one by one. They get a session only with the others of the session, so a query has to group them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import narwhals as nw
from sqlglot import exp

from falkirk.errors import DefinitionError
from falkirk.stream.definition.windows import END, START, Session, Window, hopping, session, tumbling
from falkirk.stream.flow.streams import Stream
from falkirk.stream.operators import Windows
from falkirk.stream.sql.scalar.times import duration_of
from falkirk.stream.sql.text import Text, span

FUNCTIONS = {"tumble": "tumble(table bids, descriptor(at), interval '1' minute)",
             "hop": "hop(table bids, descriptor(at), interval '10' second, interval '1' minute)",
             "session": "session(table bids partition by auction, descriptor(at), interval '10' minute)"}  # fmt: skip
"""Each function, and how it is written: hop has the distance of windows before their size."""

_LENGTHS = {"tumble": (1, 2), "hop": (2, 3), "session": (1,)}
"""How many intervals a function takes: with an offset, one more."""

_OF = "of_window"


@dataclass(frozen=True)
class Asked:
    """A table function of the query."""

    table: exp.Expr
    column: exp.Column
    partition: list[exp.Column]
    lengths: list[exp.Expr]
    function: str
    alias: str


@dataclass(frozen=True)
class Sessions:
    """Sessions that rows get when they are grouped."""

    session: Session
    partition: tuple[str, ...]
    """The columns of the stream whose rows have sessions of their own; none: all rows together."""
    place: exp.Column

    def unmade(self, text: Text) -> DefinitionError:
        """What is wrong with a query that reads the rows of sessions one by one."""
        keys = ", ".join([*self.partition, START, END])
        what = "rows get a session when they are grouped, and this query reads them one by one"
        return text.error(self.place, what, f"aggregate, and group by {keys}; join and compute in a query around it")

    def check_group(self, keys: list[tuple[exp.Expr, str]], group: exp.Expr, text: Text) -> None:
        """Raises DefinitionError unless the keys, with their columns of the stream, are those of the sessions."""
        parted = f"by {', '.join(self.partition)}" if self.partition else "by no column"
        for key, column in keys:
            if column not in (*self.partition, START, END):
                what = f"sessions are partitioned {parted}, and this groups their rows by something else too"
                hint = f"partition by {', '.join([*self.partition, 'k'])}, if k is its column; or aggregate it"
                raise text.error(key, what, hint)
        if missing := [c for c in self.partition if c not in [column for _, column in keys]]:
            what = f"sessions are partitioned {parted}, and group by has no {missing[0]}"
            raise text.error(group, what, f"group by {', '.join([*self.partition, START, END])}")


def expand(tree: exp.Query, text: Text) -> None:
    """Replaces window functions of from clauses by subqueries. Raises DefinitionError."""
    for table in list(tree.find_all(exp.Table)):
        call = table.this
        if isinstance(call, exp.Anonymous) and call.name.lower() == "table" and len(call.expressions) == 1:
            call = call.expressions[0]
        if isinstance(call, exp.Anonymous) and call.name.lower() in FUNCTIONS:
            table.replace(_subquery(table, call, text))


def table_of(call: exp.Expr) -> exp.Column | None:
    """The table that a function of windows reads: t, also of `t partition by k`, which the parser is given as t = k."""
    first = call.expressions[0] if call.expressions else None
    of = first.this if isinstance(first, exp.EQ) else first
    return of if isinstance(of, exp.Column) and not of.table else None


def _subquery(table: exp.Table, call: exp.Anonymous, text: Text) -> exp.Subquery:
    name, of = call.name.lower(), table_of(call)
    first, *others = call.expressions or [exp.Null()]
    time = next(
        (n for n, e in enumerate(others) if isinstance(e, exp.Anonymous) and e.name.lower() == "descriptor"), -1
    )
    lengths, descriptor = others[time + 1 :], others[time] if time >= 0 else None
    partition = [*_parts(first, text), *others[: max(time, 0)]]
    if (
        of is None
        or descriptor is None
        or len(descriptor.expressions) != 1
        or not isinstance(descriptor.expressions[0], exp.Column)
        or len(lengths) not in _LENGTHS[name]
        or (partition and (name != "session" or not isinstance(first, exp.EQ)))
        or not all(isinstance(column, exp.Column) for column in partition)
    ):
        raise text.error(call, f"{name} has other arguments", f"write {FUNCTIONS[name]}")
    source = exp.Table(this=of.this.copy())
    arguments = [exp.Literal.string(name), descriptor.expressions[0], exp.Tuple(expressions=partition), *lengths]
    marks = [exp.alias_(exp.Anonymous(this=_OF, expressions=[a.copy() for a in arguments]), c) for c in (START, END)]
    inner = exp.Select(expressions=[exp.Star(), *marks]).from_(source, copy=False)
    alias = (table.args.get("alias") or exp.TableAlias(this=of.this)).copy()
    alias.this.meta.clear()  # columns get this name, and their errors would begin here
    return exp.Subquery(this=inner, alias=alias)


def _parts(first: exp.Expr, text: Text) -> list[exp.Expr]:
    """The columns after partition by, those in front of the first comma or in its brackets. An equality as the user wrote it
    is none, and refused."""
    if not isinstance(first, exp.EQ):
        return []
    if "partition" not in text.sql[slice(*span(first))].lower():
        return [first]
    by = first.expression
    return list(by.expressions) if isinstance(by, exp.Tuple) else [by.unnest()]


def asked(node: exp.Expr) -> Asked | None:
    """The window function that a subquery stands for."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Select):
        return None
    last = node.this.expressions[-1].unalias()
    if not isinstance(last, exp.Anonymous) or last.name != _OF:
        return None
    function, column, partition, *lengths = last.expressions
    return Asked(node.this.args["from_"].this, column, partition.expressions, lengths, function.name, node.alias)


def window_of(asked: Asked, resolve: Callable[[exp.Column], str], text: Text) -> Window | Sessions:
    """The windows, of a column of the stream. Raises DefinitionError."""
    column = resolve(asked.column)
    lengths = [duration_of(node, text, "the length of a window") for node in asked.lengths]
    with text.at(asked.column):
        if asked.function == "tumble":
            return tumbling(column, lengths[0], offset=(*lengths, None)[1])
        if asked.function == "hop":
            return hopping(column, lengths[1], lengths[0], offset=(*lengths, None)[2])
        partition = tuple(dict.fromkeys(map(resolve, asked.partition)))
        if column in partition:
            raise text.error(
                asked.column, f"column {column!r} is the time of the sessions", "partition by other columns"
            )
        return Sessions(session(column, lengths[0]), partition, asked.column)


def grouping(
    stream: Stream[Any], keys: Iterable[str], window: Window | Sessions | None
) -> tuple[Stream[Any], list[Any]]:
    """The stream, and what to group it by: the keys, and windows that are still to be made."""
    if window is None:
        columns = [*keys]
        made = stream._op
        if isinstance(made, Windows) and made.expire and START in columns and END not in columns:
            columns.append(END)  # by its end, the state of a window goes; the end follows from the start
        return stream, columns
    own: list[Any] = [key for key in keys if key not in (START, END)]
    if isinstance(window, Window):
        return stream, [*own, window]
    if not own:  # sessions of all rows: the DSL's are of a group
        own = ["all_rows"]
        while own[0] in stream.schema:
            own[0] += "_"
        stream = stream.with_columns(**{own[0]: nw.lit(value=True)})
    return stream, [*own, window.session]
