"""Two streams become one, by key."""

from __future__ import annotations
