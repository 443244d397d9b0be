"""What `filling` counts with NumPy, in compiled code. Importing this module compiles it, or reads it from the cache.

Counts, fractions, tallies and extremes are the same to the bit; sums over sequences are, up to rounding. Only
`filling.load_compiled` imports this module. The cache is renewed when this file changes, not when `buckets` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numba
import numpy as np
import numpy.typing as npt

from foreshock.sketch.buckets import (
    FIRST_INDEX,
    FRACTION_MASK,
    INFINITY_BITS,
    LARGEST,
    MAGNITUDE_MASK,
    N_BUCKETS,
    N_CELLS,
    SHIFT,
)

if TYPE_CHECKING:
    from foreshock.sketch.log_ratio import LogRatioSketch

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Bits = npt.NDArray[np.int32]
Places = npt.NDArray[np.uint32]  # unsigned: an index that cannot be negative needs no check

CAP = np.float32(LARGEST)
PLAIN: Final = ("C", "A", "W")  # contiguous, aligned and writeable: the one kind of array that is compiled for
ONE_SLICE = 2 * N_CELLS  # places of one slice: its cells of r < 0, then those of r ≥ 0


def count(
    sketch: LogRatioSketch,
    values: npt.NDArray[np.float32],
    ids: npt.NDArray[Any],
    keep: npt.NDArray[np.bool_],
    row_starts: npt.NDArray[np.intp] | None,
) -> None:
    """Count tokens, (N,), whose unmasked ids index the slices. `row_starts` says where each sequence begins."""
    sketch.masked += _count(
        np.require(values, np.float32, PLAIN),
        np.require(ids, np.uint8, PLAIN),  # at most 64 slices; a masked id may wrap
        np.require(keep, np.bool_, PLAIN),
        np.zeros(1, np.int64) if row_starts is None else row_starts,
        sketch.counts,
        sketch.fractions,
        sketch.tallies,
        sketch.extremes,
        np.empty_like(sketch.sequences) if row_starts is None else sketch.sequences,
    )


@numba.njit
def _locate(
    bits: Bits, ids: npt.NDArray[np.uint8], keep: npt.NDArray[np.bool_], place: Places, nowhere: int
) -> tuple[int, int]:
    """Write the place of each token among the counts, and return how many are masked and how many are not finite."""
    masked, special = 0, 0
    for j in range(bits.size):
        magnitude = bits[j] & MAGNITUDE_MASK
        cell = min(max((magnitude >> SHIFT) - FIRST_INDEX, 0), N_BUCKETS + 1)
        sign = (bits[j] >= 0) | (magnitude == 0)  # −0.0 is no negative number
        finite = magnitude < INFINITY_BITS
        masked += not keep[j]
        special += keep[j] & (not finite)
        place[j] = ids[j] * ONE_SLICE + sign * N_CELLS + cell if keep[j] & finite else nowhere
    return masked, special


@numba.njit
def _add_to_cells(bits: Bits, place: Places, counts: IntArray, fractions: IntArray) -> None:
    for j in range(place.size):
        if place[j] < counts.size:
            counts[place[j]] += 1
            fractions[place[j]] += bits[j] & FRACTION_MASK


@numba.njit(fastmath={"reassoc", "nsz"})  # a sum may be taken in another order, several numbers at a time
def _sums(values: npt.NDArray[np.float32], bits: Bits, place: Places, first: int) -> tuple[int, float, int, int]:
    """Of the tokens of the slice whose places begin at `first`: n, Σr, and the bits of the two extremes."""
    n, total, low, high = 0, 0.0, 0, 0
    for j in range(place.size):
        inside = np.uint32(place[j] - first) < np.uint32(ONE_SLICE)
        n += 1 if inside else 0
        total += np.float64(min(max(values[j], -CAP), CAP)) if inside else 0.0
        own = bits[j] if inside else 0
        high = max(high, own)
        low = min(low, own ^ ((own >> 31) & MAGNITUDE_MASK))  # −1 − magnitude, so that the largest comes last
    return n, total, max(-1 - low, 0), high


@numba.njit
def _tally(bits: Bits, ids: npt.NDArray[np.uint8], keep: npt.NDArray[np.bool_], tallies: IntArray) -> None:
    for j in range(bits.size):
        magnitude = bits[j] & MAGNITUDE_MASK
        if keep[j] and magnitude > INFINITY_BITS:
            tallies[ids[j], 0] += 1
        elif keep[j] and magnitude == INFINITY_BITS:
            tallies[ids[j], 1 if bits[j] > 0 else 2] += 1


@numba.njit(
    "int64(float32[::1], uint8[::1], boolean[::1], int64[::1], int64[:, :, ::1], int64[:, :, ::1], int64[:, ::1],"
    "float64[:, ::1], float64[:, ::1])",
    cache=True,
    nogil=True,
)
def _count(
    values: npt.NDArray[np.float32],
    ids: npt.NDArray[np.uint8],
    keep: npt.NDArray[np.bool_],
    starts: IntArray,
    counts: IntArray,
    fractions: IntArray,
    tallies: IntArray,
    extremes: FloatArray,
    sequences: FloatArray,
) -> int:
    """Add tokens, (N,), to the arrays of a sketch. `starts` says where each sequence begins. Returns masked tokens."""
    bits, place = values.view(np.int32), np.empty(values.size, np.uint32)
    masked: int
    masked, special = _locate(bits, ids, keep, place, counts.size)
    _add_to_cells(bits, place, counts.reshape(-1), fractions.reshape(-1))
    fractions[:, :, 0] = 0  # the cells without a width
    fractions[:, :, N_CELLS - 1] = 0
    if special:
        _tally(bits, ids, keep, tallies)
    peaks = np.zeros(extremes.shape, np.int32)
    for row in range(len(starts)):
        start, end = starts[row], starts[row + 1] if row + 1 < len(starts) else len(bits)
        for i in range(len(counts)):
            n, total, low, high = _sums(values[start:end], bits[start:end], place[start:end], i * ONE_SLICE)
            if n:
                w = np.exp(total / n)
                sequences[i, 0] += 1
                sequences[i, 1] += w
                sequences[i, 2] += w * w
                peaks[i, 0] = max(peaks[i, 0], low)
                peaks[i, 1] = max(peaks[i, 1], high)
    for i in range(len(counts)):
        for sign in range(2):
            extremes[i, sign] = max(extremes[i, sign], peaks.view(np.float32)[i, sign])
    return masked
