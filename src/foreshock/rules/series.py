"""What the rules over logged series share: a series in reading order, and its early and late level.

Everything is relative to the run's own early level, in rows of the log: a row may stand for one step or for a hundred.
A series that is missing, too short or never finite gives None, and the rule then says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from foreshock.detect.series_change import MINIMUM_BASELINE, MINIMUM_RECENT, Change, series_change
from foreshock.rules.warm_up import warm_up_steps
from foreshock.run import LATEST_ROWS, Run
from foreshock.stats.trend import kendall

Floats = npt.NDArray[np.float64]
Steps = npt.NDArray[np.int64]
T = TypeVar("T")

SHORTEST = 20
"""Rows below which nothing is said of a trend."""

KENDALL = 3.0
"""Standard errors of Kendall's rank correlation with the step that make a trend of a series under 40 rows."""

FIRST_ROWS, FIRST_STEPS = 5, 20
"""A state is judged once it has held for so many rows, and over so many steps."""

LASTING = 20
"""Rows for which a trend must have been there where noise alone may bring one for a while; see :func:`lasts`."""

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
    def since(self) -> int:
        """The first step of the stretch that has covered half of the move; the last step where nothing has moved."""
        return int(self.steps[-1]) if self.change.since_step is None else self.change.since_step

    @property
    def rise(self) -> float:
        """Mean of the late rows minus mean of the early ones, in the unit of the key."""
        return float(self.late.mean() - self.early.mean())

    @cached_property
    def early_level(self) -> float:
        """Median of the early rows."""
        return float(np.median(self.early))

    @cached_property
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
        if not self.change.moved or not self.change.matters:
            return "flat"
        return "up" if self.change.shift > 0 else "down"


def lasts(judged: Course, holds: Callable[[Course], bool]) -> bool:
    """Say whether something holds of a course and held of it 20 rows ago; never under 60 rows.

    A live run is judged every few rows, so whatever noise brings for a moment is met sooner or later.
    """
    if not holds(judged):
        return False
    before = judged.values.size - LASTING
    return before >= MINIMUM_BASELINE + MINIMUM_RECENT and holds(
        _divided(judged.key, judged.steps[:before], judged.values[:before])
    )


def rows_of(run: Run, key: str) -> tuple[Steps, Floats]:
    """Return the finite rows of a key, ``(n,)`` each; a step that is repeated later supersedes what stood before.

    The latest rows are there as they were logged; in the process that trains, older ones may be thinned, see
    :class:`foreshock.run.Series`. Views of the series where nothing has to be left out: a long run is not copied.
    """
    if key not in run.series:
        return np.empty(0, dtype=np.int64), np.empty(0)
    series = run.series[key]
    return _remembered(run, f"rows of {key}", _stamp(run, key), lambda: _sorted_rows(series.steps, series.values))


def even_rows(run: Run, key: str) -> tuple[Steps, Floats]:
    """Return the finite rows of a key as :func:`rows_of`, with the latest rows thinned as much as older ones.

    For whatever speaks of parts of the run, such as its last quarter, or of the noise of a row.
    """
    if key not in run.series or not run.series[key].level:
        return rows_of(run, key)
    return _remembered(run, f"even rows of {key}", _stamp(run, key), lambda: _sorted_rows(*run.series[key].even))


def shared_rows(run: Run, first: str, second: str) -> tuple[Floats, Floats]:
    """Return the values of two keys at the steps at which both have one, ``(rows,)`` each."""
    (steps, values), (other_steps, others) = even_rows(run, first), even_rows(run, second)
    _, places, other_places = np.intersect1d(steps, other_steps, assume_unique=True, return_indices=True)
    return values[places], others[other_places]


def _sorted_rows(steps: Steps, values: Floats) -> tuple[Steps, Floats]:
    if steps.size > 1 and not np.all(steps[1:] > steps[:-1]):
        smallest_later = np.minimum.accumulate(steps[::-1])[::-1]
        kept = np.append(steps[:-1] < smallest_later[1:], True)
        steps, values = steps[kept], values[kept]
    finite = np.isfinite(values)
    if not finite.all():
        steps, values = steps[finite], values[finite]
    too_large = values.size and max(values.max(), -values.min()) > LARGEST
    return steps, np.clip(values, -LARGEST, LARGEST) if too_large else values


def _stamp(run: Run, key: str) -> tuple[int, bytes]:
    """Return what changes whenever a series is appended to."""
    series = run.series[key]
    return series.appended, series.values[-1:].tobytes()


def _remembered(run: Run, name: str, stamp: object, compute: Callable[[], T]) -> T:
    """Compute something once for all rules, and again only when its stamp differs."""
    known = run.derived.get(name)
    if known is None or known[0] != stamp:
        known = run.derived[name] = (stamp, compute())
    found: T = known[1]
    return found


def course(run: Run, key: str, *, warm_up: bool = True) -> Course | None:
    """Return how a key went after the warm-up, or from the first row on; None below 40 rows (20 without warm-up)."""
    if key not in run.series:
        return None
    after = warm_up_steps(run) + _full_rate_step(run) if warm_up else None
    name = f"course of {key}" + (" after the warm-up" if warm_up else "")
    return _remembered(run, name, (_stamp(run, key), after), lambda: _course(key, *even_rows(run, key), after))


def longest_course(run: Run, key: str) -> Course | None:
    """Return how a key went after the warm-up, or from the first row on where that leaves too few rows."""
    return course(run, key) or course(run, key, warm_up=False)


def _course(key: str, steps: Steps, values: Floats, after: int | None) -> Course | None:
    start = 0 if after is None else int(np.searchsorted(steps, after, side="right"))
    steps, values = steps[start:], values[start:]
    if steps.size >= MINIMUM_BASELINE + MINIMUM_RECENT:
        return _divided(key, steps, values)
    if after is not None or steps.size < SHORTEST:
        return None
    third = steps.size // 3
    return Course(key, steps, values, values[:third], values[-third:])


def _divided(key: str, steps: Steps, values: Floats) -> Course:
    # An eighth, not a quarter: what grows from the start is to be compared with its start.
    count = max(MINIMUM_BASELINE, steps.size // 8)
    recent = max(MINIMUM_RECENT, (steps.size - count) // 4)
    return Course(key, steps, values, values[:count], values[-recent:])


def _full_rate_step(run: Run) -> int:
    """Return the step at which the learning rate came near its largest value; 0 when it starts there or is unknown.

    While the rate warms up hardly anything moves, and a baseline from there would make all that follows a growth.
    """
    steps, rate = even_rows(run, "learning_rate")
    if not rate.size or not rate.max() > 0:
        return 0
    first = int(np.argmax(rate >= FULL_RATE * rate.max()))
    return int(steps[first]) if first else 0


def is_preference(run: Run) -> bool:
    """Say whether a run learns from pairs or labels of preference, as its keys show."""
    return "rewards/margins" in run.series or "rewards/accuracies" in run.series


def direction(run: Run, key: str = "reward") -> str:
    """Return whether a key went up, down or stayed flat; "" when that cannot be judged.

    A move since the warm-up counts first; without one, a move since the first row.
    """
    judged = decisive(run, key)
    return "" if judged is None else judged.direction


def decisive(run: Run, key: str) -> Course | None:
    """Return the course since the warm-up where that moved, and else the one since the first row."""
    settled = course(run, key)
    return settled if settled is not None and settled.direction != "flat" else course(run, key, warm_up=False)


def are_shares(values: Floats) -> bool:
    """Say whether there are values, and all lie between 0 and 1."""
    return values.size > 0 and 0 <= float(values.min()) <= float(values.max()) <= 1 + 1e-6


def latest(run: Run, key: str) -> tuple[Steps, Floats]:
    """Return the last rows of a key, as :func:`last_rows` does."""
    return last_rows(run, *rows_of(run, key))


def last_rows(run: Run, steps: Steps, values: Floats, over: int = FIRST_STEPS) -> tuple[Steps, Floats]:
    """Return the last rows of a series, at least 5 and over at least 20 steps, ``(rows,)`` each.

    Empty when there are not so many, or when the series has not been logged for as long a time.
    """
    if steps.size < FIRST_ROWS:
        return steps[:0], values[:0]
    logged = steps[-LATEST_ROWS:]
    cadence = int(logged[-1] - logged[0]) / (logged.size - 1)
    count = max(FIRST_ROWS, math.ceil(over / max(cadence, 1.0)))
    stale = run.last_step - int(steps[-1]) > count * cadence
    return (steps[:0], values[:0]) if steps.size < count or stale else (steps[-count:], values[-count:])


def held_since(steps: Steps, state: npt.NDArray[np.bool_]) -> int:
    """Return the first step of the stretch, up to the last row, in which a state holds in 9 of 10 rows or more."""
    shares = np.cumsum(state[::-1]) / np.arange(1, state.size + 1)
    holding = np.flatnonzero((shares >= 0.9) & state[::-1])
    return int(steps[::-1][holding[-1]]) if holding.size else int(steps[-1])


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
