"""Conditions of where and on, taken apart: what is equal on both sides of a join, and what is about one side alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

from sqlglot import exp


def conjuncts(node: exp.Expr | None) -> list[exp.Expr]:
    """The conditions that `and` connects.

    >>> from sqlglot import parse_one
    >>> [c.sql() for c in conjuncts(parse_one("a = 1 and (b = 2 and c = 3)"))]
    ['a = 1', 'b = 2', 'c = 3']
    """
    if node is None:
        return []
    node = node.unnest()
    return [*conjuncts(node.left), *conjuncts(node.right)] if isinstance(node, exp.And) else [node]


def where_of(select: exp.Expr) -> list[exp.Expr]:
    """The conditions of where."""
    where = select.args.get("where")
    return [] if where is None else conjuncts(where.this)


def tables_of(node: exp.Expr) -> set[str]:
    """The tables whose columns an expression reads; those of a query in it are its own.

    >>> from sqlglot import parse_one
    >>> tables_of(parse_one("r.x in (select l.x from l where l.y = s.y)")) == {"r", "s"}
    True
    """
    return {column.table for column in node.find_all(exp.Column) if not _hidden(column, node)}


def _hidden(column: exp.Column, node: exp.Expr) -> bool:
    """Whether a query between a column and the expression around it has the table of the column."""
    above = column.parent
    while above is not None and above is not node and column is not node:
        if isinstance(above, exp.Query) and column.table in own_tables(above):
            return True
        above = above.parent
    return False


def own_tables(query: exp.Expr) -> set[str]:
    """The tables and subqueries that a query reads itself: they hide those of the outer query."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        return own_tables(query.left) | own_tables(query.right)
    clause = query.args.get("from_")
    sources = [clause.this] if clause is not None else []
    return {source.alias_or_name for source in (*sources, *[j.this for j in query.args.get("joins") or ()])}


def factor(tree: exp.Expr) -> None:
    """Takes what all branches of an or have in common out of it: (a and b) or (a and c) is a and (b or c), with nulls too.

    >>> from sqlglot import parse_one
    >>> tree = parse_one("select 1 from t where (a = b and c = 1) or (c = 2 and a = b)")
    >>> factor(tree)
    >>> tree.sql()
    'SELECT 1 FROM t WHERE a = b AND (c = 1 OR c = 2)'
    """
    for clause in list(tree.find_all(exp.Where, exp.Join)):
        name = "this" if isinstance(clause, exp.Where) else "on"
        if clause.args.get(name) is None:
            continue
        before = conjuncts(clause.args[name])
        after = [condition for node in before for condition in _common(node)]
        if len(after) != len(before):
            clause.set(name, exp.and_(*after, copy=False))


def _common(node: exp.Expr) -> list[exp.Expr]:
    """A condition as several."""
    if not isinstance(node, exp.Or):
        return [node]
    branches = [conjuncts(branch) for branch in node.flatten()]
    common = [c for c in branches[0] if all(c in branch for branch in branches)]
    rests = [[c for c in branch if c not in common] for branch in branches]
    if not common or not all(rests):
        return common or [node]
    return [*common, exp.or_(*[exp.and_(*rest, copy=False) for rest in rests], copy=False)]


def found(node: exp.Expr) -> list[exp.Expr]:
    """The aggregates in an expression, outermost; those of subqueries and window functions are not of this select."""
    if isinstance(node, exp.Window | exp.Query):
        return []
    if isinstance(node, exp.AggFunc) or (
        isinstance(node, exp.Filter | exp.IgnoreNulls) and isinstance(node.this, exp.AggFunc)
    ):
        return [node]
    return [aggregate for child in node.iter_expressions() for aggregate in found(child)]


@dataclass
class Conditions:
    """What is known of the rows of two sides that meet."""

    equal: list[tuple[exp.Expr, exp.Expr]] = field(default_factory=list)
    """An expression of the left side and one of the right side."""
    left: list[exp.Expr] = field(default_factory=list)
    right: list[exp.Expr] = field(default_factory=list)
    other: list[exp.Expr] = field(default_factory=list)
    """Of both sides."""

    @classmethod
    def of(cls, nodes: Iterable[exp.Expr], left: Set[str], right: Set[str]) -> Conditions:
        """These conditions, for sides with these tables."""
        found = cls()
        for node in nodes:
            tables = tables_of(node)
            if (pair := equality(node, left, right)) is not None:
                found.equal.append(pair)
            elif tables and tables <= left:
                found.left.append(node)
            elif tables <= right:  # a constant too: where it is not true, nothing has a partner
                found.right.append(node)
            else:
                found.other.append(node)
        return found


def equality(node: exp.Expr, left: Set[str], right: Set[str]) -> tuple[exp.Expr, exp.Expr] | None:
    """What is equal on both sides, if the condition says so."""
    if not isinstance(node, exp.EQ):
        return None
    for a, b in ((node.left, node.right), (node.right, node.left)):
        mine, theirs = tables_of(a), tables_of(b)
        if mine and theirs and mine <= left and theirs <= right:
            return a, b
    return None


class Uses:
    """The columns that a select still reads; a join keeps those that are read after it."""

    def __init__(self, *nodes: exp.Expr) -> None:
        self._unread: dict[int, tuple[str, str]] = {}
        self._nodes: list[exp.Expr] = []
        self.more(*nodes)

    def more(self, *nodes: exp.Expr) -> None:
        """These expressions are still to be computed."""
        self._nodes += nodes  # an id is a node's as long as the node is there
        self._unread.update({id(c): (c.table, c.name) for node in nodes for c in node.find_all(exp.Column)})

    def __contains__(self, column: tuple[str, str]) -> bool:
        return column in self._unread.values()

    def done(self, *nodes: exp.Expr) -> None:
        """These conditions hold from here on."""
        for node in nodes:
            for column in node.find_all(exp.Column):
                self._unread.pop(id(column), None)


def merge_using(select: exp.Select) -> None:
    """Replaces coalesce(a.k, b.k), which `using (k)` means, by the one column that has its value.

    inner, left   a.k    b.k is the same, or null
    right         b.k    a.k is the same, or null
    full          a column of the join itself
    """
    for join in select.args.get("joins") or ():
        for condition in conjuncts(join.args.get("on")):
            if not isinstance(condition, exp.EQ):
                continue
            mine, theirs = condition.left, condition.right
            if isinstance(mine, exp.Column) and isinstance(theirs, exp.Column):
                ours = theirs.table == join.alias_or_name
                _merge(select, *((mine, theirs) if ours else (theirs, mine)), join.side)


def _merge(select: exp.Select, mine: exp.Column, theirs: exp.Column, side: str) -> None:
    for coalesce in list(select.find_all(exp.Coalesce)):
        columns = [coalesce.this, *coalesce.expressions]
        if mine not in columns or theirs not in columns or columns.index(mine) > columns.index(theirs):
            continue
        at = columns.index(mine)
        if side == "FULL":
            if columns[at + 1] != theirs:
                continue
            columns[at : at + 2] = [merged(mine, theirs)]
        elif side == "RIGHT":
            if columns[at + 1] != theirs:
                continue
            columns.pop(at)
        else:
            columns.remove(theirs)
        if len(columns) == 1:
            coalesce.replace(columns[0].copy())
        else:
            coalesce.set("this", columns[0].copy())
            coalesce.set("expressions", [c.copy() for c in columns[1:]])


def merged(mine: exp.Expr, theirs: exp.Expr) -> exp.Column:
    """The column of a full join that has the value of whichever side is there."""
    column = exp.column(mine.this.copy(), table=f"{mine.text('table')}={theirs.text('table')}")
    column.meta.update(mine.meta)
    return column


def all_inner(joins: Sequence[exp.Join]) -> bool:
    """Whether the order of joins does not matter."""
    return all(not join.side and join.kind in ("", "INNER", "CROSS") for join in joins)
