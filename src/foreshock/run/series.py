"""A series: one logged scalar over the steps of a run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Series:
    """Values of one logged key by step, in the order in which they were written.

    Appending is amortised constant time, and :attr:`steps` and :attr:`values` are views, so that a rule may read a
    live run after every block without copying it.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self._steps = np.empty(64, dtype=np.int64)
        self._values = np.empty(64, dtype=np.float64)
        self._length = 0

    @classmethod
    def of(cls, key: str, steps: npt.NDArray[np.int64], values: npt.NDArray[np.float64]) -> Series:
        """Make a series of arrays ``(n,)`` without copying them; appending a new step later copies."""
        series = cls(key)
        series._steps, series._values, series._length = steps, values, len(steps)
        return series

    def append(self, step: int, value: float) -> None:
        """Add the value logged at an optimizer step; a step that is repeated supersedes its earlier value."""
        if self._length and self._steps[self._length - 1] == step:
            self._values[self._length - 1] = value
            return
        if self._length == len(self._steps):
            self._steps = np.resize(self._steps, 2 * self._length)
            self._values = np.resize(self._values, 2 * self._length)
        self._steps[self._length] = step
        self._values[self._length] = value
        self._length += 1

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """Optimizer steps, shape ``(n,)``."""
        return self._steps[: self._length]

    @property
    def values(self) -> npt.NDArray[np.float64]:
        """Logged values, shape ``(n,)``; may hold NaN and infinities, as they were logged."""
        return self._values[: self._length]

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"Series({self.key!r}, {self._length} values)"
