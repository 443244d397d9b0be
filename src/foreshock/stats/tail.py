"""Tail indices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foreshock.stats.diagnostic import Diagnostic


def hill_index(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], top: int) -> Diagnostic:
    """Hill's estimate of ξ = 1/α from the `top` largest observations, where P(X > x) ~ x^(−1/ξ).

    ξ = (1/k) Σ_{i ≤ k} log(x_(i) / x_(k+1)) over the k largest (Hill 1975). Observations come as ascending `values`
    (m,) with `counts` (m,). Its n is k. Unknown when x_(k+1) is missing or not positive.
    """
    above = np.cumsum(counts[::-1])[::-1]  # observations at or above each value
    n = int(above[0]) if above.size else 0
    if not 1 <= top < n:
        return Diagnostic.unknown(top, f"a tail of {top} out of {n} observations has no threshold")
    threshold = float(values[np.flatnonzero(above > top)[-1]])  # x_(k+1)
    if threshold <= 0:
        return Diagnostic.unknown(top, "the tail reaches down to zero")
    larger = (values > threshold) & (counts > 0)
    # Observations in the tail that equal the threshold add nothing to the sum.
    return Diagnostic(float(np.dot(counts[larger], np.log(values[larger] / threshold)) / top), top)


def pareto_k(values: npt.NDArray[np.float64], counts: npt.NDArray[np.int64], top: int) -> Diagnostic:
    """Shape k̂ of a generalized Pareto distribution fitted to the `top` largest observations of importance ratios.

    The excesses over x_(top+1) are fitted as in Zhang and Stephens 2009, "A new and efficient estimation method for
    the generalized Pareto distribution", then drawn towards 0.5 with the weight of ten observations, as in Vehtari
    et al. 2024, "Pareto smoothed importance sampling". Observations come as ascending `values` (m,) with `counts`
    (m,). Its n is the number in the tail. Unknown when the tail has no threshold, or no spread.
    """
    above = np.cumsum(counts[::-1])[::-1]
    n = int(above[0]) if above.size else 0
    if not 1 <= top < n:
        return Diagnostic.unknown(top, f"a tail of {top} out of {n} observations has no threshold")
    threshold = values[np.flatnonzero(above > top)[-1]]  # x_(top+1)
    larger = (values > threshold) & (counts > 0)
    x, weight = values[larger] - threshold, counts[larger].astype(np.float64)
    size = float(weight.sum())
    if size < 5 or not x[-1] > 0:
        return Diagnostic.unknown(int(size), f"{int(size)} observations above the threshold give no shape")
    x = x / x[-1]  # the shape does not depend on the scale
    quarter = x[np.searchsorted(np.cumsum(weight), np.floor(size / 4 + 0.5))]
    grid = 30 + int(np.sqrt(size))
    b = 1 + (1 - np.sqrt(grid / (np.arange(1, grid + 1) - 0.5))) / (3 * quarter)
    return _shape_from_grid(b, x, weight / size, size)


def _shape_from_grid(
    b: npt.NDArray[np.float64], x: npt.NDArray[np.float64], weight: npt.NDArray[np.float64], size: float
) -> Diagnostic:
    """Average b over its grid by profile likelihood, then read the shape k = E[log(1 − b x)] off it."""
    k = np.log1p(-b[:, None] * x) @ weight
    likelihood = size * (np.log(-b / k) - k - 1)
    posterior = np.exp(likelihood - likelihood.max())
    mean_b = float(np.dot(b, posterior) / posterior.sum())
    shape = float(np.dot(np.log1p(-mean_b * x), weight))
    return Diagnostic((size * shape + 10 * 0.5) / (size + 10), int(size))
