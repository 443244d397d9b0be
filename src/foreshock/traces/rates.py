"""Shares and means over episodes, with an error that knows that attempts at one prompt are alike.

A share or mean is a ratio of sums over episodes, such as failed calls over calls. Its standard error is that of a ratio
estimator over clusters (Cochran, 1977, section 6.3); a cluster is the attempts at one prompt at one step. A share also
has at least the error of a binomial share with one success and one failure added (Agresti and Caffo, 2000), so that
"none of twenty" is not taken for certainty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from foreshock.traces.episode import Episode, Traces

Count = Callable[[Episode], tuple[float, float]]
"""From an episode to what is counted and of how many: failed calls and calls. ``(x, 0)`` leaves the episode out."""

FEWEST = 20
"""Episodes, or calls, below which nothing is judged healthy."""

FEWEST_CLUSTERS = 10
"""Clusters that the early and the late third must each hold before they are compared."""

SURE = 3.0
"""Standard errors by which a level must be exceeded."""

MOVED = 4.0
"""Standard errors between early and late: by chance in under 1 of 1,000 comparisons with 10 clusters a side."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A share or mean: its value, standard error, what it is a share of, and in how many clusters."""

    value: float
    error: float
    count: float
    clusters: int

    @property
    def low(self) -> float:
        """The value less :data:`SURE` standard errors."""
        return self.value - SURE * self.error

    @property
    def high(self) -> float:
        """The value plus :data:`SURE` standard errors."""
        return self.value + SURE * self.error


@dataclass(frozen=True, slots=True)
class Trend:
    """The early and the late third of the steps, the late third's first step, and the difference in standard errors."""

    early: Estimate
    late: Estimate
    since: int

    @property
    def rise(self) -> float:
        """Late value minus early value."""
        return self.late.value - self.early.value

    @property
    def direction(self) -> int:
        """1 or −1 when the values differ by :data:`MOVED` standard errors or more, else 0."""
        error = math.hypot(self.early.error, self.late.error)
        return 0 if abs(self.rise) < MOVED * error or self.rise == 0 else 1 if self.rise > 0 else -1


def estimate(episodes: Sequence[Episode], count: Count, *, share: bool = True) -> Estimate | None:
    """Return the ratio over episodes; None when there is nothing to count."""
    sums: dict[tuple[int | None, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for episode in episodes:
        amount, size = count(episode)
        if size > 0:
            cluster = sums[episode.step, episode.group]
            cluster[0] += amount
            cluster[1] += size
    total = math.fsum(size for _, size in sums.values())
    if not total:
        return None
    amount = math.fsum(amount for amount, _ in sums.values())
    value, clusters = amount / total, len(sums)
    squares = math.fsum((amount - value * size) ** 2 for amount, size in sums.values())
    variance = squares * clusters / max(clusters - 1, 1) / total**2
    if share:
        smoothed = (amount + 1) / (total + 2)
        variance = max(variance, smoothed * (1 - smoothed) / (total + 2))
    return Estimate(value, math.sqrt(variance), total, clusters)


def trend(traces: Traces, count: Count, *, share: bool = True) -> Trend | None:
    """Compare the first with the last third of the steps; None without steps or with too few clusters in one third."""
    parts = traces.thirds
    if not parts:
        return None
    early, late = (estimate(part, count, share=share) for part in (parts[0], parts[-1]))
    if early is None or late is None or min(early.clusters, late.clusters) < FEWEST_CLUSTERS:
        return None
    return Trend(early, late, min(episode.step or 0 for episode in parts[-1]))
