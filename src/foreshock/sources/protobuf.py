"""The wire format of Protocol Buffers, as far as logs use it: the fields of a message, without its schema."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types. https://protobuf.dev/programming-guides/encoding/#structure"""


def fields(message: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield ``(number, wire type, integer, bytes)`` of each field; the integer of a varint, the bytes of the others.

    Raises:
        ValueError: the message breaks off, or is none.
    """
    at, end = 0, len(message)
    while at < end:
        tag, at = varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = varint(message, at)
            yield number, kind, value, b""
            continue
        if kind == LENGTH:
            size, at = varint(message, at)
        elif kind in (FIXED64, FIXED32):
            size = 8 if kind == FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > end:
            raise ValueError("a field beyond the end of its message")
        yield number, kind, 0, message[at : at + size]
        at += size


def varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned integer at a position, and the position after it.

    Raises:
        ValueError: it breaks off, or is longer than 64 bits.
    """
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a varint that does not end")


def signed(value: int) -> int:
    """Return a varint that was written from a signed 64-bit integer."""
    value &= 2**64 - 1
    return value - 2**64 if value >= 2**63 else value
