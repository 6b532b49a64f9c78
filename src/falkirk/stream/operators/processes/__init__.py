"""A user's class with state and timers for each key."""

from __future__ import annotations
