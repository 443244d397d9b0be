"""Where two runs part: the first stretch of steps over which a logged series differs between them by more than noise.

Both series are cut into the same windows of steps. A window's difference of means is divided by its standard error,
which allows for autocorrelation as in :mod:`foreshock.detect.series_change`. Two neighbouring windows or more of one
sign, each beyond three standard errors and beyond the noise of one step, are a stretch.

Measured on 1,000 pairs of stationary AR(1) series without a difference, for each length and lag-one autocorrelation ρ:
with 100 rows or more a difference was reported in at most 0.1 % of the pairs for ρ up to 0.8, in 1.3 % for 0.9 and 5 %
for 0.95; with 40 rows in 0.1 % for 0.5 and 2.3 % for 0.8. A jump of three standard deviations half-way was found in
every pair for ρ = 0, in 0.9 of the pairs for 0.5 and in a third for 0.8 (100 rows).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign, hypot, inf, nan, sqrt

import numpy as np
from numpy.typing import NDArray

from foreshock.detect.series_change import SMALLEST_MOVE, STANDARD_ERRORS, step_noise

Steps = NDArray[np.int64]
Floats = NDArray[np.float64]

ROWS_PER_WINDOW = 10
MOST_WINDOWS = 30
SHORTEST_STRETCH = 2
"""Windows."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How one series differs between run A and run B over the steps that both have.

    ``since_step`` and ``until_step``: the longest stretch over which they differ, None when there is none;
    ``until_step`` is the last common step when they differ to the end. ``shift``: mean of B minus mean of A over that
    stretch, or over all common steps without one, in standard deviations of one step's noise (infinite when neither
    has noise). ``reason`` is empty exactly when the series could be compared.
    """

    since_step: int | None
    until_step: int | None
    shift: float
    reason: str = ""


def first_difference(steps_a: Steps, a: Floats, steps_b: Steps, b: Floats) -> Difference:
    """Compare a series of two runs; ``(n,)`` and ``(m,)``, finite, in rising order of steps."""
    low = max(steps_a[0], steps_b[0]) if len(a) and len(b) else 0
    high = min(steps_a[-1], steps_b[-1]) if len(a) and len(b) else -1
    steps_a, a = _between(steps_a, a, low, high)
    steps_b, b = _between(steps_b, b, low, high)
    rows = min(len(a), len(b))
    windows = min(rows // ROWS_PER_WINDOW, MOST_WINDOWS)
    if windows < SHORTEST_STRETCH:
        needed = SHORTEST_STRETCH * ROWS_PER_WINDOW
        return Difference(None, None, nan, f"{rows} of {needed} rows at steps that both runs have")
    edges = np.linspace(low, high + 1, windows + 1)
    mean_a, error_a = _window_means(steps_a, a, edges)
    mean_b, error_b = _window_means(steps_b, b, edges)
    deviation = hypot(_noise(a)[0], _noise(b)[0]) / sqrt(2)
    difference = mean_b - mean_a
    least = np.maximum(STANDARD_ERRORS * np.hypot(error_a, error_b), SMALLEST_MOVE * deviation)
    least = np.maximum(least, 1e-12 * max(float(np.abs(a).max()), float(np.abs(b).max())))
    with np.errstate(invalid="ignore"):  # a window without rows in one of the runs is NaN and no difference
        sign = np.where(np.abs(difference) > least, np.sign(difference), 0)
    start, end = _longest_stretch(sign)
    if end - start < SHORTEST_STRETCH:
        return Difference(None, None, _shift(float(np.nanmean(difference)), deviation))
    apart = float(np.nanmean(difference[start:end]))
    return Difference(int(np.ceil(edges[start])), int(np.ceil(edges[end])) - 1, _shift(apart, deviation))


def _between(steps: Steps, values: Floats, low: int, high: int) -> tuple[Steps, Floats]:
    inside = slice(np.searchsorted(steps, low, side="left"), np.searchsorted(steps, high, side="right"))
    return steps[inside], values[inside]


def _window_means(steps: Steps, values: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """Return the mean of each window and its standard error; NaN for a window without rows."""
    _, error_of_one = _noise(values)
    bounds = np.searchsorted(steps, edges)
    counts = np.diff(bounds)
    sums = np.diff(np.concatenate([[0.0], np.cumsum(values)])[bounds])
    with np.errstate(invalid="ignore", divide="ignore"):
        return sums / counts, error_of_one / np.sqrt(counts)


def _noise(values: Floats) -> tuple[float, float]:
    """Return the noise of one step and of a mean of one, around the trend of each half."""
    return step_noise(*(_detrended(half) for half in np.array_split(values, 2)))


def _detrended(values: Floats) -> Floats:
    place = np.arange(len(values)) - (len(values) - 1) / 2
    centred = values - values.mean()
    return np.asarray(centred - place * (place @ centred) / (place @ place))


def _longest_stretch(sign: Floats) -> tuple[int, int]:
    """Return start and end of the longest stretch of one sign that is not 0; the later one of equals."""
    best = (0, 0)
    start = 0
    for position in range(1, len(sign) + 1):
        if position == len(sign) or sign[position] != sign[start]:
            if sign[start] and position - start >= best[1] - best[0]:
                best = (start, position)
            start = position
    return best


def _shift(difference: float, deviation: float) -> float:
    if deviation > 0:
        return difference / deviation
    return copysign(inf, difference) if difference else 0.0
