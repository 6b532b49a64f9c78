"""The operators of a flow in the order of definition, and which of them are connected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from falkirk.errors import DefinitionError
from falkirk.stream.dataflow.operator import RESERVED, Operator
from falkirk.stream.definition.names import check_id
from falkirk.stream.definition.on_error import OnError
from falkirk.stream.definition.on_failure import OnFailure
from falkirk.stream.definition.regimes import Regime
from falkirk.stream.formats import Key, column_key

_O = TypeVar("_O", bound=Operator)
_T = TypeVar("_T")


class Graph:
    """All operators of a flow in the order of definition: inputs come before their readers."""

    def __init__(
        self,
        name: str,
        line: str,
        regime: Regime,
        dead_letters: str | None,
        on_error: OnError | None,
        on_failure: OnFailure = "app",
        tasks: int | None = None,
    ) -> None:
        self.name, self.line, self.regime = name, line, regime
        self.dead_letters = dead_letters
        """The topic that the user chose; None: the default name, like the app's other internal topics."""
        self.on_error = on_error
        """The handling of failures in operators without their own `on_error`."""
        self.on_failure = on_failure
        self.tasks = tasks
        """Of each stage whose number of tasks can be chosen, if the user has chosen it."""
        self.operators: list[Operator] = []
        self.queries: dict[Operator, str] = {}
        """The SQL of the operators that queries made."""
        self._names: dict[tuple[str, str], Operator] = {}

    def add(self, operator: _O, *, exchange: bool = False) -> _O:
        """Add an operator. Raises DefinitionError if its id is taken. Ids identify sources, sinks, and operators with state
        or topics from one version of the code to the next."""
        if exchange or operator.stateful or operator.role != "operator":
            space = operator.role
            if space == "operator":
                check_id(operator.id, operator.kind, operator.line)
            other = self._names.setdefault((space, operator.id), operator)
            if other is not operator:
                given = "its name" if space != "operator" else "id="
                raise DefinitionError(
                    f"two operators are named {operator.id!r}, but names identify state and topics",
                    where=f"{other.where} and {operator.where}",
                    hint=f"change one of them: {given}",
                )
        if ours := next((c for c in operator.schema if c.startswith(RESERVED)), None):
            raise DefinitionError(
                f"column {ours!r} has a name that is reserved for Falkirk", where=operator.where, hint="rename it"
            )
        # Polars would find other columns by a pattern. The state's schema has a line for each operator.
        odd = (c for c in operator.schema if c == "*" or c.splitlines() != [c] or (c[0] == "^" and c[-1] == "$"))
        if (wrong := next(odd, None)) is not None:
            raise DefinitionError(
                f"{wrong!r} cannot be the name of a column",
                where=operator.where,
                hint='rename it: a name is one line, and no pattern as "*" or "^x$"',
            )
        self.operators.append(operator)
        return operator

    def withdraw(self, operator: Operator) -> None:
        """Remove an operator that nothing reads: another one takes its place."""
        self.operators.remove(operator)
        self._names = {name: other for name, other in self._names.items() if other is not operator}

    def add_hidden(self, operator: Operator) -> None:
        """Add an operator that another one needs. Users do not see it, so it may have columns with reserved names."""
        self.operators.append(operator)

    def apart(self, start: Operator, build: Callable[[], _T]) -> tuple[_T, list[Operator]]:
        """What `build` returns, and the operators that it adds behind `start`. Those are not part of this graph, and their
        ids are theirs alone. What it adds that does not depend on `start` stays here. Raises what `build` raises."""
        outside, names = len(self.operators), self._names
        self._names = {}
        try:
            built = build()
            added, exchanges = self.operators[outside:], set(self._names.values())
        finally:
            self._names = names
            del self.operators[outside:]
        behind: dict[Operator, None] = {start: None}
        for operator in added:
            if any(before in behind for before in operator.inputs):
                behind[operator] = None
            elif any(c.startswith(RESERVED) for c in operator.schema):
                self.add_hidden(operator)
            else:
                self.add(operator, exchange=operator in exchanges)
        return built, [*behind][1:]

    def upstream(self, ends: Iterable[Operator]) -> list[Operator]:
        """These operators and everything that they depend on, in the order of definition."""
        found: set[Operator] = set()
        waiting = list(ends)
        while waiting:
            operator = waiting.pop()
            if operator not in found:
                found.add(operator)
                waiting += operator.inputs
        return [o for o in self.operators if o in found]


def connected(operators: Sequence[Operator], together: Callable[[Operator, Operator], bool]) -> list[list[Operator]]:
    """Groups of operators. Operators and groups are in the order of definition. An operator shares a group with each of its
    inputs that is `together` with it."""
    group_of: dict[Operator, list[Operator]] = {o: [o] for o in operators}
    for after in operators:
        for before in after.inputs:
            if together(before, after) and (left := group_of[before]) is not (right := group_of[after]):
                left += right
                group_of.update(dict.fromkeys(right, left))
    order = {operator: i for i, operator in enumerate(operators)}
    return [sorted(group, key=order.__getitem__) for group in {id(g): g for g in group_of.values()}.values()]


def placed(before: Operator, columns: tuple[str, ...], name: str) -> tuple[Key, str]:
    """The columns that place rows in the operator's tasks, and its root. They are the input's columns and root, if the
    input already brings all rows of a group to one task."""
    if before.partitioned is not None and set(before.partitioned.columns) <= set(columns):
        return before.partitioned, before.root
    return column_key(columns), name
