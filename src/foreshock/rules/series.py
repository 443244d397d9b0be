"""What the rules over logged series share: a series in reading order, its early and late level, and evidence tables.

Everything is relative to the run's own early level, in rows of the log: a row may stand for one step or for a hundred.
A series that is missing, too short or never finite gives None, and the rule then says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.detect.aggregates import MINIMUM_BASELINE, MINIMUM_RECENT, Change, series_change
from foreshock.rules.aggregates import SMALLEST_SHARE, SMALLEST_SHIFT, warm_up_steps
from foreshock.run import Run

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]

SHORTEST = 20
"""Rows below which nothing is said of a trend."""

KENDALL = 3.0
"""Standard errors of Kendall's rank correlation with the step that make a trend of a series under 40 rows."""

FIRST_ROWS, FIRST_STEPS = 5, 20
"""A state is judged once it has held for so many rows, and over so many steps."""

FULL_RATE = 0.9
"""Share of the largest learning rate from which on its warm-up is over."""

LARGEST = 1e100
"""Larger values are cut to this, so that means and ratios stay finite."""


@dataclass(frozen=True)
class Course:
    """A logged series after its restarts are sorted out: finite values only, steps strictly rising.

    ``early`` are the rows of the baseline, ``late`` the last quarter (thirds of a short series), both ``(rows,)`` and
    in the unit of the key.
    """

    key: str
    steps: Steps
    values: Floats
    early: Floats
    late: Floats

    @cached_property
    def change(self) -> Change:
        """Return whether the late rows differ from the early ones by more than noise; computed when first asked for."""
        if self.values.size < MINIMUM_BASELINE + MINIMUM_RECENT:
            return _short_change(self.steps, self.values)
        return series_change(self.steps, self.values, (int(self.steps[0]), int(self.steps[self.early.size - 1])))

    @property
    def rise(self) -> float:
        """Mean of the late rows minus mean of the early ones, in the unit of the key."""
        return float(self.late.mean() - self.early.mean())

    @property
    def early_level(self) -> float:
        """Median of the early rows."""
        return float(np.median(self.early))

    @property
    def late_level(self) -> float:
        """Median of the late rows."""
        return float(np.median(self.late))

    @property
    def growth(self) -> float:
        """Late level over early level; NaN unless the early one is positive."""
        return self.late_level / self.early_level if self.early_level > 0 else math.nan

    @property
    def gain(self) -> float:
        """Late level minus early level, in the unit of the key."""
        return self.late_level - self.early_level

    @property
    def direction(self) -> str:
        """``up``, ``down`` or ``flat``: a move is more than noise and large enough to be seen on a chart."""
        if not self.change.moved or not _matters(self.change):
            return "flat"
        return "up" if self.change.shift > 0 else "down"


def rows_of(run: Run, key: str) -> tuple[Steps, Floats]:
    """Return the finite rows of a key, ``(n,)`` each; a step that is repeated later supersedes what stood before."""
    if key not in run.series:
        return np.empty(0, dtype=np.int64), np.empty(0)
    steps, values = run.series[key].steps, run.series[key].values
    if steps.size > 1 and not np.all(steps[1:] > steps[:-1]):
        smallest_later = np.minimum.accumulate(steps[::-1])[::-1]
        kept = np.append(steps[:-1] < smallest_later[1:], True)
        steps, values = steps[kept], values[kept]
    finite = np.isfinite(values)
    return steps[finite], np.clip(values[finite], -LARGEST, LARGEST)


def course(run: Run, key: str, *, warm_up: bool = True) -> Course | None:
    """Return how a key went after the warm-up, or from the first row on; None below 40 rows (20 without warm-up)."""
    steps, values = rows_of(run, key)
    if warm_up:
        settled = steps > warm_up_steps(run) + _full_rate_step(run)
        steps, values = steps[settled], values[settled]
    if steps.size >= MINIMUM_BASELINE + MINIMUM_RECENT:
        # An eighth, not a quarter: what grows from the start is to be compared with its start.
        count = max(MINIMUM_BASELINE, steps.size // 8)
        recent = max(MINIMUM_RECENT, (steps.size - count) // 4)
        return Course(key, steps, values, values[:count], values[-recent:])
    if warm_up or steps.size < SHORTEST:
        return None
    third = steps.size // 3
    return Course(key, steps, values, values[:third], values[-third:])


def _full_rate_step(run: Run) -> int:
    """Return the step at which the learning rate came near its largest value; 0 when it starts there or is unknown.

    While the rate warms up hardly anything moves, and a baseline from there would make all that follows a growth.
    """
    steps, rate = rows_of(run, "learning_rate")
    if not rate.size or not rate.max() > 0:
        return 0
    first = int(np.argmax(rate >= FULL_RATE * rate.max()))
    return int(steps[first]) if first else 0


def direction(run: Run, key: str = "reward") -> str:
    """Return whether a key went up, down or stayed flat; "" when that cannot be judged.

    A move since the warm-up counts first; without one, a move since the first row.
    """
    judged = _decisive(run, key)
    return "" if judged is None else judged.direction


def reward_sentence(run: Run) -> str:
    """Say what the reward did meanwhile; "" when it cannot be judged."""
    judged = _decisive(run, "reward")
    if judged is None:
        return ""
    words = {"up": "has risen", "down": "has fallen", "flat": "has not moved"}[judged.direction]
    levels = f"{judged.early_level:.3g} at steps {judged.steps[0]}–{judged.steps[judged.early.size - 1]}"
    return f"The reward {words} meanwhile ({levels}, {judged.late_level:.3g} in the last rows)."


def _decisive(run: Run, key: str) -> Course | None:
    settled = course(run, key)
    return settled if settled is not None and settled.direction != "flat" else course(run, key, warm_up=False)


def latest(run: Run, key: str) -> tuple[Steps, Floats]:
    """Return the last rows of a key, as :func:`last_rows` does."""
    return last_rows(run, *rows_of(run, key))


def last_rows(run: Run, steps: Steps, values: Floats, over: int = FIRST_STEPS) -> tuple[Steps, Floats]:
    """Return the last rows of a series, at least 5 and over at least 20 steps, ``(rows,)`` each.

    Empty when there are not so many, or when the series has not been logged for as long a time.
    """
    if steps.size < FIRST_ROWS:
        return steps[:0], values[:0]
    cadence = int(steps[-1] - steps[0]) / (steps.size - 1)
    count = max(FIRST_ROWS, math.ceil(over / max(cadence, 1.0)))
    stale = run.last_step - int(steps[-1]) > count * cadence
    return (steps[:0], values[:0]) if steps.size < count or stale else (steps[-count:], values[-count:])


def held_since(steps: Steps, state: npt.NDArray[np.bool_]) -> int:
    """Return the first step of the stretch, up to the last row, in which a state holds in 9 of 10 rows or more."""
    shares = np.cumsum(state[::-1]) / np.arange(1, state.size + 1)
    holding = np.flatnonzero((shares >= 0.9) & state[::-1])
    return int(steps[::-1][holding[-1]]) if holding.size else int(steps[-1])


def segment_rows(run: Run, keys: Iterable[str], first: int = 0) -> tuple[dict[str, Any], ...]:
    """Return the mean of each logged key over the early, middle and late third of the steps from ``first`` on."""
    columns = {key: rows_of(run, key) for key in keys}
    columns = {key: (steps[steps >= first], values[steps >= first]) for key, (steps, values) in columns.items()}
    logged = [steps for steps, _ in columns.values() if steps.size]
    if not logged:
        return ()
    start, end = min(int(steps[0]) for steps in logged), max(int(steps[-1]) for steps in logged)
    third = (end - start + 1) / 3
    table = []
    for number, name in enumerate(("early", "middle", "late")):
        low, high = start + round(number * third), start + round((number + 1) * third) - 1
        row: dict[str, Any] = {"segment": name, "steps": f"{low}–{high}"}
        for key, (steps, values) in columns.items():
            inside = values[(steps >= low) & (steps <= high)]
            if steps.size:
                row[key] = float(inside.mean()) if inside.size else math.nan
        table.append(row)
    return tuple(table)


def kendall(values: Floats) -> float:
    """Return Kendall's rank correlation of a short series with its order, in standard errors (Mann, 1945).

    Without a correction for ties, which makes it conservative. Takes all pairs, so it is for some dozens of values.
    """
    n = values.size
    rank_sum = float(np.triu(np.sign(values[None, :] - values[:, None]), 1).sum())
    return rank_sum / math.sqrt(n * (n - 1) * (2 * n + 5) / 18) if n > 1 else 0.0


def sentences(*parts: str) -> str:
    """Join the sentences that are there."""
    return " ".join(filter(None, parts))


def _matters(change: Change) -> bool:
    if math.isnan(change.ratio):
        return abs(change.shift) >= SMALLEST_SHIFT
    return abs(change.ratio - 1) >= SMALLEST_SHARE


def _short_change(steps: Steps, values: Floats) -> Change:
    """Judge 20 to 39 rows by their order, as so few have no baseline."""
    z, third = kendall(values), steps.size // 3
    early, late = values[:third], values[-third:]
    spread = math.sqrt((float(early.var()) + float(late.var())) / 2)
    difference = float(late.mean() - early.mean())
    moved = abs(z) >= KENDALL and z * difference > 0
    shift = difference / spread if spread > 0 else math.copysign(math.inf, difference) if moved else 0.0
    ratio = float(late.mean() / early.mean()) if abs(float(early.mean())) > spread else math.nan
    return Change(moved, int(steps[third]) if moved else None, ratio, shift)
