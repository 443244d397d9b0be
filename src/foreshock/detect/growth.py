"""By how much a block statistic has grown, in its own unit and in standard errors that allow for autocorrelation.

The evidence of :mod:`foreshock.detect.e_process` says that blocks are not exchangeable. Autocorrelated blocks are not
exchangeable either, so beside it stands how far the statistic has moved: the mean of the latest 8 blocks minus the mean
of the first third of all blocks, which is 4 to 20 of them. Its standard error comes from neighbouring stretches of 3
blocks: where blocks go together for a while, so do these, and a slow trend hardly adds to it. With D the difference of
two neighbouring means of v blocks, a mean of m blocks has a variance of about v E[D²] / 2 / m.

Where one slice is compared with another, :class:`GrowthBeyond` asks both of it: to have grown, and beyond the other.
"""

from __future__ import annotations

from array import array
from math import inf, nan, sqrt

from foreshock.detect.e_process import REFERENCE_BLOCKS, EDetector
from foreshock.stats.diagnostic import Diagnostic

LARGEST_REFERENCE = 20
"""The reference is fixed once it holds so many blocks: what grows for long is compared with its start."""

LATEST_BLOCKS = 8
"""Blocks whose mean stands for the present level."""

STANDARD_ERRORS = 3.5
"""Growth below so many standard errors is no growth, whatever the evidence."""

_STRETCH = 3


class Growth:
    """The running state over one block statistic; one update costs the same at any length of the run.

    ``evidence`` is M of :class:`foreshock.detect.e_process.EDetector` after the last block.
    """

    def __init__(self, steps_per_block: int) -> None:
        self._detector = EDetector(steps_per_block)
        self._sums = array("d", [0.0])
        self._squares = 0.0

    @property
    def evidence(self) -> float:
        """M after the last block: evidence that later blocks lie above earlier ones."""
        return self._detector.value

    @property
    def judged(self) -> int:
        """Blocks so far."""
        return len(self._sums) - 1

    @property
    def reference(self) -> int:
        """Blocks at the start that the latest ones are compared with; 0 while too few came before these."""
        if self.judged < REFERENCE_BLOCKS + LATEST_BLOCKS:
            return 0
        return min(max(self.judged // 3, REFERENCE_BLOCKS), LARGEST_REFERENCE)

    def update(self, value: float) -> None:
        """Take the statistic of the next block, a finite number."""
        self._detector.update(value)
        self._sums.append(self._sums[-1] + value)
        if self.judged >= 2 * _STRETCH:
            self._squares += (self._mean(_STRETCH) - self._mean(_STRETCH, until=self.judged - _STRETCH)) ** 2

    @property
    def latest(self) -> float:
        """Mean of the latest blocks; NaN while there is no reference to compare it with."""
        return self._mean(LATEST_BLOCKS) if self.reference else nan

    @property
    def size(self) -> float:
        """Latest mean minus reference mean, in the unit of the statistic; NaN while there is no reference."""
        return self.latest - self._mean(self.reference, until=self.reference) if self.reference else nan

    @property
    def errors(self) -> float:
        """The same in standard errors; NaN while there is no reference, infinite without any noise."""
        if not self.reference:
            return nan
        pairs = self.judged - 2 * _STRETCH + 1
        error = sqrt(self._squares / pairs * _STRETCH / 2 * (1 / LATEST_BLOCKS + 1 / self.reference))
        return self.size / error if error > 0 else inf if self.size > 0 else 0.0

    def _mean(self, blocks: int, until: int | None = None) -> float:
        end = self.judged if until is None else until
        return (self._sums[end] - self._sums[end - blocks]) / blocks


class GrowthBeyond:
    """Growth of a statistic of one slice, ``own``, and of how far it lies above that of another slice, ``beyond``.

    Each number is the smaller of the two, so that neither a fall in the other slice nor a drift that both share counts.
    """

    def __init__(self, steps_per_block: int) -> None:
        self.own, self.beyond = Growth(steps_per_block), Growth(steps_per_block)

    def update(self, own: Diagnostic, beyond: Diagnostic) -> None:
        """Take the values of the next block; one that is unknown is skipped."""
        for growth, value in ((self.own, own), (self.beyond, beyond)):
            if value.ok:
                growth.update(value.value)

    @property
    def evidence(self) -> float:
        """The smaller M of :attr:`Growth.evidence`."""
        return min(self.own.evidence, self.beyond.evidence)

    @property
    def size(self) -> float:
        """The smaller growth in the unit of the statistic; NaN while one of them has no reference."""
        return self._smaller(self.own.size, self.beyond.size)

    @property
    def errors(self) -> float:
        """The smaller growth in standard errors; NaN while one of them has no reference."""
        return self._smaller(self.own.errors, self.beyond.errors)

    def _smaller(self, own: float, beyond: float) -> float:
        return min(own, beyond) if self.own.reference and self.beyond.reference else nan
