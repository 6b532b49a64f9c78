"""What the bytes of keys and values mean.

Json({...})                            an object a record
Avro("bid.avsc")                       an Avro datum a record; with a registry, as its clients write it
Protobuf("bid.proto")                  a Protobuf message a record; with a registry, as its clients write it
Text() Raw() Int64BE() Int32BE() ...   one column a record
Key("id", Int64BE)                     how keys are written; text unless a format is named
"""

from __future__ import annotations

from falkirk.stream.formats.avro import Avro
from falkirk.stream.formats.base import Decoded, Format
from falkirk.stream.formats.json import Json
from falkirk.stream.formats.key import Key, KeyLike, NoColumns, key_of
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
    "key_of",
    "schema_of",
]
