"""Batch epochs and backfills in the simulation."""

from __future__ import annotations
