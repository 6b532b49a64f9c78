"""The commands of `falkirk`, one file each."""

from __future__ import annotations
