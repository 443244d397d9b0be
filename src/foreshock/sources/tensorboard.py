"""TensorBoard event files: scalars as ``simple_value`` and as tensors of one element.

A file is a sequence of records: length (uint64), masked CRC32C of it, an ``Event`` message, masked CRC32C of that. See
``tensorboard/compat/proto/{event,summary,tensor}.proto``.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed, protobuf
from foreshock.sources.rows import Rows

FORMAT = "TensorBoard event file"
PATTERN = "*tfevents*"
"""Names of event files in a folder. TensorBoard itself looks for no others."""

DAMAGED = "damaged records"
TORN = "torn ends of event files"

_HEADER = struct.Struct("<QI")
_LARGEST_RECORD = 2**28  # bytes
_WINDOW = 2**20  # bytes in which the next record is sought after a damaged one
_MAYBE_HEADER = re.compile(rb"(?=(?!\0{3})...\0{5}....)", re.DOTALL)  # of a record below 16 MB
_CONTENT_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8"}  # DT_FLOAT, DT_DOUBLE, DT_INT32, DT_INT64
_FLOAT_VALUES = {5: "<f4", 6: "<f8"}  # float_val and double_val of a TensorProto
_INTEGER_VALUES = (7, 10)  # int_val, int64_val
_NOT_SCALAR = (4, 5, 6, 8)  # image, histogram, audio and tensor of a Summary.Value


def looks_like(start: bytes) -> bool:
    """Say whether a record header whose checksum is right stands at the start."""
    return len(start) >= _HEADER.size and _length(start[: _HEADER.size]) is not None


def read(path: Path) -> Run:
    """Read one event file.

    A damaged record is counted, and the next whole one sought. The end that a running or killed writer left is
    counted as torn.

    Raises:
        ReadError: the file cannot be opened, or holds no scalar.
    """
    return _run(path, [path])


def has_events(folder: Path) -> bool:
    """Say whether event files lie in this folder itself."""
    return any(path.is_file() for path in folder.glob(PATTERN))


def read_folder(folder: Path) -> Run:
    """Read the event files of a folder as one run, in the order in which they were begun: each restart adds a file.

    Raises:
        ReadError: a file cannot be opened, or none holds a scalar.
    """
    return _run(folder, sorted((path for path in folder.glob(PATTERN) if path.is_file()), key=_begun))


def _run(place: Path, files: list[Path]) -> Run:
    rows = Rows()
    for file in files:
        rows.add_points(_scalars(file, rows))
    if not rows.count:
        raise ReadError(f"{str(place)!r} holds TensorBoard events, but no scalar.")
    return rows.run(place, FORMAT)


def _begun(path: Path) -> tuple[float, str]:
    """Return the wall time of the first event of a file, and its name."""
    event, _ = next(_records(path, Counter()), (b"", 0))
    try:
        times = [data for number, kind, _, data in protobuf.fields(event) if (number, kind) == (1, protobuf.FIXED64)]
    except ValueError:
        times = []
    return (struct.unpack("<d", times[0])[0] if times else 0.0), path.name


def _records(path: Path, skipped: Counter[str]) -> Iterator[tuple[bytes, int]]:
    """Yield the whole records of a file, and the checksum that was written behind each."""
    stream = compressed.Bytes(path, skipped)
    while header := stream.read(_HEADER.size):
        if len(header) < _HEADER.size:
            skipped[TORN] += 1
            return
        length = _length(header)
        if length is None:
            skipped[DAMAGED] += 1
            if _find_record(stream, header):
                continue
            return
        record = stream.read(length + 4)
        if len(record) < length + 4:
            skipped[TORN] += 1
            return
        yield record[:-4], int.from_bytes(record[-4:], "little")


def _find_record(stream: compressed.Bytes, lost: bytes) -> bool:
    """Move to the next header of a record behind the start of ``lost``; False when there is none."""
    sought = lost[1:]
    while True:
        window = stream.read(_WINDOW)
        sought += window
        for match in _MAYBE_HEADER.finditer(sought):
            if _length(sought[match.start() : match.start() + _HEADER.size]) is not None:
                stream.give_back(sought[match.start() :])
                return True
        if len(window) < _WINDOW:
            return False
        sought = sought[1 - _HEADER.size :]


@lru_cache(maxsize=256)  # most records of a log are of few lengths
def _length(header: bytes) -> int | None:
    """Return the length of the record behind a header; None when the checksum is wrong."""
    length, checksum = _HEADER.unpack(header)
    return length if length <= _LARGEST_RECORD and _masked_crc32c(header[:8]) == checksum else None


def _scalars(path: Path, rows: Rows) -> Iterator[tuple[int, str, float]]:
    """Yield ``(step, tag, value)``; values that are no scalars and damaged records are counted in ``rows``."""
    for event, checksum in _records(path, rows.skipped):
        try:
            step, values = _event(event)
        except ValueError:
            rows.skipped[DAMAGED] += 1
            continue
        scalars = [(tag, value) for tag, value in values if value is not None]
        # The checksum is taken of what is used alone: that of an image would take Python long.
        if scalars and _masked_crc32c(event) != checksum:
            rows.skipped[DAMAGED] += 1
            continue
        rows.not_numbers.update(tag for tag, value in values if value is None)
        for tag, value in scalars:
            yield step, tag, value


def _event(message: bytes) -> tuple[int, list[tuple[str, float | None]]]:
    """Return the step of an Event, and tag and value of its summary; None for what is no scalar."""
    step, values = 0, []
    for number, kind, integer, data in protobuf.fields(message):
        if (number, kind) == (2, protobuf.VARINT):
            step = protobuf.signed(integer)
        elif (number, kind) == (5, protobuf.LENGTH):
            found = [_value(part) for field, wire, _, part in protobuf.fields(data) if (field, wire) == (1, 2)]
            values += [value for value in found if value is not None]
    return step, values


def _value(message: bytes) -> tuple[str, float | None] | None:
    """Return tag and value of a Summary.Value; None when it has none, as the hyperparameters of a run."""
    tag, value, has_value = "", None, False
    for number, kind, _, data in protobuf.fields(message):
        if (number, kind) == (1, protobuf.LENGTH):
            tag = data.decode("utf-8", "replace")
        elif (number, kind) == (2, protobuf.FIXED32):
            value, has_value = float(struct.unpack("<f", data)[0]), True
        elif kind == protobuf.LENGTH and number in _NOT_SCALAR:
            value, has_value = _only_element(data) if number == 8 else None, True
    return (tag, value) if has_value else None


def _only_element(message: bytes) -> float | None:
    """Return the number that a TensorProto of one element holds; None for any other tensor."""
    kind_of_content, elements = 0, []
    for number, kind, integer, data in protobuf.fields(message):
        if (number, kind) == (1, protobuf.VARINT):
            kind_of_content = integer
        elif number == 4 and kind_of_content in _CONTENT_TYPES:
            elements += _array(data, _CONTENT_TYPES[kind_of_content])
        elif number in _FLOAT_VALUES:  # packed, or one fixed field each
            elements += _array(data, _FLOAT_VALUES[number])
        elif number in _INTEGER_VALUES and kind == protobuf.VARINT:
            elements.append(protobuf.signed(integer))
        elif number in _INTEGER_VALUES and len(data) <= 10:
            elements.append(protobuf.signed(protobuf.varint(data, 0)[0]))
    return float(elements[0]) if len(elements) == 1 else None


def _array(data: bytes, dtype: str) -> list[float]:
    size = np.dtype(dtype).itemsize
    return [] if len(data) % size else np.frombuffer(data[: 2 * size], dtype=dtype).tolist()


def _masked_crc32c(data: bytes) -> int:
    """Return the CRC32C of a record as TensorFlow writes it: rotated by 15 bits, plus a constant."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _crc32c_table()
