"""Estimators of a KL divergence from per-token log-ratios.

With r = log π_a − log π_b at tokens sampled from π_a, the mean of each function estimates KL(π_a ‖ π_b) in nats per
token. For tokens sampled from π_b pass −r, which estimates KL(π_b ‖ π_a).
Source: Schulman 2020, "Approximating KL Divergence".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def k1(log_ratio: npt.ArrayLike) -> FloatArray:
    """k1 = r, per token, any shape. Unbiased; single values may be negative."""
    return np.asarray(log_ratio, np.float64)


def k2(log_ratio: npt.ArrayLike) -> FloatArray:
    """k2 = r² / 2, per token, any shape. Biased; low variance when the policies are close."""
    r = np.asarray(log_ratio, np.float64)
    return np.asarray(r * r / 2)


def k3(log_ratio: npt.ArrayLike) -> FloatArray:
    """k3 = e^−r − 1 + r, per token, any shape. Unbiased and never negative; inf where r < −709."""
    r = np.asarray(log_ratio, np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.expm1(-r) + r)
