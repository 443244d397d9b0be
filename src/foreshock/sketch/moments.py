"""Sums over tokens, derived from how many there are in each bucket and from their mean.

A bucket's count n and fractions F give the mean of its |r| exactly, lower edge + F / n · 2^-17 · width. For a smooth
f, Σ f(r) over the bucket is then n · (f(m) + f''(m) · v / 2) up to terms of third order, with m the mean and v the
variance inside the bucket. That variance is not kept. Tokens that lie evenly over the bucket have width² / 12; more
than (m − lower) · (upper − m) is not possible with this mean; a lone token has 0.

A bucket is at most 1/64 of its value wide. The estimate is furthest off for two tokens at the two edges, whose variance
is width² / 4 where an even spread has width² / 24: it is wrong by at most 5/24 width² <= |m|² / 19,660. For f = e^2r,
whose f'' / 2 is 2 f, that is a relative error of at most m² / 9,830 = 1.02e-4 m², even if all tokens of each bucket
stood at its edges; for r² it is 5.1e-5. Over smooth distributions the errors are far smaller, see
tests/sketch/test_moments.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foreshock.sketch.buckets import LOWER, SHIFT, WIDTHS

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Buckets(NamedTuple):
    """The non-empty buckets of one slice, ascending in cells, first those of r < 0; each (K,).

    Attributes:
        n: tokens, as float64.
        r: mean log-ratio in nats; within ±128, because the overflow counts as 128.
        variance: of r inside the bucket, in nats²; an estimate.
    """

    n: FloatArray
    r: FloatArray
    variance: FloatArray

    def total(self, value: FloatArray, curvature: FloatArray) -> float:
        """Σ f(r) over the tokens, given f and f'' at each bucket's mean; both (K,)."""
        return float(np.dot(self.n, value + curvature * self.variance / 2))


def non_empty(counts: IntArray, fractions: IntArray) -> Buckets:
    """The buckets of a slice with its counts and fractions, both (2, N_CELLS)."""
    sign, cell = np.nonzero(counts)
    n = counts[sign, cell].astype(np.float64)
    width = WIDTHS[cell]
    above = fractions[sign, cell] / n * 2.0**-SHIFT * width  # the mean's distance from the lower edge
    variance = np.minimum(width**2 / 12 * (1 - 1 / n), above * (width - above))
    return Buckets(n, (2 * sign - 1) * (LOWER[cell] + above), variance)
