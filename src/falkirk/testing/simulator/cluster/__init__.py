"""A Kafka cluster in memory, as workers see it."""

from __future__ import annotations
