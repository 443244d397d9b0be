"""The sums that a sketch keeps beside its buckets.

All are plain float64 sums over tokens, so merging is addition. Importance ratios are kept as their excess over one,
u = e^r − 1, so that nothing cancels when r is small: Σe^r = n + Σu and Σe^2r = n + 2Σu + Σu². Log-ratios are clipped
to ±300 nats first; e^600 is far inside the range of float64, so no sum can overflow. (Bands with a scale of their own
would be needed in float32, or beyond 354 nats.)

The capped sums are of e^min(r, c) for c in `CAPS`. A cap acts at the edge of a bucket, so that the device sketch can
take them from sums per bucket: the first edge at or above c. That is 3 itself, and 0.6953 for log 2: a token in
[0.6931, 0.6953) keeps its own ratio, at most 2.005, instead of 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foreshock.sketch.buckets import EDGES

CLIP = 300.0  # nats
CAPS: tuple[float, ...] = (math.log(2.0), 3.0)  # nats, ascending
R, U, U2, INVERSE_U = 0, 1, 2, 3  # columns: Σr, Σ(e^r − 1), Σ(e^r − 1)², Σ(e^−r − 1)
CAPPED = 4  # then, for each cap c, Σu and Σu² with u = e^min(r, c) − 1
N_MOMENTS = CAPPED + 2 * len(CAPS)

N_SEQUENCE = 3  # columns: sequences, Σw, Σw² of w = exp(mean r over the sequence)

FloatArray = npt.NDArray[np.float64]


class Cap(NamedTuple):
    """Where a cap acts: from the log-ratio `edge` (nats) on, the cells of r ≥ 0 from `cell` on, u is `excess`."""

    edge: float
    cell: int
    excess: float


def _cap(cap: float) -> Cap:
    bucket = int(np.searchsorted(EDGES, cap))  # the first edge at or above the cap
    return Cap(float(EDGES[bucket]), bucket + 1, math.expm1(cap))


CAP_POINTS: tuple[Cap, ...] = tuple(map(_cap, CAPS))


def token_sums(r: FloatArray) -> FloatArray:
    """The sums over finite log-ratios r (N,) within ±CLIP nats, (N_MOMENTS,)."""
    ratio = np.exp(r)
    u = ratio - 1
    sums = np.empty(N_MOMENTS)
    sums[R] = r.sum()
    sums[U], sums[U2] = u.sum(), np.dot(u, u)
    sums[INVERSE_U] = (1 / ratio - 1).sum()
    for number in reversed(range(len(CAPS))):  # the largest cap first, because u is capped in place
        np.copyto(u, CAP_POINTS[number].excess, where=r >= CAP_POINTS[number].edge)
        column = CAPPED + 2 * number
        sums[column], sums[column + 1] = u.sum(), np.dot(u, u)
    return sums


def sequence_sums(r: FloatArray, starts: npt.NDArray[np.intp]) -> FloatArray:
    """The sums over sequences, (N_SEQUENCE,); `starts` (B,) says where in r (N,) each begins; one may be empty."""
    n = np.diff(starts, append=r.size)
    filled = n > 0
    if not filled.any():
        return np.zeros(N_SEQUENCE)
    w = np.exp(np.add.reduceat(r, starts[filled]) / n[filled])
    return np.array([filled.sum(), w.sum(), np.dot(w, w)])
