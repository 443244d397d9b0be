"""What the runs of a sweep show, read from their run directories and from nothing else."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foreshock.batch import POLICY_REF, POST_TOOL, TEXT_ONLY
from foreshock.diagnosis import Diagnosis, diagnose_run
from foreshock.lab.plan import ORIGINAL, RunPlan
from foreshock.rules.aggregates import AGGREGATES
from foreshock.rules.tail_growth import ID as TAIL_GROWTH
from foreshock.run import Block, Run, merge_pair, read_run_directory
from foreshock.sketch import LogRatioSketch
from foreshock.views.tables import ESS_CAP

Floats = npt.NDArray[np.float64]

PARTS = ("early", "middle", "late")
BURN_IN_SHARE = 0.25
"""Of a run's steps: the policy starts at its reference, so every tail rises from zero, and learns the plain task."""

PART_SHARE = 0.2
"""Of the blocks after the burn-in: the length of the early, the middle and the late part."""

RESAMPLES = 10_000


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    arm: str
    seed: int
    run: Run

    @property
    def burn_in(self) -> int:
        """Steps at the start that no figure or table speaks of as early."""
        return int(self.run.last_step * BURN_IN_SHARE)

    @functools.cached_property
    def diagnosis(self) -> Diagnosis:
        """What Foreshock says of the run."""
        return diagnose_run(self.run)

    @functools.cached_property
    def parts(self) -> dict[str, Sequence[Block]]:
        """Early, middle and late blocks after the burn-in; empty for a run too short to have any."""
        settled = [block for block in self.run.blocks if block.first_step > self.burn_in]
        length = round(len(settled) * PART_SHARE)
        if not length:
            return {}
        middle = (len(settled) - length) // 2
        return dict(zip(PARTS, (settled[:length], settled[middle : middle + length], settled[-length:]), strict=True))

    def steps_of(self, part: str) -> tuple[int, int]:
        """Return the first and the last step of a part."""
        blocks = self.parts[part]
        return blocks[0].first_step, blocks[-1].last_step

    @property
    def alarm(self) -> int | None:
        """The step at which the growth of the post-tool tail became certain, None for no alarm; notes are none."""
        steps = [f.steps[0] for f in self.diagnosis.findings if f.rule == TAIL_GROWTH and f.severity != "note"]
        return min(steps, default=None)

    @property
    def moved(self) -> dict[str, int]:
        """Since when each aggregate that moved has moved, by name."""
        changes = self.diagnosis.aggregates.items()
        return {name: change.since_step for name, change in changes if change.since_step is not None}

    @property
    def lead(self) -> int | None:
        """Steps from the alarm to the first aggregate that moved; None without both."""
        if self.alarm is None or not self.moved:
            return None
        return min(self.moved.values()) - self.alarm


Measure = Callable[[RunResult, str], float]
"""One number of a run in one part of it; NaN where there is none."""


def _quantile(q: float, name: str) -> Measure:
    return lambda result, part: _merged(result, part).quantile(q, name).value


def _ess(name: str, cap: float = ESS_CAP) -> Measure:
    return lambda result, part: float(np.median([ess_of(block, name, cap) for block in result.parts[part]]))


def _mean(key: str) -> Measure:
    def mean(result: RunResult, part: str) -> float:
        series = result.run.series.get(key)
        if series is None:
            return math.nan
        first, last = result.steps_of(part)
        return float(np.mean(series.values[(series.steps >= first) & (series.steps <= last)]))

    return mean


MEASURES: dict[str, Measure] = {
    "p95 text-only": _quantile(0.95, TEXT_ONLY),
    "p95 post-tool": _quantile(0.95, POST_TOOL),
    "p99 text-only": _quantile(0.99, TEXT_ONLY),
    "p99 post-tool": _quantile(0.99, POST_TOOL),
    "ESS/n text-only": _ess(TEXT_ONLY),
    "ESS/n post-tool": _ess(POST_TOOL),
    "ESS/n text-only, w ≤ 2": _ess(TEXT_ONLY, math.log(2)),
    "ESS/n post-tool, w ≤ 2": _ess(POST_TOOL, math.log(2)),
    "α": lambda result, part: _merged(result, part).alpha().value,
    **{name: _mean(key) for name, key in AGGREGATES.items()},
}
"""By name. Quantiles of |r| in nats over all tokens of a part; ESS/n is the median of its blocks.

ESS/n caps r at 3 nats, where one token in a hundred can rule it; with w = eʳ ≤ 2, the bound of trainers that log an
effective sample size, it hardly can.
"""


def read_results(plans: Sequence[RunPlan]) -> list[RunResult]:
    """Read the run directories of finished runs.

    A run that also recorded its tail against the original reference gives two results, the second under an arm of its
    own.
    """
    results = []
    for plan in plans:
        results.append(RunResult(plan.arm, plan.seed, read_run_directory(plan.run_dir)))
        if (plan.run_dir / ORIGINAL).is_dir():
            arm = f"{plan.arm}, {ORIGINAL} reference"
            results.append(RunResult(arm, plan.seed, read_run_directory(plan.run_dir / ORIGINAL)))
    return results


def by_arm(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    """Group results by arm, both in their order."""
    arms: dict[str, list[RunResult]] = {}
    for result in results:
        arms.setdefault(result.arm, []).append(result)
    return arms


def ess_of(block: Block, name: str, cap: float = ESS_CAP) -> float:
    """Return the effective sample size of one slice of a block, r capped in nats, as a share of its tokens."""
    return block.sketches[POLICY_REF].ess_share(name, cap=cap).value


def bootstrap_mean(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95 % percentile bootstrap interval (Efron and Tibshirani, 1993, ch. 13).

    The interval is too narrow for the few seeds that a sweep has, and is NaN for one. Values that are NaN are left out.
    """
    known = np.array([value for value in values if math.isfinite(value)])
    if known.size < 2:
        return (float(known.mean()) if known.size else math.nan), math.nan, math.nan
    drawn = np.random.default_rng(0).choice(known, (RESAMPLES, known.size)).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(known.mean()), float(low), float(high)


def _merged(result: RunResult, part: str) -> LogRatioSketch:
    merged = merge_pair(result.parts[part], POLICY_REF)
    assert merged is not None
    return merged
