"""KL runaway: the policy leaves its reference ever faster.

What: the mean KL lies at a multiple of its own early level, and is still rising.
Why it matters: the reward often still rises then, and falls later; what the policy knew before is lost on the way.
Known problems: a level alone says nothing (models, estimators and engines differ), so high but stable is no finding,
and neither is a rise that slows down, nor a steady one below 1 nat. A KL below 0.3 nats a token is at most noted; that
floor is a heuristic. A rise that is steady from a high start is found late or never.
Example: "The mean KL to the reference has grown ×6.9, from 0.39 nats per token after the warm-up to 2.7 (largest
5.69), over half of it since step 410, and it is still rising."
Options: none.
References: Gao, Schulman and Hilton, "Scaling laws for reward model overoptimization" (arXiv:2210.10760); Schulman,
"Approximating KL divergence" (2020, joschu.net/blog/kl-approx.html), for the estimators.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import OPTIMISER
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import Course, course, direction
from foreshock.rules.statements import heuristic, is_near, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "kl-runaway"

NEEDS = "kl"

SEVERITIES = ("note", "warning", "critical")

WARNING, CRITICAL = 3.0, 5.0
"""Late over early level (heuristic)."""

LARGE, VERY_LARGE = 0.3, 1.0
"""Late level in nats per token below which it is a note; that of harm, at or near which it is critical (heuristics)."""

STILL_RISING = 1.75
"""Late level over that of the second quarter: a rise that slows down has less (heuristic)."""

FASTER = 1.5
"""Rise from the third to the last quarter over that from the second to the third (heuristic).

Below the very large level a steady rise is that of every policy that leaves its reference."""

CERTAINTY = heuristic(warned=5, where=", all of them runs that learn, logged every ten steps")


def check(run: Run) -> RuleResult:
    """Compare the late KL with the early one and with the second quarter."""
    kl = course(run, "kl")
    if kl is None:
        return RuleResult()
    if not kl.growth >= WARNING or not _still_rising(kl) or kl.direction != "up":
        return RuleResult(judged=("no KL runaway (kl)",))
    critical = kl.growth >= CRITICAL and (kl.late_level >= VERY_LARGE or is_near(kl, VERY_LARGE))
    since = kl.since
    return one_finding(
        run,
        ID,
        "critical" if critical else "warning" if kl.late_level >= LARGE else "note",
        since,
        f"The mean KL to the reference has grown ×{kl.growth:.1f}, from {kl.early_level:.3g} nats per token after the "
        f"warm-up to {kl.late_level:.3g} (largest {kl.values.max():.3g}), over half of it since step {since}, and it "
        "is still rising.",
        time_sentence(kl, VERY_LARGE, f"{VERY_LARGE:g} nat"),
        reward_sentence(run),
        keys=("kl", "reward", "grad_norm", "entropy", "loss"),
        first=int(kl.steps[0]),
        certainty=CERTAINTY,
        cause=OPTIMISER,
        exclusions=("The reward still rises: it does not show this yet.",) if direction(run) == "up" else (),
        advice="Keep a checkpoint from before this step; lower the learning rate or raise beta.",
        next_check="Evaluate the checkpoints before and after this step on held-out prompts.",
    )


def _still_rising(kl: Course) -> bool:
    """Say whether the rise goes on, and is ever faster or has led far already."""
    _, second, third, last = (float(np.median(part)) for part in np.array_split(kl.values, 4))
    faster = kl.late_level >= VERY_LARGE or last - third >= FASTER * (third - second)
    return second > 0 and kl.late_level >= STILL_RISING * second and faster
