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
