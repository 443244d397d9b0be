"""Gradient instability: the tail of the gradient norm grows and stays.

What: the 90th percentile of ``grad_norm`` lies at a multiple of its early level in every recent stretch of the run.
Why it matters: clipping then rules the size of most updates, and a few batches rule their direction.
Known problems: single spikes are benign and are not counted. "Above five times the base" once had 18 false alarms on
33 public sibling runs; this rule asks for a lasting change of the distribution instead, and is later for it.
Example: "The 90th percentile of grad_norm is at least ×4.2 its level after the warm-up (0.61) in each of the last 3
stretches of 20 rows, since step 240; the largest value was 9.3."
Options: none.
References: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks" (arXiv:1211.5063),
for exploding gradients and clipping by norm.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course, direction, lasts
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "gradient-instability"

NEEDS = "grad_norm"

SEVERITIES = ("warning", "critical")

QUANTILE = 0.9

STRETCH = 20
"""Rows of one stretch, at least."""

STRETCHES = 3
"""Stretches up to the last row that must all lie above the early level."""

WARNING, CRITICAL = 3.0, 10.0
"""Growth of the 90th percentile in the least of these stretches (heuristic)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the 90th percentile of the recent stretches with that of the early rows."""
    norm = course(run, "grad_norm")
    if norm is None or norm.values.size < norm.early.size + STRETCHES * STRETCH:
        return RuleResult()
    growth = _growth(norm)
    if not lasts(norm, lambda each: each.direction == "up" and _growth(each) >= WARNING):
        return RuleResult(judged=("no lasting growth of the gradient's tail (grad_norm)",))
    early = float(np.quantile(norm.early, QUANTILE))
    since = int(norm.steps[-STRETCHES * _rows(norm)])
    return one_finding(
        run,
        ID,
        "critical" if growth >= CRITICAL else "warning",
        since,
        f"The 90th percentile of grad_norm is at least ×{growth:.1f} its level after the warm-up ({early:.3g}) in each "
        f"of the last {STRETCHES} stretches of {_rows(norm)} rows, since step {since}; the largest value was "
        f"{norm.values.max():.3g}.",
        reward_sentence(run),
        keys=("grad_norm", "reward", "kl", "entropy", "loss"),
        first=int(norm.steps[0]),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        exclusions=() if direction(run) == "down" else ("The reward has not fallen: the harm is not there yet.",),
        advice="Lower the learning rate or max_grad_norm, and keep a checkpoint from before this step.",
        next_check="Look at the batches with the largest grad_norm: the same prompts, or tokens, each time?",
    )


def _rows(norm: Course) -> int:
    return max(STRETCH, norm.values.size // 16)


def _growth(norm: Course) -> float:
    """Return the least 90th percentile of the last stretches over that of the early rows; 0 without positive ones."""
    rows, early = _rows(norm), float(np.quantile(norm.early, QUANTILE))
    recent = np.quantile(norm.values[-STRETCHES * rows :].reshape(STRETCHES, rows), QUANTILE, axis=1)
    return float(recent.min()) / early if early > 0 and norm.early.min() >= 0 else 0.0
