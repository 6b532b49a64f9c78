"""Topics of an app beside steps and edges: control and epochs."""

from __future__ import annotations
