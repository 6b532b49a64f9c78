"""Which worker owns which task."""

from __future__ import annotations
