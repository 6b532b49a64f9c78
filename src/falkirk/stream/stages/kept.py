"""What operators keep, for the fingerprint of their stage."""

from __future__ import annotations

from collections.abc import Iterable

from falkirk.stream.dataflow.operator import Operator

MOVED = b""
"""The mark of tables of an earlier version that have no rows left (`falkirk.stream.evolution.moving`)."""


def kept_by(operators: Iterable[Operator]) -> dict[str, int]:
    """What operators with state keep: how many tables, by `state_words`."""
    return {o.state_words(): len(o.tables()) for o in operators}


def kept_earlier(operators: Iterable[Operator]) -> dict[str, int]:
    """What they kept in earlier versions, likewise."""
    return kept_by(e.operator for o in operators for e in o.earlier)
