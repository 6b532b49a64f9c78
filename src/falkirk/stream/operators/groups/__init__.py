"""Operators that keep state by key: aggregates, distinct rows, the first rows of each key."""

from __future__ import annotations
