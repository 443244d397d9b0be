"""Empirical distribution functions."""

from __future__ import annotations

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
