"""A place in one datum, moved on value by value: where there are too few datums to move on in all of them at once."""

from __future__ import annotations


class Lost(Exception):
    """The next value is bad."""


class Walk:
    """A place in one datum.

    >>> walk = Walk(b"\\x02\\x04ab")
    >>> walk.long(), walk.bytes(walk.long()), walk.left
    (1, b'ab', 0)
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    @property
    def left(self) -> int:
        """The bytes behind it."""
        return len(self.data) - self.at

    def bytes(self, size: int) -> bytes:
        """The next bytes. Raises Lost if they are not there."""
        start, self.at = self.at, self.at + size
        if size < 0 or self.at > len(self.data):
            raise Lost
        return self.data[start : self.at]

    def long(self) -> int:
        """The next int or long. Raises Lost if it is cut off, or has more than 64 bits."""
        value = shift = 0
        while True:
            (byte,) = self.bytes(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise Lost
        if value >> 64:
            raise Lost
        return (value >> 1) ^ -(value & 1)

    def number(self, count: int) -> int:
        """The next number, one of so many. Raises Lost if it is not."""
        number = self.long()
        if not 0 <= number < count:
            raise Lost
        return number
