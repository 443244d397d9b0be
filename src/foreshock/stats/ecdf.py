"""Empirical distribution functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, eq=False)
class Ecdf:
    """F(x), the share of observations ≤ x, at each value that was seen.

    Attributes:
        values: ascending, (K,).
        shares: F at each of them, (K,).
        n: observations behind it.
        reason: why there is nothing to read, exactly when both arrays are empty.
    """

    values: npt.NDArray[np.float64]
    shares: npt.NDArray[np.float64]
    n: int
    reason: str = ""

    @property
    def ok(self) -> bool:
        """True when there is something to read."""
        return not self.reason


def ecdf(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64]) -> Ecdf:
    """The empirical distribution of observations that `counts` (m,) says were seen at the ascending `values` (m,)."""
    seen = np.flatnonzero(counts)
    n = int(counts.sum())
    return Ecdf(values[seen], np.cumsum(counts[seen]) / max(n, 1), n, "" if n else "no observation")


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
