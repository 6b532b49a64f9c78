"""The text of a query, and errors that point into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlglot import exp

from falkirk.errors import DefinitionError

_POINTED = "\n    "
"""What follows a place in an error that has the line of SQL already."""


_PLAIN = ("this", "expression", "expressions", "alias")
"""The parts of a node that everything reads."""


@dataclass(frozen=True, slots=True)
class Text:
    """A query as the user wrote it."""

    sql: str
    line: str
    """`file:line` of the user's call."""

    def error(self, node: exp.Expr | None, what: str, hint: str = "") -> DefinitionError:
        """An error with the place of `node` in the text."""
        return self.error_at(*(span(node) if node is not None else (0, 0)), what, hint)

    def error_at(self, start: int, end: int, what: str, hint: str = "") -> DefinitionError:
        """An error with the characters from `start` to `end`, underlined.

        >>> print(Text("select pirce", "app.py:3").error_at(7, 12, "there is no column 'pirce'"))
        there is no column 'pirce'
          where: line 1, column 8 of the SQL (app.py:3)
            select pirce
                   ^^^^^
        """
        before = self.sql[:start]
        number, begin = before.count("\n"), before.rfind("\n") + 1
        line = self.sql[begin:].split("\n", 1)[0]
        column = start - begin
        carets = "^" * max(1, min(end, begin + len(line)) - start)
        shown = f"{line.rstrip()}{_POINTED}{' ' * column}{carets}"
        place = f"line {number + 1}, column {column + 1} of the SQL ({self.line})"
        return DefinitionError(what, where=f"{place}{_POINTED}{shown}", hint=hint)

    def only(self, node: exp.Expr, *known: str) -> None:
        """Raises DefinitionError if a part of the node would be ignored: only these are known."""
        for name, part in node.args.items():
            if part and name not in known and name not in _PLAIN:
                inner = part[0] if isinstance(part, list) else part
                place = inner if isinstance(inner, exp.Expr) else node
                what = name.strip("_").replace("_", " ")
                raise self.error(place, f"{what} is not supported here", "docs/sql/index.md lists what there is")

    def terms(self, order: exp.Expr) -> Iterator[tuple[exp.Expr, bool]]:
        """The terms of order by, and whether the greatest is first. Raises DefinitionError where nulls would be first."""
        for by in order.expressions:
            if by.args.get("nulls_first"):
                raise self.error(by, "nulls come last here", "leave nulls first out, or order by coalesce(x, …)")
            yield by.this, bool(by.args.get("desc"))

    @contextmanager
    def at(self, node: exp.Expr) -> Iterator[None]:
        """Gives the place of `node` to an error that the DSL raises."""
        try:
            yield
        except DefinitionError as error:
            if _POINTED in error.where:
                raise
            raise self.error(node, error.what, error.hint) from error


def span(node: exp.Expr) -> tuple[int, int]:
    """First character and end of what the parser knows the places of, in the node."""
    places = [n.meta for n in node.walk() if "start" in n.meta]
    if "start" in node.meta and not isinstance(node, exp.Column):
        places = [node.meta]
    if not places:
        return span(node.parent) if node.parent is not None else (0, 0)
    return min(p["start"] for p in places), max(p["end"] for p in places) + 1
