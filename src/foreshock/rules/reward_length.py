"""Reward follows length: longer, or shorter, completions are what is paid for.

What: from row to row, changes of ``reward`` and of ``completions/mean_length`` go together (correlation of the
differences), and the length has moved far in the direction that pays.
Why it matters: the policy learns to be long, or short, instead of right.
Known problems: hard prompts need long answers and earn less, easy ones the reverse, and a reasoning task may need
length: a possibility, never a proof, and only a note below a correlation of 0.8.
Example: "Row by row the reward goes with the length (correlation 0.86), and the mean length has grown from 210 to 640
tokens."
Options: none.
References: Singhal et al., "A long way to go: investigating length correlations in RLHF" (arXiv:2310.03716).
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import REWARD_HACKING
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, shared_rows
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "reward-follows-length"

NEEDS = "reward and completions/mean_length"

SEVERITIES = ("note", "warning")

KEY = "completions/mean_length"

NOTED, WARNED = 0.6, 0.8
"""Correlation of the row-to-row differences (heuristic; with 60 rows of noise its standard error is 0.16)."""

FAR = 1.5
"""Growth of the length, or its inverse, that goes with the sign of the correlation (heuristic)."""

FEWEST = 60

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Correlate the differences, then look at where the length went."""
    length = course(run, KEY, warm_up=False)
    correlation, rows = _correlation(run)
    if length is None or rows < FEWEST:
        return RuleResult()
    early, late = length.early_level, length.late_level
    paid = late >= FAR * early if correlation > 0 else early >= FAR * late
    if abs(correlation) < NOTED or not paid or length.direction == "flat":
        return RuleResult(judged=(f"the reward does not just follow the length (reward, {KEY})",))
    return one_finding(
        run,
        ID,
        "warning" if abs(correlation) >= WARNED else "note",
        length.since,
        f"Row by row the reward goes {'with' if correlation > 0 else 'against'} the length (correlation "
        f"{correlation:.2f}), and the mean length has gone from {early:.0f} to {late:.0f} tokens.",
        reward_sentence(run),
        keys=("reward", KEY, "completions/clipped_ratio", "entropy"),
        certainty=CERTAINTY,
        cause=REWARD_HACKING,
        advice="Take the length out of the reward: normalise, cap or penalise it; log a reward of rightness alone.",
        next_check="Correlate reward and length inside one group of the same prompt.",
    )


def _correlation(run: Run) -> tuple[float, int]:
    """Return the correlation of the row-to-row differences of reward and length, and of how many rows."""
    reward, length = shared_rows(run, "reward", KEY)
    a, b = np.diff(reward), np.diff(length)
    size_a, size_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    return float((a / size_a) @ (b / size_b)) if size_a and size_b else 0.0, reward.size
