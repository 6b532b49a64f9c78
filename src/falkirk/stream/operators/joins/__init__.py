"""Operators that bring two inputs together by key."""

from __future__ import annotations
