"""The start of a run, which is not judged."""

from __future__ import annotations

from collections.abc import Sequence

from foreshock.run import Block, Run

SHORTEST_WARM_UP, LONGEST_WARM_UP = 30, 150
"""Bounds of the warm-up in steps. With a slow start 30 steps are too few on long runs; see docs/detectors.md."""


def warm_up_steps(run: Run) -> int:
    """Return how many steps at the start are not judged: a seventh of the run's planned length, within bounds.

    Policy and reference are the same at step 0, so every tail rises at first.
    """
    length = run.planned_steps or run.last_step
    return min(max(length // 7, SHORTEST_WARM_UP), LONGEST_WARM_UP)


def settled_blocks(run: Run) -> Sequence[Block]:
    """Return the blocks after the warm-up; all of them while these are fewer than three."""
    warm_up = warm_up_steps(run)
    settled = [block for block in run.blocks if block.first_step > warm_up]
    return settled if len(settled) >= 3 else run.blocks
