"""Sampler mismatch: the sampler's log-probabilities drift away from the trainer's.

What: the logged difference between sampler and trainer jumps and stays, rises with the steps, or the mean importance
ratio is off 1 by the same amount from the first row on.
Why it matters: training then learns from another policy than the one that is updated. The reward moves later.
Known problems: levels differ by engine and precision, so high but stable is no finding. The rise of the first steps of
asynchronous training, until its queue is full, looks like a jump. TRL's mean ratio is truncated before it is logged,
and over whole sequences it grows with the length, so its bias is only noted. A policy that becomes more certain may
change the mismatch too: a step with learning rate 0 tells.
Example: "sampling/sampling_logp_difference/mean jumped at step 3, from at most 0.018 to 0.2, and stays there."
Options: none.
References: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training" (2025,
fengyao.notion.site/off-policy-rl); Liu et al., "When speed kills stability" (2025, richardli.xyz/rl-collapse).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from foreshock.rules.cause_names import ENGINE_DRIFT, ENGINE_MISMATCH, STALE_WEIGHTS, TRUNCATED_SUPPORT
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import (
    SHORTEST,
    Course,
    Floats,
    course,
    direction,
    even_rows,
    lasts,
    latest,
    rows_of,
    shared_rows,
)
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "sampler-mismatch"

NEEDS = "sampling/sampling_logp_difference/mean, mismatch_kl, training/rollout_probs_diff_mean or a mean ratio"

SEVERITIES = ("note", "warning", "critical")

LEVELS = {
    "sampling/sampling_logp_difference/mean": 0.02,
    "mismatch_kl": 0.001,
    "training/rollout_probs_diff_mean": 0.01,
}
"""Logged differences between sampler and trainer, each with a level that numerics alone reach (heuristics)."""

RATIO, KL_K1, KL_K3 = "sampling/importance_sampling_ratio/mean", "rollout_corr/kl", "mismatch_kl"

TREND, CRITICAL = 2.5, 10.0
"""Growth of the difference from its early level on that is a finding, and a jump that is critical (heuristics)."""

STILL_RISING = 1.3
"""Late level over that of the third quarter: a rise that slows down has less (heuristic)."""

JUMP_AFTER, JUMP_LASTS = 20, 5
"""Rows that a jump is compared with, and rows that it must last."""

BIAS, LARGE_BIAS = 0.02, 0.05
"""Distance of the mean ratio from 1 that is noted, and that is a warning where the ratio is exact (heuristics)."""

DRIFT_SHARE = 0.25
"""Change of the bias between the first and the last third, as a share of it, from which on it is no constant."""

EVIDENCE = (*LEVELS, RATIO, "reward", "entropy", "grad_norm")

CERTAINTY = heuristic(warned=4, where=", 2 of them in very rough noise")

ADVICE_JUMP = "Check that the sampler has the weights of this step: a wake-up from sleep or a restart may lose them."
ADVICE_TREND = "Keep a checkpoint from before this step. Correct with truncated importance ratios, or match precisions."
ADVICE_BIAS = "Sample with top_p = 1 and no top_k, or take log-probabilities before the sampler renormalises them."
CHECK_BIAS = "Sample one batch with top_p = 1: is the mean ratio 1 then?"


def check(run: Run) -> RuleResult:
    """Look for a jump first, then for a trend, then for a constant bias."""
    logged = [key for key in LEVELS if latest(run, key)[1].size]
    results = (look(run, key) for look in (_jump, _trend) for key in logged)
    found = next((result for result in results if result is not None), None) or _bias(run)
    if found is not None:
        return found
    return RuleResult(judged=(f"sampler and trainer agree as at the start ({', '.join(logged)})",) if logged else ())


def _jump(run: Run, key: str) -> RuleResult | None:
    steps, values = rows_of(run, key)
    place = _last_jump(values)
    if place is None or values[place:].min() < 0:
        return None
    before, now = float(values[max(place - SHORTEST, 0) : place].max()), float(np.median(latest(run, key)[1]))
    if now < LEVELS[key] or now < before * 2:
        return None
    return one_finding(
        run,
        ID,
        "critical" if now >= CRITICAL * before else "warning",
        int(steps[place]),
        f"{key} jumped at step {steps[place]}, from at most {before:.3g} to {now:.3g}, and stays there: weights that "
        "the sampler did not get look like this.",
        reward_sentence(run),
        keys=EVIDENCE,
        certainty=CERTAINTY,
        cause=ENGINE_MISMATCH,
        name=STALE_WEIGHTS,
        exclusions=("It came in one step: not a slow drift of the engine.",),
        advice=ADVICE_JUMP,
        next_check="Score one completion of the latest step by trainer and sampler, then load the weights anew.",
    )


def _last_jump(values: Floats) -> int | None:
    """Return where a series of positive values last jumped up: five rows in a row far above the twenty before.

    "Far" is ×3 the largest of them, and ×5 while fewer than ten rows, but at least two, stand before (heuristics).
    """
    n = values.size
    if n < 2 + JUMP_LASTS:
        return None
    padded = np.concatenate([np.full(JUMP_AFTER, -np.inf), values])
    largest_before = sliding_window_view(padded, JUMP_AFTER).max(axis=1)[: n - JUMP_LASTS + 1]
    least_after = sliding_window_view(values, JUMP_LASTS).min(axis=1)
    factor = np.where(np.arange(least_after.size) < 10, 5.0, 3.0)
    jumped = (least_after >= factor * largest_before) & (largest_before > 0)
    jumped[:2] = False
    places = np.flatnonzero(jumped)
    return int(places[-1]) if places.size else None


def _trend(run: Run, key: str) -> RuleResult | None:
    gap = course(run, key)
    if gap is None or not lasts(gap, _rises):
        return None
    since = gap.since
    return one_finding(
        run,
        ID,
        "critical" if gap.growth >= 2 * TREND and direction(run) == "down" else "warning",
        since,
        f"{key} has grown ×{gap.growth:.1f}, from {gap.early_level:.3g} to {gap.late_level:.3g}, over half of it since "
        f"step {since}, and it is still rising: a drift between sampler and trainer.",
        reward_sentence(run),
        keys=EVIDENCE,
        first=int(gap.steps[0]),
        certainty=CERTAINTY,
        cause=ENGINE_MISMATCH,
        name=ENGINE_DRIFT,
        exclusions=("It rose over many steps: not weights that were lost at once.",),
        advice=ADVICE_TREND,
        next_check="Run some steps with learning rate 0: if it still climbs, it is the engine and not the policy.",
    )


def _rises(gap: Course) -> bool:
    if not gap.growth >= TREND or gap.direction != "up" or gap.late_level < LEVELS[gap.key]:
        return False
    third = float(np.median(np.array_split(gap.values, 4)[2]))
    return gap.late_level >= STILL_RISING * third


def _bias(run: Run) -> RuleResult | None:
    exact = KL_K1 in run.series and KL_K3 in run.series
    offset = _exact_offset(run) if exact else even_rows(run, RATIO)[1] - 1
    if offset.size < SHORTEST:
        return None
    third = offset.size // 3
    level, change = float(np.median(offset)), float(np.median(offset[-third:]) - np.median(offset[:third]))
    error = float(offset.std()) / math.sqrt(offset.size)
    if abs(level) < max(BIAS, 5 * error) or abs(change) > DRIFT_SHARE * abs(level):
        return None
    first = int(run.series[KL_K3 if exact else RATIO].steps[0])
    unsure = "" if exact else " A ratio that is truncated, or taken over whole sequences, looks the same."
    return one_finding(
        run,
        ID,
        "warning" if exact and abs(level) >= LARGE_BIAS else "note",
        first,
        f"The mean importance ratio of trainer over sampler has been {1 + level:.3f} since the first row: a bias, not "
        f"drift. Log-probabilities that the sampler renormalises over top-p or top-k do this.{unsure}",
        keys=(*EVIDENCE, KL_K1),
        certainty="The offset is many standard errors wide; what makes it is a guess.",
        cause=ENGINE_MISMATCH,
        name=TRUNCATED_SUPPORT,
        exclusions=("It is the same from the first row on: neither stale weights nor a drifting engine.",),
        advice=ADVICE_BIAS,
        next_check=CHECK_BIAS,
    )


def _exact_offset(run: Run) -> Floats:
    """Return the mean ratio minus 1 by row: k3 − k1 = E[ρ] − 1, where ρ is the ratio of trainer over sampler."""
    k1, k3 = shared_rows(run, KL_K1, KL_K3)
    return k3 - k1
