"""Protobuf: schemas and how they are compiled, what becomes of a writer's message for a reader, and the format itself."""

from __future__ import annotations

from falkirk.stream.formats.protobuf.format import Protobuf

__all__ = ["Protobuf"]
