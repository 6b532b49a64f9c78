"""The stand of bad input serves here too: a flow on the broker that all share."""

from __future__ import annotations

from tests.bad_input.conftest import stand

__all__ = ["stand"]
