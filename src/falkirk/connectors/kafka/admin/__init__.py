"""What a cluster has: topics and their settings, groups, access rights."""

from __future__ import annotations
