"""The order in which a prompt shows a result: that of an `order by` at the end of a query, without a limit.

The query itself runs without it: a stream has no end by which it could be sorted.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import sqlglot
from sqlglot import TokenType, exp

from falkirk.stream.sql.parsing import DIALECT, statements
from falkirk.stream.sql.text import Text

PLACE = "prompt"
"""Where statements come from, in errors."""


def tokens(sql: str) -> Iterator[tuple[sqlglot.Token, int]]:
    """The tokens of a statement, and in how many brackets each is."""
    depth = 0
    for token in sqlglot.tokenize(sql, dialect=DIALECT):
        depth -= token.token_type == TokenType.R_PAREN
        yield token, depth
        depth += token.token_type == TokenType.L_PAREN


def open_end(sql: str) -> str:
    """A statement without what follows its last word: in a comment, a semicolon behind it would not end it.

    >>> open_end("create table t (a bigint) -- all ;")
    'create table t (a bigint)'
    """
    words = [token.end for token, _ in tokens(sql) if token.token_type != TokenType.SEMICOLON]
    return sql[: max(words, default=-1) + 1]


def cut(sql: str) -> tuple[str, int]:
    """A query without the order of its whole result, and where that begins; -1 if it has none, or a limit.

    >>> cut("select a from t order by a;"), cut("select a from t order by a limit 3")
    (('select a from t', 16), ('select a from t order by a limit 3', -1))
    """
    sql = open_end(sql)
    outside = [token for token, depth in tokens(sql) if depth == 0]
    begin = next((t.start for t in reversed(outside) if t.token_type == TokenType.ORDER_BY), -1)
    if begin < 0 or any(t.token_type in (TokenType.LIMIT, TokenType.QUALIFY) and t.start > begin for t in outside):
        return sql, -1
    return sql[:begin].rstrip(), begin


def shown_order(begin: int, schema: pl.Schema, sql: str) -> tuple[tuple[str, bool], ...]:
    """By which columns a result is shown. Raises DefinitionError."""
    if begin < 0:
        return ()
    text = Text(sql, PLACE)
    order = statements(text)[0].args["order"]
    wanted: list[tuple[str, bool]] = []
    for by in order.expressions:
        of = by.this.unnest()
        name = of.name
        if isinstance(of, exp.Literal) and of.is_int and 1 <= int(name) <= len(schema):
            name = schema.names()[int(name) - 1]
        if name not in schema:
            raise text.error(by, "order by takes columns of the result", "select it too, under a name")
        wanted.append((name, bool(by.args.get("desc"))))
    return tuple(wanted)
