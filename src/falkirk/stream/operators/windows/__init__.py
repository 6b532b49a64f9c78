"""Groups by spans of event time."""

from __future__ import annotations
