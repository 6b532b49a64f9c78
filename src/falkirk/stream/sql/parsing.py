"""Parses and qualifies: sqlglot's tree, in which every column names its table. It reads DuckDB's dialect of SQL.

Names are case-sensitive, as in the DSL; keywords and functions are not.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import polars as pl
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import OptimizeError, ParseError, TokenError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.tokenizer_core import Token, TokenType

from falkirk.blame import did_you_mean
from falkirk.stream.sql.text import Text
from falkirk.stream.sql.windows import FUNCTIONS, expand

DIALECT = "duckdb, normalization_strategy=case_sensitive"


def statements(text: Text) -> Sequence[exp.Expr]:
    """The statements of a text. Raises DefinitionError.

    >>> [type(s).__name__ for s in statements(Text("select 1 as a; select 2 as b", ""))]
    ['Select', 'Select']
    """
    try:
        dialect = Dialect.get_or_raise(DIALECT)
        with _silent():
            parsed = dialect.parser().parse(_tokens(text.sql, dialect), text.sql)
    except ParseError as error:
        told = error.errors[0]
        before = sum(len(line) + 1 for line in text.sql.split("\n")[: int(told["line"] or 1) - 1])
        end = before + int(told["col"] or 1)
        reason = str(told["description"]).lower()
        if reason.startswith("required keyword"):  # a class of the parser's library
            reason = "something is missing here"
        what = f"the SQL cannot be read: {reason}"
        raise text.error_at(max(0, end - len(str(told["highlight"] or " "))), end, what, _slip(text, end)) from None
    except TokenError as error:
        raise text.error(
            None, f"the SQL cannot be read: {str(error)[:1].lower()}{str(error)[1:]}", "close each quote and comment"
        ) from None
    found = [s for s in parsed if s is not None]
    for unread in (s for s in found if isinstance(s, exp.Command)):
        raise _not_understood(unread, text)
    return found


@contextmanager
def _silent() -> Iterator[None]:
    """The parser logs the whole text of what it cannot read. The error says it with its place."""
    log = logging.getLogger("sqlglot")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


def _not_understood(command: exp.Command, text: Text) -> Exception:
    """A create that the parser passes over to its semicolon. If another statement begins before that, a semicolon is
    missing."""
    rest = str(command.expression.name) if isinstance(command.expression, exp.Expr) else str(command.expression)
    start = max(0, text.sql.find(rest) - len(str(command.this)))
    end = start + len(str(command.this)) + len(rest)
    if following := _BEGIN.search(text.sql, start + 1, end):
        hint = "put a semicolon between them"
        return text.error_at(*following.span(1), "the statement before this one has no end", hint)
    hint = "write create table NAME (columns) or create view NAME as select …"
    return text.error_at(start, end, "the SQL cannot be read", hint)


_BEGIN = re.compile(r"^\s*(create|insert)\b", re.IGNORECASE | re.MULTILINE)
"""A line that begins a statement."""


def _tokens(sql: str, dialect: Dialect) -> list[Token]:
    """The words of a text. Those of tumble(table t partition by k, …) are put as the parser knows them: tumble(t = k, …).

    >>> [t.text for t in _tokens("select * from hop(table t, descriptor(at))", Dialect.get_or_raise(DIALECT))][3:8]
    ['hop', '(', 't', ',', 'descriptor']
    """
    tokens: list[Token] = dialect.tokenize(sql)
    for at in range(len(tokens) - 3, 0, -1):
        if tokens[at - 1].text.lower() not in FUNCTIONS or tokens[at].text != "(":
            continue
        tokens[at - 1].token_type = TokenType.VAR  # session is a keyword of other statements
        if tokens[at + 1].text.lower() == "table":
            del tokens[at + 1]
        if tokens[at + 2].token_type == TokenType.PARTITION_BY:
            tokens[at + 2].token_type = TokenType.EQ
    options = False
    for before, token in pairwise(tokens):
        options = (before.token_type == TokenType.WITH and token.text == "(") or (options and token.text != ")")
        if options and token.text.lower() == "start":
            token.token_type = TokenType.IDENTIFIER  # with (start='latest'): start begins options of sequences, too
    return tokens


def as_written(sql: str) -> str:
    """A query in the parser's words, with the tables of windows as they are written.

    >>> as_written('SELECT * FROM TUMBLE(t = "user", DESCRIPTOR("at"))')
    'SELECT * FROM TUMBLE(TABLE t PARTITION BY "user", DESCRIPTOR("at"))'
    """
    return _PARTITIONED.sub(r"\1(TABLE \2 PARTITION BY ", sql)


_PARTITIONED = re.compile(rf'\b({"|".join(FUNCTIONS)})\((\w+|"[^"]+") = ', re.IGNORECASE)


def _slip(text: Text, end: int) -> str:
    """A hint for a word before the mistake that looks like a keyword."""
    words = re.findall(r"[A-Za-z]+", text.sql[:end])[-3:]
    keywords = (
        "select",
        "from",
        "where",
        "group",
        "by",
        "having",
        "join",
        "union",
        "qualify",
        "order",
        "limit",
        "with",
    )
    for word in reversed(words):
        hint = did_you_mean(word.lower(), keywords)
        if word.lower() not in keywords and hint.startswith("did you mean"):
            return hint.partition(" there are")[0]
    return ""


def the_query(text: Text) -> exp.Query:
    """The one query of a text. Raises DefinitionError."""
    found = statements(text)
    if not found:
        raise text.error(None, "there is no query", 'write one: "select auction, price from bids"')
    if len(found) > 1:
        raise text.error(found[1], "there is more than one statement", "give flow.sql one query; a file may have many")
    return checked_query(found[0], text)


def checked_query(statement: exp.Expr, text: Text) -> exp.Query:
    """A statement that is a query. Raises DefinitionError."""
    if not isinstance(statement, exp.Query):
        raise text.error(
            statement,
            "this is not a query",
            "write select …; create table, create view and insert into are for a file: falkirk sql shop.sql",
        )
    for function in statement.find_all(exp.Func):
        needs = function.arg_types.get("this") or isinstance(function, exp.Date | exp.Timestamp)
        if needs and function.this is None and not isinstance(function, exp.AggFunc):  # the parser takes floor()
            word = function.sql_name().lower()
            raise text.error(function, f"{word} lacks an argument", f"write {word}(x)")
    return statement


def named(tree: exp.Query) -> exp.Query:
    """Names projections without a name after their function, as Postgres does: count(*) is count."""
    for select in tree.find_all(exp.Select):
        for projection in list(select.expressions):
            function = projection.this if isinstance(projection, exp.Filter | exp.Window) else projection
            if isinstance(function, exp.Func) and not isinstance(function, exp.Cast | exp.Case | exp.Connector):
                name = function.name if isinstance(function, exp.Anonymous) else function.sql_name()
                projection.replace(exp.alias_(projection.copy(), name.lower()))
    return tree


def qualified(tree: exp.Query, schemas: Mapping[str, pl.Schema], text: Text) -> exp.Query:
    """The tree with stars expanded, and with the table of each column. Raises DefinitionError for an unknown table."""
    for common in tree.find_all(exp.With):
        if common.args.get("recursive"):
            raise text.error(common.expressions[0], "a recursive query is not supported", "use the DSL")
        names = [expression.alias for expression in common.expressions]
        for number, name in enumerate(names):
            if name in names[:number]:
                place = common.expressions[number].args["alias"]
                raise text.error(place, f"two tables are named {name!r}", "give one another name: with NAME as (…)")
    expand(tree, text)
    known: dict[str, object] = {name: dict.fromkeys(schema, "text") for name, schema in schemas.items()}
    try:
        _check_joins(tree, text)
        _check_tables(tree, schemas, text)
        return qualify(
            named(tree), schema=known, dialect=DIALECT, validate_qualify_columns=False, identify=False,
            quote_identifiers=False, allow_partial_qualification=False,
        )  # fmt: skip
    except OptimizeError as error:
        raise _unknown(error, tree, schemas, text) from None


def _check_tables(tree: exp.Query, schemas: Mapping[str, pl.Schema], text: Text) -> None:
    for scope in traverse_scope(tree):
        for table in scope.tables:
            if isinstance(table.this, exp.Func):
                what = f"there is no table function {table.name or table.this.name}"
                raise text.error(table, what, f"there are: {', '.join(FUNCTIONS.values())}")
            if table.name not in schemas and table.name not in scope.cte_sources:
                hint = did_you_mean(table.name, [*schemas, *scope.cte_sources]) if schemas else ""
                make = f'pass the stream: flow.sql("…", {table.name}=…)'
                if text.line == "prompt" or text.line.endswith(".sql"):
                    make = f"create table {table.name} (…) before this"
                raise text.error(table, f"there is no table {table.name!r}", hint or make)
        _check_stars(scope, schemas, text)


def _check_stars(scope: Scope, schemas: Mapping[str, pl.Schema], text: Text) -> None:
    """What a star leaves out, replaces or renames must be there: the parser's library ignores a name that is not."""
    sources = list(scope.sources.values())
    if not all(isinstance(source, exp.Table) and source.name in schemas for source in sources):
        return  # columns of a subquery are not known yet
    columns = {column for source in sources if isinstance(source, exp.Table) for column in schemas[source.name]}
    for star in scope.find_all(exp.Star):
        renamed = [alias.this for alias in star.args.get("rename") or ()]
        for part in (*(star.args.get("except_") or ()), *(star.args.get("replace") or ()), *renamed):
            if part.alias_or_name not in columns:
                what = f"there is no column {part.alias_or_name!r}"
                raise text.error(part, what, did_you_mean(part.alias_or_name, columns))


def _check_joins(tree: exp.Query, text: Text) -> None:
    for select in tree.find_all(exp.Select):
        side, clause = "", select.args.get("from_")
        names = {clause.this.alias_or_name} if clause is not None else set()
        for join in select.args.get("joins") or ():
            if (name := join.this.alias_or_name) and name in names:
                raise text.error(join.this, f"two tables are named {name!r}", "give one another name: … as NAME")
            names.add(name)
            if join.method:
                what = f"{join.method.lower()} join is not supported"
                raise text.error(join.this, what, "write join … on a.x = b.x, or using (x)")
            if side and (columns := join.args.get("using")):
                raise text.error(
                    columns[0],
                    f"using after a {side.lower()} join is not supported: either table may lack the row",
                    "write on coalesce(a.k, b.k) = c.k",
                )
            side = join.side if join.side in ("RIGHT", "FULL") else side


def _unknown(error: OptimizeError, tree: exp.Query, schemas: Mapping[str, pl.Schema], text: Text) -> Exception:
    """sqlglot says what is unknown, and not where."""
    every = {column for schema in schemas.values() for column in schema}
    kind, _, given = str(error).partition(": ")
    name = given.split(".")[0].split(" ")[0].strip('"')
    if kind == "Unknown column" and (columns := [c for c in tree.find_all(exp.Column) if c.name == name]):
        return text.error(columns[-1].this, f"there is no column {name!r}", did_you_mean(name, every))
    if kind == "Cannot automatically join":
        places = [c for join in tree.find_all(exp.Join) for c in join.args.get("using") or () if c.name == name]
        return text.error((*places, tree)[0], f"column {name!r} is not in both tables", did_you_mean(name, every))
    if kind == "Unknown table":
        tables = sorted({t.alias_or_name for t in tree.find_all(exp.Table, exp.Subquery)} - {""})
        stars = [c for c in tree.find_all(exp.Column) if c.table == name]
        return text.error((*stars, tree)[0], f"there is no table {name!r} here", did_you_mean(name, tables))
    if kind == "Unknown output column":
        return _no_place(int(name), tree, text)
    return text.error(tree, f"the names cannot be resolved: {error}", "name the table of each column: bids.price")


def _no_place(number: int, tree: exp.Query, text: Text) -> Exception:
    """The error of group by 7 or order by 7, where fewer columns are selected."""
    for clause in tree.find_all(exp.Group, exp.Order):
        selected = len(clause.parent.selects) if isinstance(clause.parent, exp.Query) else 0
        for part in clause.expressions:
            of = part.this if isinstance(part, exp.Ordered) else part
            if isinstance(of, exp.Literal) and of.name == str(number) and number > selected:
                what = f"there is no column {number} in select, which has {selected}"
                return text.error(of, what, "write the number or the name of one that is selected")
    return text.error(tree, f"there is no column {number} in select", "write the name of the column")
