"""Two stages with an edge between them, and what must hold there."""

from __future__ import annotations
