"""The state of the aggregates that people watch: loss, reward, entropy and mean KL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foreshock.detect.aggregates import MINIMUM_BASELINE, Change, series_change
from foreshock.run import Block, Run, Series

AGGREGATES = {"loss": "loss", "reward": "reward", "entropy": "entropy", "mean KL": "kl"}
"""Name in sentences → logged key."""

SMALLEST_SHARE = 0.15
"""A move of less than this share of the early level is no change to anyone who looks at the chart (heuristic)."""

SMALLEST_SHIFT = 2.0
"""The same for a series around zero, in standard deviations of one step (heuristic)."""

SHORTEST_WARM_UP, LONGEST_WARM_UP = 30, 150
"""Bounds of the warm-up in steps. With a slow start 30 steps are too few on long runs; see docs/detectors.md."""


def warm_up_steps(run: Run) -> int:
    """Return how many steps at the start are not judged: a seventh of the run's planned length, within bounds.

    Policy and reference are the same at step 0, so every tail rises at first.
    """
    length = run.planned_steps or run.last_step
    return min(max(length // 7, SHORTEST_WARM_UP), LONGEST_WARM_UP)


def settled_blocks(run: Run) -> list[Block]:
    """Return the blocks after the warm-up; all of them while these are fewer than three."""
    warm_up = warm_up_steps(run)
    settled = [block for block in run.blocks if block.first_step > warm_up]
    return settled if len(settled) >= 3 else run.blocks


def aggregate_changes(run: Run, until: int | None = None) -> dict[str, Change]:
    """Return whether and since when each logged aggregate has moved from its level after the warm-up, by name.

    With ``until``, as it stood at that step.
    """
    warm_up, last = warm_up_steps(run), run.last_step if until is None else until
    return {name: _change(run.series[key], warm_up, last) for name, key in AGGREGATES.items() if key in run.series}


def aggregate_sentence(changes: Mapping[str, Change], since: int) -> str:
    """Say which aggregates moved since a step and which did not; nothing of those that cannot be judged."""
    still = [name for name, change in changes.items() if not change.moved and not change.reason]
    moved = [f"{name} since step {change.since_step}" for name, change in changes.items() if change.moved]
    parts = []
    if still:
        parts.append(f"{listed(still)}: no change beyond {SMALLEST_SHARE:.0%} since step {since}")
    if moved:
        parts.append(f"moved: {listed(moved)}")
    return "; ".join(parts)


def _change(series: Series, warm_up: int, last: int) -> Change:
    """Compare a series with the first quarter of its rows after the warm-up, or with as many as a baseline needs."""
    end = int(np.searchsorted(series.steps, last, side="right"))
    steps = series.steps[:end][series.steps[:end] > warm_up]
    if not len(steps):
        return Change(False, None, math.nan, math.nan, f"nothing is logged after the first {warm_up} steps")
    rows = min(max(MINIMUM_BASELINE, len(steps) // 4), len(steps))
    change = series_change(series.steps[:end], series.values[:end], (int(steps[0]), int(steps[rows - 1])))
    return change if change.moved and matters(change) else replace(change, moved=False, since_step=None)


def matters(change: Change) -> bool:
    """Say whether a move that is more than noise is also large enough to be noticed on a chart."""
    if math.isnan(change.ratio):  # a series around zero, such as the loss, has no level to compare with
        return abs(change.shift) >= SMALLEST_SHIFT
    return abs(change.ratio - 1) >= SMALLEST_SHARE


def listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
