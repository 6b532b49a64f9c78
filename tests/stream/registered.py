"""Which operators there are."""

from __future__ import annotations

from falkirk.stream import operators as op
from falkirk.stream.flow import streams as streams  # noqa: PLC0414  # it imports all of them


def registered(kind: type[op.Operator] = op.Operator) -> set[type[op.Operator]]:
    """The classes of all operators.

    >>> op.Filter in registered()
    True
    """
    return {found for each in kind.__subclasses__() for found in (each, *registered(each))}
