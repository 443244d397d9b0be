"""A LogRatioSketch as one line of text, for `blocks.jsonl`.

base64( zlib( magic, version, slice names, scalars, arrays ) ). Counts are split into byte planes (all lowest bytes
first), because the higher ones are nearly all zero and vanish in the compression. The zlib stream ends in a checksum
of its content, so a torn or altered record does not decode.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

import numpy as np
import numpy.typing as npt

from foreshock.errors import CorruptRecord, InputError
from foreshock.sketch.buckets import N_CELLS
from foreshock.sketch.log_ratio import MAX_SLICES, LogRatioSketch
from foreshock.sketch.moments import N_MOMENTS, N_SEQUENCE

MAGIC = b"FSK"
VERSION = 1
_HEADER = struct.Struct("<3sBHHHI")  # magic, version, cells, moments, slices, bytes of the slice names
_SCALARS = struct.Struct("<QQ")  # masked, outside
_MAX_NAMES = 1 << 16
_MAX_BYTES = _HEADER.size + _MAX_NAMES + _SCALARS.size + MAX_SLICES * 8 * (2 * N_CELLS + N_MOMENTS + N_SEQUENCE + 3 + 2)


def encode(sketch: LogRatioSketch) -> str:
    """The sketch as ASCII text. InputError when the slice names exceed 64 KiB or hold a NUL."""
    names = "\0".join(sketch.slices).encode()
    if len(names) > _MAX_NAMES or any("\0" in name for name in sketch.slices):
        raise InputError(
            f"slices: got {len(names)} bytes of names, expected at most {_MAX_NAMES} without NUL. Rename the slices."
        )
    planes = sketch.counts.astype("<i8").reshape(-1, 1).view(np.uint8).T
    parts = (
        _HEADER.pack(MAGIC, VERSION, N_CELLS, N_MOMENTS, len(sketch.slices), len(names)),
        names,
        _SCALARS.pack(sketch.masked, sketch.outside),
        planes.tobytes(),
        sketch.tallies.astype("<i8").tobytes(),
        sketch.moments.astype("<f8").tobytes(),
        sketch.sequences.astype("<f8").tobytes(),
        sketch.extremes.astype("<f8").tobytes(),
    )
    return base64.b64encode(zlib.compress(b"".join(parts), 9)).decode("ascii")


def decode(text: str) -> LogRatioSketch:
    """The sketch behind `encode`'s text; CorruptRecord when anything about the text is wrong."""
    data = _inflate(text)
    try:
        return _parse(data)
    except (ValueError, struct.error) as error:  # an InputError is a ValueError
        raise CorruptRecord(f"sketch record: got content that does not parse ({error}). {_ADVICE}") from error


_ADVICE = "Expected the text that encode() wrote. Skip this record."


def _inflate(text: str) -> bytes:
    try:
        packed = base64.b64decode(text, validate=True)
        stream = zlib.decompressobj()
        data = stream.decompress(packed, _MAX_BYTES)  # bounded: a few bytes could unpack to gigabytes
    except (ValueError, binascii.Error, zlib.error) as error:
        raise CorruptRecord(f"sketch record: got {len(text)} characters ({error}). {_ADVICE}") from error
    if not stream.eof or stream.unused_data:
        raise CorruptRecord(f"sketch record: got a stream that is cut off, too long or followed by more. {_ADVICE}")
    return data


def _parse(data: bytes) -> LogRatioSketch:
    magic, version, cells, moments, size, name_bytes = _HEADER.unpack_from(data)
    if (magic, version, cells, moments) != (MAGIC, VERSION, N_CELLS, N_MOMENTS):
        raise ValueError(f"header {magic!r} version {version}, {cells} cells, {moments} moments")
    start = _HEADER.size + name_bytes
    sketch = LogRatioSketch(tuple(data[_HEADER.size : start].decode().split("\0")))
    if len(sketch.slices) != size:
        raise ValueError(f"{len(sketch.slices)} slice names for {size} slices")
    sketch.masked, sketch.outside = _SCALARS.unpack_from(data, start)
    start += _SCALARS.size
    planes = np.frombuffer(data, np.uint8, sketch.counts.size * 8, start).reshape(8, -1)
    sketch.counts[...] = np.ascontiguousarray(planes.T).view("<i8").reshape(sketch.counts.shape)
    start += sketch.counts.nbytes
    for array, kind in (
        (sketch.tallies, "<i8"),
        (sketch.moments, "<f8"),
        (sketch.sequences, "<f8"),
        (sketch.extremes, "<f8"),
    ):
        array[...] = np.frombuffer(data, kind, array.size, start).reshape(array.shape)
        start += array.nbytes
    if start != len(data):
        raise ValueError(f"{len(data)} bytes instead of {start}")
    _check(sketch)
    return sketch


def _check(sketch: LogRatioSketch) -> None:
    integers: tuple[npt.NDArray[np.int64], ...] = (sketch.counts, sketch.tallies)
    if any((array < 0).any() for array in integers):
        raise ValueError("negative counts")
    if not (np.isfinite(sketch.moments).all() and np.isfinite(sketch.sequences).all()):
        raise ValueError("sums that are not finite")
    if np.isnan(sketch.extremes).any():
        raise ValueError("extremes that are NaN")
