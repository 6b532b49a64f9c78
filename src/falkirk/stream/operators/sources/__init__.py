"""Where rows come from: records of topics, changes, tables, and rows that came too late."""

from __future__ import annotations
