"""Protocol buffers as they are on the wire: fields and their values, which know no message.

Profiles and metrics are the only two uses, of a dozen small messages; nothing is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_VARINT: Final = 0
_DOUBLE: Final = 1
_LENGTH: Final = 2
_64_BITS: Final = (1 << 64) - 1
_SMALL: Final = tuple(bytes([value]) for value in range(0x80))
_pack_double = struct.Struct("<d").pack


def varint(value: int) -> bytes:
    """Encode an integer of up to 64 bits, a negative one as its two's complement."""
    value &= _64_BITS
    if value < 0x80:
        return _SMALL[value]
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | _DOUBLE) + _pack_double(value)


def message(field: int, content: bytes) -> bytes:
    """Encode a message, or anything else of a length: bytes and packed numbers."""
    return varint(field << 3 | _LENGTH) + delimited(content)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode(errors="replace"))


def packed(field: int, values: Iterable[int]) -> bytes:
    return message(field, b"".join(map(varint, values)))


def delimited(content: bytes) -> bytes:
    """Encode a message of a sequence that is no message itself."""
    return varint(len(content)) + content
