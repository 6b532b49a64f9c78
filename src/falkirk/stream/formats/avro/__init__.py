"""Avro: schemas, what becomes of a writer's schema for a reader, and the format itself.

format.py     Avro: decodes and encodes a batch, plain or with a registry
schemas.py    schemas, and the columns that they mean

resolve.py    matches a writer's schema with the columns that a reader wants
nodes.py      the tree that this gives: each node reads its part of many datums, or skips it
items.py      the nodes of arrays and maps
cursor.py     a place in each of many datums, moved in all of them at once
walk.py       a place in one datum, for the few that are read one by one

write.py      writes rows as datums
flat.py       writes rows of scalars all at once
"""

from __future__ import annotations

from falkirk.stream.formats.avro.format import Avro

__all__ = ["Avro"]
