"""Clip fraction: ever more of the update is clipped away.

What: ``clip_ratio/region_mean``, the share of response tokens outside the clip range, has risen to a multiple of its
early level.
Why it matters: clipped tokens have no gradient. A share that rises means updates too large for the clip range, or data
that is ever more off-policy.
Known problems: it is 0 by construction with one update a batch, and a level alone says nothing: two-sided clipping,
token or sequence ratios, and the number of updates all set it. Below 10 % it is only noted.
Example: "The share of clipped tokens has grown ×4.1, from 3.1% to 13%, over half of it since step 180."
Options: none.
References: Schulman et al., "Proximal policy optimization algorithms" (arXiv:1707.06347); Yu et al., "DAPO"
(arXiv:2503.14476), on the two bounds.
"""

from __future__ import annotations

from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import are_shares, course
from foreshock.rules.statements import heuristic, is_near, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "clip-fraction"

NEEDS = "clip_ratio/region_mean"

SEVERITIES = ("note", "warning", "critical")

KEY = "clip_ratio/region_mean"

GROWTH, LARGE, HALF = 3.0, 0.1, 0.5
"""Growth since the warm-up, and the late levels of a warning and of a critical finding (heuristics)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Compare the late share of clipped tokens with the early one."""
    share = course(run, KEY)
    if share is None or not are_shares(share.values) or not share.values.any():
        return RuleResult()
    if not share.growth >= GROWTH or share.direction != "up":
        return RuleResult(judged=(f"the share of clipped tokens does not climb ({KEY})",))
    late = share.late_level
    critical = late >= HALF or (late >= LARGE and is_near(share, HALF))
    return one_finding(
        run,
        ID,
        "critical" if critical else "warning" if late >= LARGE else "note",
        share.since,
        f"The share of clipped tokens has grown ×{share.growth:.1f}, from {share.early_level:.2%} to {late:.2%}, over "
        f"half of it since step {share.since}.",
        time_sentence(share, HALF, f"{HALF:.0%}"),
        reward_sentence(run),
        keys=(KEY, "reward", "grad_norm", "entropy", "kl"),
        first=int(share.steps[0]),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        advice="Lower the learning rate, or take fewer updates on each batch of rollouts.",
        next_check="Look at the clip share of the first update of a batch: it must be near 0 if data is on-policy.",
    )
