"""Late drift: gradient norm and clip fraction climb slowly over thousands of steps.

What: in a long run, both ``grad_norm`` and ``clip_ratio/region_mean`` climb through nearly every tenth of the last
half, judged against the fixed early level.
Why it matters: such climbs end in a sudden failure after ten thousand steps, and the reward shows nothing before. A
moving baseline never sees them.
Known problems: it needs 1,000 rows after the warm-up. One of the two alone is a note: a schedule or a data mix may do
it.
Example: "grad_norm (×1.7) and clip_ratio/region_mean (×2.1) have climbed slowly against their level at steps
151–1600."
Options: none.
References: Mann, "Nonparametric tests against trend" (Econometrica 13, 1945).
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run
from foreshock.stats.trend import kendall

ID = "late-drift"

NEEDS = "grad_norm and clip_ratio/region_mean, 1,000 rows"

SEVERITIES = ("note", "warning")

KEYS = ("grad_norm", "clip_ratio/region_mean")

LONG = 1_000
"""Rows after the warm-up."""

PARTS = 20
"""Parts of the run whose medians must climb, ten of them in its last half."""

GROWTH, TREND = 1.5, 3.0
"""Late over early level, and Kendall's rank correlation of the last half in standard errors (heuristics)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Look for slow climbs against the fixed early level."""
    courses = [found for key in KEYS if (found := course(run, key)) and found.values.size >= LONG]
    if not courses:
        return RuleResult()
    climbing = [each for each in courses if _climbs(each)]
    if not climbing:
        return RuleResult(judged=(f"no slow climb ({', '.join(each.key for each in courses)})",))
    since = min(each.since for each in climbing)
    first = climbing[0]
    return one_finding(
        run,
        ID,
        "warning" if len(climbing) == len(KEYS) else "note",
        since,
        " and ".join(f"{each.key} (×{each.growth:.1f})" for each in climbing)
        + (" have" if len(climbing) > 1 else " has")
        + f" climbed slowly against the level at steps {first.steps[0]}–{first.steps[first.early.size - 1]}.",
        reward_sentence(run),
        keys=(*KEYS, "reward", "kl", "entropy"),
        first=int(first.steps[0]),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        advice="Keep a checkpoint of now. Lower the learning rate, or renew the reference, before it becomes sudden.",
        next_check="Compare the largest gradients of now with those of an early checkpoint on the same batch.",
    )


def _climbs(drift: Course) -> bool:
    """Say whether a series grew, and climbed through nearly all parts of its last half."""
    if not drift.growth >= GROWTH or drift.direction != "up":
        return False
    medians = np.array([np.median(part) for part in np.array_split(drift.values, PARTS)[PARTS // 2 :]])
    return kendall(medians) >= TREND
