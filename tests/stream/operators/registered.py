"""Which operators there are."""

from __future__ import annotations

from inspect import isabstract

from falkirk.stream import operators as op
from falkirk.stream.flow import streams as streams  # noqa: PLC0414  # it imports all of them


def registered(kind: type[op.Operator] = op.Operator) -> set[type[op.Operator]]:
    """The classes of all operators, without those that only others are made of.

    >>> op.Filter in registered()
    True
    """
    below = {found for each in kind.__subclasses__() for found in (each, *registered(each))}
    return {found for found in below if not isabstract(found)}
