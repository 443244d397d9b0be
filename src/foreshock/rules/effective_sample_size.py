"""Effective sample size: few tokens carry the importance-weighted update. A supporting sign only.

What: the logged effective sample size, as a share of the tokens, has fallen below a fifth and below half of its early
level.
Why it matters: the update then rests on a few tokens. It supports a finding on the tail or the mismatch.
Known problems: a note, never more. verl and ms-swift compute it on weights that were truncated already, so it looks
better than it is, and a level alone differs by engine.
Example: "The effective sample size has fallen from 62% to 14% of the tokens since step 210."
Options: none.
References: Kish, "Survey sampling" (1965); Kong, "A note on importance sampling using standardized weights" (1992).
"""

from __future__ import annotations

from foreshock.rules.finding import RuleResult
from foreshock.rules.series import are_shares, course
from foreshock.rules.statements import one_finding
from foreshock.run import Run

ID = "effective-sample-size"

NEEDS = "rollout_corr/rollout_is_eff_sample_size"

SEVERITIES = ("note",)

KEY = "rollout_corr/rollout_is_eff_sample_size"

SMALL, HALF = 0.2, 0.5
"""Late share, and late over early share, below which it is noted (heuristics)."""


def check(run: Run) -> RuleResult:
    """Note a fall of the effective sample size."""
    share = course(run, KEY)
    if share is None or not are_shares(share.values):
        return RuleResult()
    if share.late_level >= SMALL or share.growth >= HALF or share.direction != "down":
        return RuleResult(judged=(f"the effective sample size holds ({KEY})",))
    since = share.since
    return one_finding(
        run,
        ID,
        "note",
        since,
        f"The effective sample size has fallen from {share.early_level:.0%} to {share.late_level:.0%} of the tokens "
        f"since step {since}.",
        keys=(KEY, "mismatch_kl", "entropy", "reward"),
        first=int(share.steps[0]),
        certainty="A supporting sign: it is a note and changes no verdict.",
        advice="Look at the tail of the log-ratios and at the mismatch; they say more.",
        next_check="Is the fall in tokens after tool results, or everywhere? Watch the run to know.",
    )
