"""Slopes and levels of a short, noisy series of numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foreshock.errors import InputError
from foreshock.stats.diagnostic import Diagnostic

MAX_POINTS = 512  # of which all pairs are taken: at most 130,816 slopes


def theil_sen(y: npt.ArrayLike, x: npt.ArrayLike | None = None) -> Diagnostic:
    """Theil–Sen slope: the median of (y_j − y_i) / (x_j − x_i) over all pairs with x_i < x_j; units of y per unit of x.

    `y` and `x` are (n,); x defaults to 0, 1, 2, …; points with a NaN or an infinity are left out. Beyond 512 points
    an evenly spaced 512 are taken, so memory is bounded. n is the number of points used. Sen 1968, "Estimates of the
    regression coefficient based on Kendall's tau".
    """
    ys = np.asarray(y, np.float64)
    xs = np.arange(ys.size, dtype=np.float64) if x is None else np.asarray(x, np.float64)
    if ys.ndim != 1 or xs.shape != ys.shape:
        raise InputError(f"theil_sen: got shapes {ys.shape} and {xs.shape}, expected two equal (n,). Align x and y.")
    finite = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[finite], ys[finite]
    if xs.size > MAX_POINTS:
        kept = np.linspace(0, xs.size - 1, MAX_POINTS).round().astype(np.intp)
        xs, ys = xs[kept], ys[kept]
    i, j = np.triu_indices(xs.size, 1)
    run = xs[j] - xs[i]
    apart = run != 0
    if not apart.any():
        return Diagnostic.unknown(int(xs.size), f"{xs.size} finite points have no slope")
    slopes = (ys[j] - ys[i])[apart] / run[apart]
    return Diagnostic(float(np.median(slopes)), int(xs.size))


def rolling_median(y: npt.ArrayLike, window: int) -> npt.NDArray[np.float64]:
    """Median of the last `window` values up to each place, (n,); the first places have fewer. NaN values are skipped.

    A place whose whole window is NaN stays NaN.
    """
    ys = np.asarray(y, np.float64)
    if window < 1:
        raise InputError(f"window: got {window}, expected at least 1. Pass a number of values.")
    out = np.full(ys.shape, np.nan)
    for place in range(ys.size):
        part = ys[max(place - window + 1, 0) : place + 1]
        part = part[~np.isnan(part)]
        if part.size:
            out[place] = np.median(part)
    return out
