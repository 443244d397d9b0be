"""Empirical distribution functions."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def ecdf(
    values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """F(x) = share of observations ≤ x, at each of the ascending `values` (m,) that `counts` (m,) says were seen.

    Two arrays of the same length: the values and F at each; empty without observations.
    """
    seen = np.flatnonzero(counts)
    cumulative = np.cumsum(counts[seen])
    return values[seen], cumulative / (cumulative[-1] if seen.size else 1)


def tail_distance(
    values: npt.NDArray[np.float64], before: npt.NDArray[np.int64], after: npt.NDArray[np.int64], share: float
) -> float:
    """Wasserstein-1 distance between the largest `share` of two samples, in the unit of `values`.

    The mean distance of their quantiles at the same level, W₁ = (1/s) ∫ |F⁻¹(u) − G⁻¹(u)| du over u in (1 − s, 1).
    Both samples come as counts (m,) at the same ascending `values` (m,). NaN when either is empty.
    """
    if not before.sum() or not after.sum():
        return math.nan
    left, right = np.cumsum(before) / before.sum(), np.cumsum(after) / after.sum()
    levels = np.unique(np.clip(np.concatenate(([1 - share], left, right)), 1 - share, 1))
    middles = (levels[1:] + levels[:-1]) / 2
    distances = np.abs(values[np.searchsorted(left, middles)] - values[np.searchsorted(right, middles)])
    return float(np.dot(distances, np.diff(levels)) / share)
