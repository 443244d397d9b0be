"""A change detector for block statistics: conformal ranks, one bet per block, Shiryaev–Roberts recursion.

The rank. Block b holds the value x_b and comes after N judged blocks, of which k_b are strictly smaller than x_b. If
the blocks are exchangeable (no trend, no change), k_b is uniform on 0 … N and independent of all earlier ranks
(Rényi, 1962). Conformal test martingales rest on this (Vovk, Nouretdinov and Gammerman, 2003). A tie counts as not
smaller, so ties can only lower k_b: the ranks are deterministic and conservative.

The bet. e_b = 1 + c (2 k_b / N − 1) lies in [1 − c, 1 + c], has mean 1 under exchangeability, at most 1 with ties,
and is large when the new block lies above the earlier ones: the detector looks for growth only.

The recursion. M_0 = 0 and M_b = f e_b (1 + M_{b−1}) with a fade f ≤ 1. M_b − b is a supermartingale under
exchangeability, so the mean number of blocks until M first reaches A is at least A (Shin, Ramdas and Rinaldo, 2024,
"E-detectors"), whatever the distribution of the statistic. The fade lets old evidence count less; it buys a
false-alarm rate well below that bound, also where blocks are a little autocorrelated and exchangeability fails. Only
the order of the values counts: any strictly increasing transformation gives the same M.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from math import isfinite, nan

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foreshock.errors import InputError

REFERENCE_BLOCKS = 4
"""Judged blocks that are only looked at before the first bet."""

STAKE = 0.7
"""c of the bet: the share of the evidence that is at stake in each block."""

KEPT_PER_STEP = 0.99
"""What is left of the evidence after one more step, before any bet: f is this to the power of the steps per block."""

WARNING_STEPS = 1_000
CRITICAL_STEPS = 10_000
"""Steps per false alarm, at least, on exchangeable blocks at the two levels; docs/detectors.md has the measured rates.

The blocks must start after the burn-in: a tail that still rises from zero is a trend like any other.
"""


def threshold(steps_per_block: int, steps_per_false_alarm: int = WARNING_STEPS) -> float:
    """Return the M that exchangeable blocks reach at most once per ``steps_per_false_alarm`` steps, on average.

    Raises:
        InputError: a number of steps is below 1.
    """
    if steps_per_block < 1 or steps_per_false_alarm < 1:
        raise InputError(
            f"A threshold needs positive numbers of steps, got steps_per_block={steps_per_block} and "
            f"steps_per_false_alarm={steps_per_false_alarm}."
        )
    return steps_per_false_alarm / steps_per_block


def e_detector(
    values: ArrayLike, steps_per_block: int = 10, reference_blocks: int = REFERENCE_BLOCKS, stake: float = STAKE
) -> NDArray[np.float64]:
    """Return M after each block, ``(blocks,)``: evidence that ``values`` have grown; 0 while the reference fills.

    ``steps_per_block`` sets the fade, which is per step: pass the length that the blocks have. Runs of more than about
    200 steps need blocks of 10; in shorter ones too few of these fit, and blocks of 5 make up for it.

    A block whose value is not finite is skipped: its M is NaN, and the next judged block goes on from the last M.

    Raises:
        InputError: ``steps_per_block`` or ``reference_blocks`` is below 1, or ``stake`` is not in (0, 1].
    """
    state = EDetector(steps_per_block, reference_blocks, stake)
    return np.array([state.update(value) for value in np.asarray(values, dtype=float).ravel().tolist()])


class EDetector:
    """The detector's running state over one block statistic: the numbers of :func:`e_detector`, block by block.

    ``value`` is M after the last judged block, ``skipped`` counts the blocks whose value was not finite. One update
    is a binary search and an insertion in the sorted array of earlier values.

    Raises:
        InputError: ``steps_per_block`` or ``reference_blocks`` is below 1, or ``stake`` is not in (0, 1].
    """

    def __init__(
        self, steps_per_block: int = 10, reference_blocks: int = REFERENCE_BLOCKS, stake: float = STAKE
    ) -> None:
        if steps_per_block < 1 or reference_blocks < 1 or not 0 < stake <= 1:
            raise InputError(
                "The detector needs at least 1 step per block, at least 1 reference block, and a stake above 0 and at "
                f"most 1; got steps_per_block={steps_per_block}, reference_blocks={reference_blocks}, stake={stake}."
            )
        self.value = 0.0
        self.skipped = 0
        self._reference_blocks = reference_blocks
        self._stake = stake
        self._kept = KEPT_PER_STEP**steps_per_block
        self._earlier = array("d")

    @property
    def judged(self) -> int:
        """Blocks with a finite value so far, the reference included."""
        return len(self._earlier)

    def update(self, value: float) -> float:
        """Take the statistic of the next block and return M; NaN when the block is skipped."""
        if not isfinite(value):
            self.skipped += 1
            return nan
        count = len(self._earlier)
        smaller = bisect_left(self._earlier, value)
        insort(self._earlier, value)
        if count >= self._reference_blocks:
            bet = 1 + self._stake * (2 * smaller / count - 1)
            self.value = self._kept * bet * (1 + self.value)
        return self.value
