"""Functions of rows: filter, map, select, with_columns and their relatives, and the union of streams."""

from __future__ import annotations
