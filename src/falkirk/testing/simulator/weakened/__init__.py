"""Protocols that lack one clause each, to show what the clause is for."""

from __future__ import annotations
