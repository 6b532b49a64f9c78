"""Protobuf: schemas and how they are compiled, what becomes of a writer's message for a reader, and the format itself.

format.py     Protobuf: decodes and encodes a batch, plain or with a registry
schemas.py    messages from a class, a .proto file, its text or a registry, compiled by protoc
columns.py    the columns that a message's fields mean
read.py       matches a writer's message with the columns that a reader wants, and reads it
write.py      writes rows as messages
"""

from __future__ import annotations

from falkirk.stream.formats.protobuf.format import Protobuf

__all__ = ["Protobuf"]
