"""Avro: schemas, what becomes of a writer's schema for a reader, and the format itself."""

from __future__ import annotations

from falkirk.stream.formats.avro.format import Avro

__all__ = ["Avro"]
