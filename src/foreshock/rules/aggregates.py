"""The state of the aggregates that people watch: loss, reward, entropy and mean KL."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from foreshock.detect.series_change import MINIMUM_BASELINE, SMALLEST_SHARE, Change, series_change
from foreshock.rules.statements import listed
from foreshock.rules.warm_up import warm_up_steps
from foreshock.run import Run, Series

AGGREGATES = {"loss": "loss", "reward": "reward", "entropy": "entropy", "mean KL": "kl"}
"""Name in sentences → logged key."""


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
    all_steps, values = series.even
    end = int(np.searchsorted(all_steps, last, side="right"))
    steps = all_steps[:end][all_steps[:end] > warm_up]
    if not len(steps):
        return Change(False, None, math.nan, math.nan, f"nothing is logged after the first {warm_up} steps")
    rows = min(max(MINIMUM_BASELINE, len(steps) // 4), len(steps))
    change = series_change(all_steps[:end], values[:end], (int(steps[0]), int(steps[rows - 1])))
    return change if change.moved and change.matters else replace(change, moved=False, since_step=None)
