"""Keys as bytes that sort as their columns do.

    a < b  ⇔  encode(a) < encode(b)         for tuples of scalars of the same types, column by column
    encode(a ++ b) = encode(a) ++ encode(b)  so the leading columns are a prefix of the whole

| type | bytes | order |
|---|---|---|
| null | 01 | before everything |
| bool | 02 or 03 | false, true |
| int | 11 · 8 bytes, sign bit flipped | numeric; beyond 64 bits 10 or 12 · 16 bytes |
| float | 20 · IEEE bits, all flipped below zero, else the sign | numeric; −0.0 is 0.0; NaNs are equal, and last |
| date | 30 · 4 bytes: days since 1970 | time |
| datetime | 31 · 8 bytes: microseconds since 1970, UTC | time |
| str | 40 · UTF-8, 00 written as 00 ff · 00 01 | code points |
| bytes | 41 · likewise | bytes |
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

Scalar = None | bool | int | float | str | bytes | date | datetime
"""What a key column may hold. A datetime with a zone is written and read back as the UTC instant, without a zone."""

NULL, FALSE, TRUE = 0x01, 0x02, 0x03
INT_BELOW, INT, INT_ABOVE = 0x10, 0x11, 0x12
FLOAT, DATE, DATETIME, STR, BYTES = 0x20, 0x30, 0x31, 0x40, 0x41

SIGN = 1 << 63
TEXT_END = b"\x00\x01"
TEXT_ZERO = b"\x00\xff"

_SIGN_128 = 1 << 127
_ALL = (1 << 64) - 1
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - keys hold instants, and read back without a zone
_EPOCH_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def encode_scalar(value: Scalar) -> bytes:
    """One column of a key.

    >>> encode_scalar(-1) < encode_scalar(7) < encode_scalar(2**70)
    True
    """
    match value:
        case None:
            return bytes([NULL])
        case bool():
            return bytes([TRUE if value else FALSE])
        case int():
            return _encode_int(value)
        case float():
            value = math.nan if math.isnan(value) else value + 0.0
            (bits,) = struct.unpack(">Q", struct.pack(">d", value))
            return struct.pack(">BQ", FLOAT, bits ^ _ALL if bits >> 63 else bits | SIGN)
        case str():
            return bytes([STR]) + value.encode().replace(b"\0", TEXT_ZERO) + TEXT_END
        case bytes():
            return bytes([BYTES]) + value.replace(b"\0", TEXT_ZERO) + TEXT_END
        case datetime():
            instant = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
            return struct.pack(">BQ", DATETIME, (instant - _EPOCH) // _MICROSECOND + SIGN)
        case date():
            return struct.pack(">BI", DATE, (value - _EPOCH_DAY).days + (1 << 31))
        case _:
            raise TypeError(f"a key in state cannot hold {value!r} of type {type(value).__name__}")


def _encode_int(value: int) -> bytes:
    if -SIGN <= value < SIGN:
        return struct.pack(">BQ", INT, value + SIGN)
    return bytes([INT_BELOW if value < 0 else INT_ABOVE]) + (value + _SIGN_128).to_bytes(16, "big")


def decode_scalar(key: bytes, at: int) -> tuple[Scalar, int]:
    """The scalar at `at`, and where the next one begins. Raises ValueError, IndexError or OverflowError.

    >>> decode_scalar(encode_scalar("ab") + encode_scalar(7), 0)
    ('ab', 5)
    """
    tag, at = key[at], at + 1
    if tag in (NULL, FALSE, TRUE):
        return (None if tag == NULL else tag == TRUE), at
    if tag in (STR, BYTES):
        end = _end_of_text(key, at)
        text = key[at:end].replace(TEXT_ZERO, b"\0")
        return (text.decode() if tag == STR else text), end + len(TEXT_END)
    if tag not in _DECODERS:
        raise ValueError(f"no column begins with byte {tag:#04x}")
    width, decode = _DECODERS[tag]
    if at + width > len(key):
        raise ValueError("the key is cut short")
    return decode(int.from_bytes(key[at : at + width], "big")), at + width


def _end_of_text(key: bytes, at: int) -> int:
    while True:
        at = key.index(b"\0", at)
        if key[at : at + 2] != TEXT_ZERO:
            break
        at += 2
    if key[at : at + 2] != TEXT_END:
        raise ValueError("a text does not end")
    return at


def _float_of(bits: int) -> float:
    (value,) = struct.unpack(">d", struct.pack(">Q", bits ^ SIGN if bits >> 63 else bits ^ _ALL))
    return float(value)


_DECODERS: dict[int, tuple[int, Callable[[int], Scalar]]] = {
    INT_BELOW: (16, lambda bits: bits - _SIGN_128),
    INT: (8, lambda bits: bits - SIGN),
    INT_ABOVE: (16, lambda bits: bits - _SIGN_128),
    FLOAT: (8, _float_of),
    DATE: (4, lambda bits: _EPOCH_DAY + timedelta(days=bits - (1 << 31))),
    DATETIME: (8, lambda bits: _EPOCH + timedelta(microseconds=bits - SIGN)),
}
