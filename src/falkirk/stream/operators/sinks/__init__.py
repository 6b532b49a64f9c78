"""Where rows go: topics and files."""

from __future__ import annotations
