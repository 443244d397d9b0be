"""Whether a logged series, such as the loss or the reward, has moved since the run's own baseline.

This is what stands beside a finding: "loss, reward, entropy: no change since step 30". The mean of the most recent
steps is compared with the mean of the baseline steps, in standard errors that allow for autocorrelation: with AR(1)
noise of lag-one autocorrelation ρ and innovations of standard deviation s, a mean of m steps has a standard error of
about s / ((1 − ρ) √m) (Priestley, 1981, section 5.3). Both come from chunks of about 20 steps, each around its own
mean and without the most variable chunk, so that a move does not pass for noise. Nothing is divided by the series'
own level: a loss around zero is judged like any other series.

Measured on stationary AR(1) noise, one question at the end of a run (benchmarks/detect.py): called a move in 0 to 4 %
of the runs of 110 to 150 steps for ρ up to 0.8, in 4 to 12 % for ρ of 0.9 to 0.95, and in under 1 % of the runs of
1,000 steps. Where ρ is high and the run short, "no change" is weak evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import copysign, inf, isnan, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foreshock.errors import InputError

MINIMUM_BASELINE = 20
"""Finite values that the baseline must hold."""

MINIMUM_RECENT = 20
"""Finite values that must follow the baseline."""

STANDARD_ERRORS = 3.0
"""A move is at least this many standard errors."""

SMALLEST_MOVE = 1.0
"""A move is at least this many standard deviations of one step's noise: less is not seen on a plot either."""

SMALLEST_SHARE = 0.15
"""A move of less than this share of the early level is no change to anyone who looks at the chart (heuristic)."""

SMALLEST_SHIFT = 2.0
"""The same for a series around zero, in standard deviations of one step (heuristic)."""

_CHUNK = 20
_WINDOW = 10
_LARGEST_AUTOCORRELATION = 0.95
_ROUNDING = 1e-12  # of the largest value: what summation may leave of a constant series


@dataclass(frozen=True, slots=True)
class Change:
    """What became of a series after its baseline.

    ``moved``: the most recent steps differ from the baseline by more than noise. ``since_step``: the first step of
    the stretch that reaches to the end and has covered half of the way; None when not moved. ``ratio``: recent mean
    over baseline mean, NaN when the baseline is within noise of zero or of both signs. ``shift``: recent mean minus
    baseline mean in standard deviations of one step's noise (no unit; infinite when the series had no noise at all).
    ``reason`` is empty exactly when the series could be judged; otherwise ``moved`` is False and means nothing.
    """

    moved: bool
    since_step: int | None
    ratio: float
    shift: float
    reason: str = ""

    @property
    def matters(self) -> bool:
        """Whether a move that is more than noise is also large enough to be noticed on a chart."""
        if isnan(self.ratio):  # a series around zero, such as the loss, has no level to compare with
            return abs(self.shift) >= SMALLEST_SHIFT
        return abs(self.ratio - 1) >= SMALLEST_SHARE


def series_change(steps: ArrayLike, values: ArrayLike, baseline: tuple[int, int]) -> Change:
    """Compare the end of a series with its steps ``baseline[0]`` to ``baseline[1]``, both included.

    ``steps`` and ``values`` are ``(n,)``, in rising order of steps; the unit of ``values`` does not matter. Values
    that are not finite are left out. The recent steps are the last quarter of those after the baseline, at least 20.

    Raises:
        InputError: ``steps`` and ``values`` differ in length.
    """
    step_array = np.asarray(steps).ravel()
    value_array = np.asarray(values, dtype=float).ravel()
    if step_array.size != value_array.size:
        raise InputError(f"Got {step_array.size} steps and {value_array.size} values. Pass one value per step.")
    finite = np.isfinite(value_array)
    step_array, value_array = step_array[finite], _rescaled(value_array[finite])
    first, last = baseline
    before = value_array[(step_array >= first) & (step_array <= last)]
    later_steps, later = step_array[step_array > last], value_array[step_array > last]
    if before.size < MINIMUM_BASELINE:
        baseline_holds = f"the baseline, steps {first} to {last}, holds {before.size} values"
        return _unjudged(f"{baseline_holds}, {MINIMUM_BASELINE} are needed")
    if later.size < MINIMUM_RECENT:
        return _unjudged(f"only {later.size} values follow the baseline, {MINIMUM_RECENT} are needed")
    return _compare(before, later_steps, later)


def _rescaled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bring the largest value to 1, so that squares neither overflow nor vanish."""
    largest = float(np.abs(values).max(initial=0.0))
    return values / largest if largest > 0 else values


def _compare(before: NDArray[np.float64], later_steps: NDArray[np.int64], later: NDArray[np.float64]) -> Change:
    recent = later[-max(MINIMUM_RECENT, later.size // 4) :]
    level, difference = float(before.mean()), float(recent.mean() - before.mean())
    deviation, error_of_one = step_noise(before, later)
    error = error_of_one * sqrt(1 / before.size + 1 / recent.size)
    moved = abs(difference) > max(STANDARD_ERRORS * error, SMALLEST_MOVE * deviation, _ROUNDING)
    near_zero = abs(level) <= STANDARD_ERRORS * error_of_one / sqrt(before.size) or abs(level) < deviation
    return Change(
        moved=moved,
        since_step=_since(later_steps, later, level, difference) if moved else None,
        ratio=nan if near_zero else float(recent.mean()) / level,
        shift=difference / deviation if deviation > 0 else copysign(inf, difference) if moved else 0.0,
    )


def step_noise(before: NDArray[np.float64], later: NDArray[np.float64]) -> tuple[float, float]:
    """Return the standard deviation of one step, and s / (1 − ρ), which √m divides in the error of a mean."""
    values = np.concatenate([before, later])
    starts = np.concatenate([_chunk_starts(before.size), before.size + _chunk_starts(later.size)])
    sizes = np.diff(starts, append=values.size)
    centred = values - np.repeat(np.add.reduceat(values, starts) / sizes, sizes)
    squares = np.add.reduceat(centred * centred, starts)
    kept = np.ones(starts.size, dtype=bool)
    if starts.size > 3:
        kept[np.argmax(squares / sizes)] = False  # the chunk that a jump would fall into
    degrees, total = float((sizes[kept] - 1).sum()), float(squares[kept].sum())
    variance = total / degrees
    if variance <= _ROUNDING**2:
        return 0.0, 0.0
    follows = np.repeat(kept, sizes)
    follows[starts] = False  # the first value of a chunk has no predecessor
    now, before_it = centred[follows], centred[np.flatnonzero(follows) - 1]
    # Around a chunk's own mean, the estimate is too low by about (1 + 4 ρ) / length (Kendall, 1954).
    length = degrees / int(np.count_nonzero(kept)) + 1
    rho = min(max((float(now @ before_it) / total + 1 / length) / (1 - 4 / length), 0.0), _LARGEST_AUTOCORRELATION)
    residuals = now - rho * before_it
    innovation = float(residuals @ residuals) / degrees
    return sqrt(innovation / (1 - rho * rho)), sqrt(innovation) / (1 - rho)


def _chunk_starts(size: int) -> NDArray[np.intp]:
    """Return where chunks of about 20 values begin, their sizes equal to within one."""
    chunks = max(1, size // _CHUNK)
    return np.arange(chunks) * size // chunks


def _since(steps: NDArray[np.int64], values: NDArray[np.float64], level: float, difference: float) -> int:
    """Return the first step of the last stretch of 10-step windows that all lie over half of the way."""
    windows = values[: values.size // _WINDOW * _WINDOW].reshape(-1, _WINDOW).mean(axis=1)
    short = np.flatnonzero((windows - level) / difference < 0.5)
    return int(steps[min((short[-1] + 1) * _WINDOW, values.size - 1)]) if short.size else int(steps[0])


def _unjudged(reason: str) -> Change:
    return Change(moved=False, since_step=None, ratio=nan, shift=nan, reason=reason)
