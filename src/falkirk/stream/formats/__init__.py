"""What the bytes of keys and values mean.

Json({...})                            an object a record
Avro("bid.avsc")                       an Avro datum a record; with a registry, as its clients write it
Protobuf("bid.proto")                  a Protobuf message a record; with a registry, as its clients write it
Text() Raw() Int64BE() Int32BE() ...   one column a record
Key("id", Int64BE)                     how keys are written; text unless a format is named

base.py               the interface of a format
types.py              the types of columns, and schemas made from them
rows.py               the static type of rows, for type checkers
scalar.py             Text, Raw, and numbers as Java's serializers write them
key.py                Key: one column as text, several as a JSON array, or as a format writes them
spoken.py             a format from its own text, for Spark's options

JSON:
    json.py           Json: decodes and encodes a batch
    ndjson.py         reads a batch at once; a bad record changes no other (few.py: a few flat ones)
    fields.py         how each type of column is read and written
    names.py          compares the names of a record's fields with those of the schema
    reasons.py        why a record is not what the schema says, in words
    debezium.py       change events of Debezium

Formats with a schema registry:
    registering.py    what they have in common: a schema's id before each value
    registry.py       the port to a registry
    avro/             Avro: schemas, datums, and what a reader makes of another writer's schema
    protobuf/         Protobuf: the same for messages, whose schemas protoc compiles
"""

from __future__ import annotations

from falkirk.stream.formats.avro import Avro
from falkirk.stream.formats.base import Decoded, Format
from falkirk.stream.formats.json import Json
from falkirk.stream.formats.key import Key, KeyLike, NoColumns, column_key, key_of
from falkirk.stream.formats.protobuf import Protobuf
from falkirk.stream.formats.registering import Registering
from falkirk.stream.formats.rows import SchemaLike
from falkirk.stream.formats.scalar import Float32BE, Float64BE, Int16BE, Int32BE, Int64BE, Raw, Scalar, Text
from falkirk.stream.formats.types import schema_of

__all__ = [
    "Avro",
    "Decoded",
    "Float32BE",
    "Float64BE",
    "Format",
    "Int16BE",
    "Int32BE",
    "Int64BE",
    "Json",
    "Key",
    "KeyLike",
    "NoColumns",
    "Protobuf",
    "Raw",
    "Registering",
    "Scalar",
    "SchemaLike",
    "Text",
    "column_key",
    "key_of",
    "schema_of",
]
