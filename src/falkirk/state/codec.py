"""How keys and values of state are written as bytes.

    full key  = shard (2 bytes, big-endian) · table (1 byte) · key columns     bytes sort as the columns do
    value     = format · nulls · one cell a column · bytes of the variable ones

Key columns carry their types and their own ends, so the bytes of leading columns are a prefix of the whole: so
"all keys of this shard and table that begin with these columns" is one scan. Values carry neither; their schema is part
of the stage's fingerprint, and a store with another fingerprint is refused before a value is read.

`encode_keys`, `encode_values` and their inverses take whole columns; `encode_key` and `decode_key` take one key, and
give the same bytes.
"""

from __future__ import annotations

from falkirk.state.keys import (
    COMPLEMENT,
    check_key_type,
    decode_key,
    decode_keys,
    decode_leading,
    encode_columns,
    encode_key,
    encode_keys,
    prefix_end,
)
from falkirk.state.scalars import Scalar
from falkirk.state.values import check_value_type, check_value_types, decode_values, encode_values

FORMAT = 1
"""Of keys and values together. A store records it; another format is refused."""

__all__ = [
    "COMPLEMENT",
    "FORMAT",
    "Scalar",
    "check_key_type",
    "check_value_type",
    "check_value_types",
    "decode_key",
    "decode_keys",
    "decode_leading",
    "decode_values",
    "encode_columns",
    "encode_key",
    "encode_keys",
    "encode_values",
    "prefix_end",
]
