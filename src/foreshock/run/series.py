"""A series: one logged scalar over the steps of a run, all of it or, in the process that trains, a bounded part of it.

A bounded series keeps its latest rows as they were logged and thins the older ones. Which of these stay is drawn by a
hash of the step alone: at level k, one row in 2ᵏ. So a series keeps the same rows whether it was watched or read from
disk, all keys keep those of the same steps, and no period of the log can be in step with the thinning. A row that stays
is a row that was logged: levels, noise and quantiles of rows are unbiased, which means of neighbours would not be. The
gaps are geometric, so AR(1) noise of lag-one autocorrelation ρ is left with autocorrelations that are geometric too.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Steps = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_ROWS = 16_384
"""Rows of a bounded series: a quarter of a megabyte a key. Up to here it keeps every row."""

LATEST_ROWS = 4_096
"""Rows at the end of a bounded series that are never thinned."""


class Series:
    """Values of one logged key by step, in the order in which they were written.

    Appending is amortised constant time, and :attr:`steps` and :attr:`values` are views, so that a rule may read a
    live run after every block without copying it.

    ``appended``: how many rows were written, among them those that were thinned out. ``level``: k, so that one older
    row in 2ᵏ is kept; 0 while none was thinned out.
    """

    def __init__(self, key: str, *, bounded: bool = False) -> None:
        self.key = key
        self.appended = 0
        self.level = 0
        self._bounded = bounded
        self._steps = np.empty(64, dtype=np.int64)
        self._values = np.empty(64, dtype=np.float64)
        self._length = 0
        self._lost_not_finite = 0
        self._first_lost: int | None = None

    @classmethod
    def of(cls, key: str, steps: Steps, values: Floats) -> Series:
        """Make a series of arrays ``(n,)`` without copying them; appending a new step later copies."""
        series = cls(key)
        series._steps, series._values, series._length = steps, values, len(steps)
        series.appended = len(steps)
        return series

    def append(self, step: int, value: float) -> None:
        """Add the value logged at an optimizer step; a step that is repeated supersedes its earlier value."""
        if self._length and self._steps[self._length - 1] == step:
            self._values[self._length - 1] = value
            return
        if self._bounded and self._length == MOST_ROWS:
            self._thin()
        if self._length == len(self._steps):
            self._steps = np.resize(self._steps, 2 * self._length)
            self._values = np.resize(self._values, 2 * self._length)
        self._steps[self._length] = step
        self._values[self._length] = value
        self._length += 1
        self.appended += 1

    @property
    def steps(self) -> Steps:
        """Optimizer steps of the rows that are kept, shape ``(n,)``."""
        return self._steps[: self._length]

    @property
    def values(self) -> Floats:
        """Logged values, shape ``(n,)``; may hold NaN and infinities, as they were logged."""
        return self._values[: self._length]

    @property
    def even(self) -> tuple[Steps, Floats]:
        """Steps and values, ``(m,)``, with all of the run thinned alike: what quarters of the rows are taken of."""
        if not self.level:
            return self.steps, self.values
        kept = _stays(self.steps, self.level)
        return self.steps[kept], self.values[kept]

    @property
    def not_finite(self) -> tuple[int, int | None]:
        """How many rows were NaN or infinite, thinned out or not, and the step of the first one."""
        places = np.flatnonzero(~np.isfinite(self.values))
        first = int(self.steps[places[0]]) if places.size else None
        return self._lost_not_finite + places.size, first if self._first_lost is None else self._first_lost

    def _thin(self) -> None:
        """Leave out older rows, so that these fill no more than half of the room."""
        older = MOST_ROWS - LATEST_ROWS
        stays = _stays(self._steps[:older], self.level)
        while np.count_nonzero(stays) > MOST_ROWS // 2:
            self.level += 1
            stays = _stays(self._steps[:older], self.level)
        lost = np.flatnonzero(~stays & ~np.isfinite(self._values[:older]))
        if lost.size:
            first = int(self._steps[lost[0]])
            self._first_lost = first if self._first_lost is None else min(first, self._first_lost)
            self._lost_not_finite += lost.size
        kept = np.append(stays, np.ones(LATEST_ROWS, dtype=bool))
        self._length = int(np.count_nonzero(kept))
        self._steps[: self._length] = self._steps[kept]
        self._values[: self._length] = self._values[kept]

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Series({self.key!r}, {self._length} values)"


def _stays(steps: Steps, level: int) -> npt.NDArray[np.bool_]:
    """Draw which steps stay at a level: those whose hash ends in so many zero bits. What stays at one stayed before.

    The hash multiplies and folds twice (after Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
    2014); it is one to one, so that only one step has a hash of zeros alone.
    """
    bits = (steps.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    bits ^= bits >> np.uint64(32)
    mask: npt.NDArray[np.bool_] = bits & np.uint64(2**level - 1) == 0
    return mask
