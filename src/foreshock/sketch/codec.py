"""A LogRatioSketch as one line of text, for `blocks.jsonl`.

base64( zlib( magic, version, slice names, scalars, cells, arrays, CRC-32 ) ). Of the cells only those with tokens are
written: how many there are, the step from each to the next, counts, fractions. Such integers are split into byte planes
(all lowest bytes first), because the higher ones are nearly all zero and vanish in the compression. A torn or altered
record does not decode; zlib's own checksum would let some pass, being blind to bytes that change by +2, −4, +2.

All is kept to the bit but the fractions of the buckets below 1 nat, which would take more room than everything else.
The place of n tokens that lie evenly over a bucket has a mean that itself varies by 0.29 / √n of the bucket's width; it
is rounded to steps of 1 / (6 √n). So no bucket's mean moves by more than 1 / 12 of its width (twice that at the very
end of a bucket), which is 0.13 % of |r|, and with n tokens √n times less; from 1 nat on nothing moves. Decoding and
encoding again changes nothing more.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib

import numpy as np
import numpy.typing as npt

from foreshock.errors import CorruptRecord, InputError
from foreshock.sketch.buckets import FRACTION_MASK, LOWER, N_CELLS, SHIFT, WIDTHS
from foreshock.sketch.log_ratio import MAX_SLICES, N_SEQUENCE, LogRatioSketch

MAGIC = b"FSK"
VERSION = 2
EXACT_FROM = 1.0  # nats; the fractions of buckets from here on are not rounded
ROUNDING = 6  # steps for one token, over the width of a bucket
_HEADER = struct.Struct("<3sBHHI")  # magic, version, cells, slices, bytes of the slice names
_SCALARS = struct.Struct("<QQI")  # masked, outside, cells with tokens
_CRC = struct.Struct("<I")
_MAX_NAMES = 1 << 16
_PLANES = 8 + 8 + 8  # bytes for each cell with tokens: step, count, fractions
_SLICE_BYTES = 2 * N_CELLS * _PLANES + 8 * (N_SEQUENCE + 3 + 2)
_MAX_BYTES = _HEADER.size + _MAX_NAMES + _SCALARS.size + MAX_SLICES * _SLICE_BYTES + _CRC.size

IntArray = npt.NDArray[np.int64]


def encode(sketch: LogRatioSketch) -> str:
    """The sketch as ASCII text. InputError when the slice names exceed 64 KiB or hold a NUL."""
    names = "\0".join(sketch.slices).encode()
    if len(names) > _MAX_NAMES or any("\0" in name for name in sketch.slices):
        raise InputError(
            f"slices: got {len(names)} bytes of names, expected at most {_MAX_NAMES} without NUL. Rename the slices."
        )
    counts = sketch.counts.reshape(-1)
    cells = np.flatnonzero(counts)
    n = counts[cells]
    parts = (
        _HEADER.pack(MAGIC, VERSION, N_CELLS, len(sketch.slices), len(names)),
        names,
        _SCALARS.pack(sketch.masked, sketch.outside, cells.size),
        _planes(np.diff(cells, prepend=0)),
        _planes(n),
        _planes(_rounded(cells, n, sketch.fractions.reshape(-1)[cells])),
        sketch.tallies.astype("<i8").tobytes(),
        sketch.sequences.astype("<f8").tobytes(),
        sketch.extremes.astype("<f8").tobytes(),
    )
    # Runs are all that there is to find, and looking for more takes ten times as long.
    stream = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 4, zlib.Z_RLE)
    return base64.b64encode(stream.compress(_sealed(b"".join(parts))) + stream.flush()).decode("ascii")


def _sealed(content: bytes) -> bytes:
    return content + _CRC.pack(zlib.crc32(content))


def _planes(values: IntArray) -> bytes:
    return values.astype("<i8").reshape(-1, 1).view(np.uint8).T.tobytes()


def _rounding(cells: IntArray, n: IntArray) -> tuple[IntArray, IntArray]:
    """The fractions of n tokens in the middle of each cell, and the step to which a difference from it is rounded."""
    coarse = LOWER[cells % N_CELLS] < EXACT_FROM
    step = np.where(coarse, np.sqrt(np.maximum(n, 1)) * (1 << SHIFT) / ROUNDING, 1).astype(np.int64)
    return n << (SHIFT - 1), step


def _rounded(cells: IntArray, n: IntArray, fractions: IntArray) -> IntArray:
    """The fractions in whole steps from the middle of their cell; 0, −1, 1, −2 … steps become 0, 1, 2, 3 …"""
    middle, step = _rounding(cells, n)
    steps = (fractions - middle + step // 2) // step
    limit = (n * FRACTION_MASK - middle) // step  # so that decoding never leaves the cell
    steps = np.clip(steps, -(middle // step), np.maximum(limit, 0))
    steps[_without_width(cells)] = 0
    folded: IntArray = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    return folded


def _without_width(cells: IntArray) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = WIDTHS[cells % N_CELLS] == 0
    return found


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
    magic, version, cells, size, name_bytes = _HEADER.unpack_from(data)
    if (magic, version, cells) != (MAGIC, VERSION, N_CELLS):
        raise ValueError(f"header {magic!r} version {version}, {cells} cells")
    data, seal = data[: -_CRC.size], data[-_CRC.size :]
    if _CRC.pack(zlib.crc32(data)) != seal:
        raise ValueError("a checksum that does not match")
    start = _HEADER.size + name_bytes
    sketch = LogRatioSketch(tuple(data[_HEADER.size : start].decode().split("\0")))
    if len(sketch.slices) != size:
        raise ValueError(f"{len(sketch.slices)} slice names for {size} slices")
    sketch.masked, sketch.outside, used = _SCALARS.unpack_from(data, start)
    start += _SCALARS.size
    _fill_cells(sketch, np.frombuffer(data, np.uint8, used * _PLANES, start).reshape(3, 8, used))
    start += used * _PLANES
    for array, kind in ((sketch.tallies, "<i8"), (sketch.sequences, "<f8"), (sketch.extremes, "<f8")):
        array[...] = np.frombuffer(data, kind, array.size, start).reshape(array.shape)
        start += array.nbytes
    if start != len(data):
        raise ValueError(f"{len(data)} bytes instead of {start}")
    if (sketch.tallies < 0).any():
        raise ValueError("negative counts")
    if not np.isfinite(sketch.sequences).all():
        raise ValueError("sums that are not finite")
    if not (np.isfinite(sketch.extremes) & (sketch.extremes >= 0)).all():
        raise ValueError("extremes that are negative or not finite")
    return sketch


def _fill_cells(sketch: LogRatioSketch, planes: npt.NDArray[np.uint8]) -> None:
    """Counts and fractions from the byte planes of the cells with tokens, (3, 8, K)."""
    steps, n, rounded = (np.ascontiguousarray(part.T).view("<i8").reshape(-1).astype(np.int64) for part in planes)
    if (steps[1:] < 1).any() or (steps < 0).any() or (steps > sketch.counts.size).any():
        raise ValueError("cells that do not ascend")
    cells = np.cumsum(steps)
    if cells.size and cells[-1] >= sketch.counts.size:
        raise ValueError(f"a cell beyond the {sketch.counts.size} of the layout")
    if (n < 1).any():
        raise ValueError("negative counts")
    if (n >= 1 << (63 - SHIFT)).any():
        raise ValueError("counts too large for their fractions")
    middle, step = _rounding(cells, n)
    away = np.where(rounded % 2, -(rounded // 2) - 1, rounded // 2)
    if (rounded < 0).any() or (away > (n * FRACTION_MASK - middle) // step).any() or (-away > middle // step).any():
        raise ValueError("fractions outside their cell")
    fractions = np.where(_without_width(cells), 0, middle + away * step)
    sketch.counts.reshape(-1)[cells] = n
    sketch.fractions.reshape(-1)[cells] = fractions
