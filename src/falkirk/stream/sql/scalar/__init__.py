"""Expressions of SQL on a row."""

from __future__ import annotations
