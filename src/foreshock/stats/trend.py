"""Trends."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def theil_sen(x: npt.ArrayLike, y: npt.ArrayLike) -> float:
    """Median of the slopes between all pairs of points (Theil 1950; Sen 1968), in units of y per unit of x.

    ``x`` and ``y`` are (n,), finite. Pairs with the same x are left out; NaN without any other pair. Takes n²/2 slopes,
    so it is for some hundreds of points at most.
    """
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    first, second = np.triu_indices(xs.size, 1)
    run, rise = xs[second] - xs[first], ys[second] - ys[first]
    apart = run != 0
    return float(np.median(rise[apart] / run[apart])) if apart.any() else math.nan


def kendall(values: npt.NDArray[np.float64]) -> float:
    """Kendall's rank correlation of a series ``(n,)`` with its order, in standard errors (Mann 1945).

    Without a correction for ties, which makes it conservative. Takes all pairs, so it is for some dozens of values.
    """
    n = values.size
    rank_sum = float(np.triu(np.sign(values[None, :] - values[:, None]), 1).sum())
    return rank_sum / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if n > 1 else 0.0
