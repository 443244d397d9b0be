"""Effective sample size of importance ratios."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt


def ess_share(log_ratio: npt.ArrayLike, cap: float = math.inf) -> float:
    """ESS / n of w = e^min(r, cap), from log-ratios r in nats, any shape; NaN without tokens.

    ESS = (Σw)² / Σw² (Kish 1965, "Survey Sampling"). Every w is scaled by the largest, which changes nothing.
    """
    r = np.minimum(np.asarray(log_ratio, np.float64), cap)
    if r.size == 0:
        return math.nan
    w = np.exp(r - r.max())
    return float(w.sum() ** 2 / (w.size * (w * w).sum()))


def ess_share_from_excess(n: int, total: float, total2: float) -> float:
    """ESS / n from Σu and Σu², u = w − 1, over n ≥ 1 tokens: (n + Σu)² / (n · (n + 2Σu + Σu²)).

    NaN when the mean of w is so close to zero (below 1e-6) that 1 + u has lost its digits.
    """
    mean = 1 + total / n
    if mean < 1e-6:
        return math.nan
    return min(mean * mean / (1 + (2 * total + total2) / n), 1.0)
