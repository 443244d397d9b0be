"""The state of the aggregates that people watch: loss, reward, entropy and mean KL."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from foreshock.detect.aggregates import MINIMUM_BASELINE, Change, series_change
from foreshock.run import Run, Series

AGGREGATES = {"loss": "loss", "reward": "reward", "entropy": "entropy", "mean KL": "kl"}
"""Name in sentences → logged key."""

WARM_UP_STEPS = 30
"""Steps at the start that are not judged: policy and reference are the same at step 0, so every tail rises at first."""


def aggregate_changes(run: Run) -> dict[str, Change]:
    """Return whether and since when each logged aggregate has moved from its level after the warm-up, by name."""
    return {name: _change(run.series[key]) for name, key in AGGREGATES.items() if key in run.series}


def aggregate_sentence(changes: Mapping[str, Change]) -> str:
    """Say which aggregates moved and which did not; nothing of those that cannot be judged."""
    still = [name for name, change in changes.items() if not change.moved and not change.reason]
    moved = [f"{name} since step {change.since_step}" for name, change in changes.items() if change.moved]
    parts = []
    if still:
        parts.append(f"{_listed(still)}: no change since step {WARM_UP_STEPS}")
    if moved:
        parts.append(f"moved: {_listed(moved)}")
    return "; ".join(parts)


def _change(series: Series) -> Change:
    """Compare a series with the first quarter of its rows after the warm-up, or with as many as a baseline needs."""
    steps = series.steps[series.steps > WARM_UP_STEPS]
    if not len(steps):
        return Change(False, None, math.nan, math.nan, f"nothing is logged after the first {WARM_UP_STEPS} steps")
    rows = min(max(MINIMUM_BASELINE, len(steps) // 4), len(steps))
    return series_change(series.steps, series.values, (int(steps[0]), int(steps[rows - 1])))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
