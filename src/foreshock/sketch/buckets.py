"""Log-linear buckets, read from the bits of a float32.

A positive float32 is 2^e · (1 + f). Its bits, shifted right until m = 6 bits of the fraction are left, number the
buckets: 64 of equal width in each power of two. No logarithm is needed, and torch and NumPy agree to the bit.
A bucket [lo, hi) is represented by its harmonic midpoint 2·lo·hi / (lo + hi), which is never further than
1 / (2^(m+1) + 1) = 0.775 % (relative) from any value in the bucket.

The 17 bits that the shift drops say how far the value stands above the lower edge, in units of 2^-17 of the bucket's
width. Their sum over the tokens of a bucket, its `fractions`, is an integer: it does not depend on the order of the
tokens, and it gives the mean of the bucket's values exactly. The two cells without a width (index 0 and N_BUCKETS + 1)
have no fractions; their values count as 0 and as 128 nats.

A token's count and its fraction are added in one go, as COUNT_UNIT + fraction: the upper bits of an int64 count, the
lower 40 sum the fractions. At most MAX_PENDING = 2^22 tokens are added before the two are taken apart. So the fractions
stay below 2^22 · 2^17 = 2^39 < 2^40 and never carry into the count; the count, at most 2^22 < 2^23, never reaches the
sign bit.

Index 0 holds |r| < 2^-20 (zero too), 1 … N_BUCKETS hold [2^-20, 2^7), N_BUCKETS + 1 holds the finite |r| ≥ 2^7.
While tokens are being counted two more places follow, for ±inf and for NaN; they never enter a sketch's counts.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FRACTION_BITS = 6
MIN_EXPONENT = -20
MAX_EXPONENT = 7
N_BUCKETS = (MAX_EXPONENT - MIN_EXPONENT) << FRACTION_BITS
LARGEST = 128.0  # nats; what a larger |r| counts as
N_CELLS = N_BUCKETS + 2  # with the underflow and the overflow
INF_CELL = N_CELLS
NAN_CELL = N_CELLS + 1
ROW_WIDTH = N_CELLS + 2  # the cells of one sign while counting
RELATIVE_ERROR = 1 / (2 ** (FRACTION_BITS + 1) + 1)

MAGNITUDE_MASK = 0x7FFFFFFF
INFINITY_BITS = 0x7F800000
SHIFT = 23 - FRACTION_BITS
FRACTION_MASK = (1 << SHIFT) - 1
COUNT_BITS = 40
COUNT_UNIT = 1 << COUNT_BITS
MAX_PENDING = 1 << 22  # tokens
FIRST_INDEX = ((127 + MIN_EXPONENT) << FRACTION_BITS) - 1  # of the shifted bits; becomes index 0


def _edges() -> npt.NDArray[np.float64]:
    steps = np.arange(N_BUCKETS + 1)
    exponents, fractions = np.divmod(steps, 1 << FRACTION_BITS)
    edges: npt.NDArray[np.float64] = np.ldexp(1 + fractions / (1 << FRACTION_BITS), exponents + MIN_EXPONENT)
    return edges


EDGES: npt.NDArray[np.float64] = _edges()
"""Edges of the buckets 1 … N_BUCKETS, (N_BUCKETS + 1,), in nats."""

REPRESENTATIVES: npt.NDArray[np.float64] = np.concatenate(
    ([0.0], 2 * EDGES[:-1] * EDGES[1:] / (EDGES[:-1] + EDGES[1:]), [EDGES[-1]])
)
"""The value that stands for each cell, (N_CELLS,), in nats. The overflow is represented by its lower edge."""


LOWER: npt.NDArray[np.float64] = np.concatenate(([0.0], EDGES))
"""The lower edge of each cell, (N_CELLS,), in nats."""

WIDTHS: npt.NDArray[np.float64] = np.concatenate(([0.0], np.diff(EDGES), [0.0]))
"""The width of each cell, (N_CELLS,), in nats; 0 for the two that count as one value."""

UPPER: npt.NDArray[np.float64] = LOWER + WIDTHS
"""The upper edge of each cell, (N_CELLS,), in nats; the lower one for the two without a width."""


def locate(
    log_ratio: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Sign, cell and fraction of each value, all with the shape of `log_ratio`.

    The sign is 0 for r < 0 and 1 for r ≥ 0 (NaN: whatever its bits say). The cell lies in 0 … NAN_CELL. The fraction
    lies in 0 … FRACTION_MASK; outside the cells 1 … N_BUCKETS it has no meaning.
    """
    with np.errstate(invalid="ignore"):  # signalling NaN
        bits = (log_ratio + np.float32(0)).view(np.int32)  # adding zero turns −0.0 into +0.0
    fraction = bits & np.int32(FRACTION_MASK)
    cell = bits & np.int32(MAGNITUDE_MASK)
    special = cell - np.int32(INFINITY_BITS - 1)
    np.clip(special, 0, 2, out=special)  # 0 finite, 1 infinite, 2 NaN
    cell >>= SHIFT
    cell -= np.int32(FIRST_INDEX)
    np.clip(cell, 0, N_BUCKETS + 1, out=cell)
    cell += special
    bits >>= 31
    bits += 1
    return bits, cell, fraction
