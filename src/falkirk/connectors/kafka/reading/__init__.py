"""Reads: of inputs, of bounded ranges, of a sink's log, for people."""

from __future__ import annotations
