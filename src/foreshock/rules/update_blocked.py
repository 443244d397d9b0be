"""Update blocked: there is a learning signal, and no gradient.

What: ``grad_norm`` is exactly 0 in the latest rows while the rewards inside groups differ, or, in a run without a
reward, while the loss is above 0. Where a run logs a reward and nothing of its spread, only a long time without any
gradient is a warning.
Why it matters: the weights do not move; the steps are wasted, and no reward curve tells why.
Known problems: without the spread of the rewards it cannot tell a blocked update from rewards that are equal. A
logger that rounds small norms to 0 looks the same; so does a batch whose groups are each without spread, where
``reward_std`` is that of the batch and ``frac_reward_zero_std`` is not logged.
Example: "grad_norm is exactly 0 in the last 20 rows, and nearly always since step 161, while reward_std is 0.13: there
is something to learn, and no update."
Options: none.
References: Micikevicius et al., "Mixed precision training" (arXiv:1710.03740), on gradients that underflow to zero.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import NUMERICS, ZERO_SIGNAL
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import held_since, latest, rows_of
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "update-blocked"

NEEDS = "grad_norm; reward_std, reward, or loss in a run without a reward"

SEVERITIES = ("warning", "critical")

SPREAD = 1e-3
"""reward_std, as a share of |reward|, from which on there is a signal (heuristic)."""

LONG = 30
"""Rows without any update from which on the finding is critical, or a warning where the spread is not logged."""

SPREADS = ("reward_std", "frac_reward_zero_std")

EVIDENCE = ("grad_norm", "reward_std", "frac_reward_zero_std", "loss", "learning_rate")


def check(run: Run) -> RuleResult:
    """Look for gradients of exactly zero beside rewards that differ, or beside a loss that is not zero."""
    recent, norm = latest(run, "grad_norm")
    key, level = _signal(run)
    untold = "reward" in run.series and not any(spread in run.series for spread in SPREADS)
    if not norm.size or not (level or untold):
        return RuleResult()
    if norm.any():
        signal = (
            "the weights move (grad_norm)" if untold else f"the learning signal leads to a gradient (grad_norm, {key})"
        )
        return RuleResult(judged=(signal,))
    steps, norms = rows_of(run, "grad_norm")
    since = held_since(steps, norms == 0)
    rows = int(np.count_nonzero(steps >= since))
    if untold:
        return _without_spread(run, since) if rows >= LONG else RuleResult()
    return one_finding(
        run,
        ID,
        "critical" if rows >= LONG else "warning",
        since,
        f"grad_norm is exactly 0 in the last {recent.size} rows, and nearly always since step {since}, while {key} "
        f"is {level:.3g}: there is something to learn, and no update.",
        keys=EVIDENCE,
        certainty="Counted, not estimated: a gradient of exactly zero is no noise.",
        cause=NUMERICS,
        exclusions=("There is a signal: it is not a zero learning signal.",),
        advice=(
            "Check that some parameters require gradients, that the response mask is not empty, that "
            "importance-sampling masks do not drop every sequence, and that the loss is not scaled to zero."
        ),
        next_check="Take one batch by hand: the sum of the response mask, the loss, one parameter's gradient.",
    )


def _without_spread(run: Run, since: int) -> RuleResult:
    """Say that there is no gradient where nothing tells whether there is something to learn."""
    return one_finding(
        run,
        ID,
        "warning",
        since,
        f"grad_norm is exactly 0 nearly always since step {since}: the weights do not move. Whether the rewards inside "
        "groups differ is not logged, so the rewards may be equal, or the update blocked.",
        keys=("grad_norm", "reward", "loss", "learning_rate"),
        certainty="Counted, not estimated: a gradient of exactly zero is no noise.",
        cause=ZERO_SIGNAL,
        advice="Look at the rewards of one group. If they differ, look at the response mask and the gradients.",
        next_check="Take one batch by hand: its rewards by group, the sum of the response mask, one gradient.",
    )


def _signal(run: Run) -> tuple[str, float]:
    """Return what there is to learn from and its level, 0 for nothing: the spread of the rewards, or the loss."""
    _, spread = latest(run, "reward_std")
    _, equal = latest(run, "frac_reward_zero_std")
    _, reward = latest(run, "reward")
    _, loss = latest(run, "loss")
    if "reward" not in run.series and "reward_std" not in run.series:
        return "loss", float(loss.mean()) if loss.size and loss.min() > 0 else 0.0
    scale = float(np.abs(reward).mean()) if reward.size else 0.0
    differ = spread.size and spread.min() > SPREAD * scale and not (equal.size and equal.mean() >= 0.9)
    return "reward_std", float(spread.mean()) if differ else 0.0
