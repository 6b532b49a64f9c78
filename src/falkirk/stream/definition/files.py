"""Where a sink of files writes, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

WEIGHT_COLUMN = "weight"
"""The column of a change's weight: 1 for a row that comes, −1 for one that goes."""


@dataclass(frozen=True, slots=True)
class FilesPlan:
    """A sink of Parquet files."""

    url: str
    """A folder, or the URL of a folder or bucket."""
    every: timedelta
    """The rows of each task that were committed meanwhile become one file, or a few."""
