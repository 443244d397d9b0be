"""Update blocked: there is a learning signal, and no gradient.

What: ``grad_norm`` is exactly 0 in the latest rows while the rewards inside groups differ.
Why it matters: the weights do not move; the steps are wasted, and no reward curve tells why.
Known problems: it needs both keys. A logger that rounds small norms to 0 looks the same; so does a batch whose groups
are each without spread, where ``reward_std`` is that of the batch and ``frac_reward_zero_std`` is not logged.
Example: "grad_norm is exactly 0 in the last 20 rows, and nearly always since step 161, while reward_std is 0.13: there
is something to learn, and no update."
Options: none.
References: Micikevicius et al., "Mixed precision training" (arXiv:1710.03740), on gradients that underflow to zero.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.causes import NUMERICS
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import held_since, latest, rows_of
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "update-blocked"

NEEDS = "grad_norm and reward_std"

SEVERITIES = ("warning", "critical")

SPREAD = 1e-3
"""reward_std, as a share of |reward|, from which on there is a signal (heuristic)."""

LONG = 30
"""Rows without any update from which on the finding is critical."""

EVIDENCE = ("grad_norm", "reward_std", "frac_reward_zero_std", "loss", "learning_rate")


def check(run: Run) -> RuleResult:
    """Look for gradients of exactly zero beside rewards that differ."""
    recent, norm = latest(run, "grad_norm")
    _, spread = latest(run, "reward_std")
    _, equal = latest(run, "frac_reward_zero_std")
    _, reward = latest(run, "reward")
    if not norm.size or not spread.size or (equal.size and equal.mean() >= 0.9):
        return RuleResult()
    scale = float(np.abs(reward).mean()) if reward.size else 0.0
    if norm.any():
        return RuleResult(judged=("the learning signal leads to a gradient (reward_std, grad_norm)",))
    if not spread.min() > SPREAD * scale:
        return RuleResult()
    steps, norms = rows_of(run, "grad_norm")
    since = held_since(steps, norms == 0)
    rows = int(np.count_nonzero(steps >= since))
    return one_finding(
        run,
        ID,
        "critical" if rows >= LONG else "warning",
        since,
        f"grad_norm is exactly 0 in the last {recent.size} rows, and nearly always since step {since}, while "
        f"reward_std is {spread.mean():.3g}: there is something to learn, and no update.",
        keys=EVIDENCE,
        certainty="Counted, not estimated: a gradient of exactly zero is no noise.",
        cause=NUMERICS,
        exclusions=("The rewards inside groups differ: it is not a zero learning signal.",),
        advice=(
            "Check that some parameters require gradients, that the response mask is not empty, that "
            "importance-sampling masks do not drop every sequence, and that the loss is not scaled to zero."
        ),
        next_check="Take one batch by hand: the sum of the response mask, the loss, one parameter's gradient.",
    )
