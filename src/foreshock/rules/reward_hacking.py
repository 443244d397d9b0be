"""Reward without progress: one reward rises while another, or the evaluation, does not.

What: ``reward`` or one of its parts has risen since the first rows, and another part or ``eval_reward`` is flat or has
fallen.
Why it matters: the policy may have found a way to the reward that is not the task (reward hacking).
Known problems: a possibility, never a proof. Parts of a reward with other units or tiny weights may be flat by nature;
a part that is saturated, constant or not positive is left out. Where only one reward is logged, nothing can be said: a
training reward alone cannot show hacking. It is a note on 24 to 39 rows, where the rise was not yet there 20 rows ago,
and where it came with a restart.
Example: "Possible reward hacking: reward/g has risen from 0.05 to 0.08, over half of it since step 31, while reward/f
has not followed (0.001, then 0.001)."
Options: none.
References: Skalse et al., "Defining and characterizing reward hacking" (arXiv:2209.13085); Gao, Schulman and Hilton,
"Scaling laws for reward model overoptimization" (arXiv:2210.10760).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from foreshock.detect.series_change import MINIMUM_BASELINE, MINIMUM_RECENT, step_noise
from foreshock.rules.cause_names import REWARD_HACKING
from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.rules.series import LASTING, SHORTEST, Course, Floats, course, lasts, rows_of
from foreshock.rules.statements import heuristic, one_finding
from foreshock.run import Run
from foreshock.stats.trend import kendall

ID = "reward-without-progress"

NEEDS = "reward, and its parts or eval_reward"

SEVERITIES = ("note", "warning")

REWARDS = re.compile(r"reward(/(?!std$)[^/]+)?|rewards/.+/mean")
EVALUATIONS = re.compile(
    r"eval_(.+/)?((reward|accuracy|score|success|pass)[^/]*|rewards/.+/mean)|val(-core)?/.*(reward|acc|score|@).*"
)
DERIVED = re.compile(r"std|minus|diff|advantage|total_")
"""Keys that are made from the others, and say nothing new."""

RISE = 0.25
"""Rise of a reward, as a share of its early level, below which nothing is asked of the others (heuristic)."""

STANDARD_ERRORS = 6.0
"""The same in standard errors; chosen on AR(1) noise with ρ = 0.9."""

FEWEST, KENDALL = 24, 2.5
"""Rows from which on a run under 40 rows is noted, and the trend that it must have, in standard errors."""

SMALL_SHARE = 0.1
"""Share of the proxy's gain that another reward may gain and still count as flat (heuristic)."""

SATURATED = 0.8
"""Late level over the largest value from which on a reward has no room to rise (heuristic)."""

EVALUATED = 8
"""Evaluations below which nothing is said of them."""

CERTAINTY = "A possibility: rewards that are earned one after the other look alike. " + heuristic(
    warned=2, where=", one with a cyclic data mix and one after a restart"
)


def check(run: Run) -> RuleResult:
    """Compare every reward that rose with those that did not, and with the evaluations."""
    rewards = [found for key in run.series if _is_reward(key) and (found := course(run, key, warm_up=False))]
    rising = [each for each in rewards if _has_risen(each)]
    if not rising:
        return RuleResult(cannot_judge=_one_reward(run, rewards))
    proxy = next((each for each in rising if each.key == "reward"), max(rising, key=lambda each: each.gain))
    behind = [
        *((each.key, words) for each in rewards if each.key != proxy.key and (words := _lag(each, proxy))),
        *_evaluations(run, proxy),
    ]
    if not behind:
        rose = (f"the other rewards rose with {proxy.key}",) if _differ(rewards) else ()
        return RuleResult(cannot_judge=_one_reward(run, rewards), judged=rose)
    since, short = proxy.change.since_step or int(proxy.steps[proxy.steps.size // 3]), _is_short(proxy)
    doubt = _doubt(run, proxy, since)
    return one_finding(
        run,
        ID,
        "note" if doubt else "warning",
        since,
        f"Possible reward hacking: {proxy.key} has risen from {proxy.early_level:.3g} to {proxy.late_level:.3g}, "
        f"{'' if short else 'over half of it '}since step {since}, while "
        f"{' and '.join(f'{key} {words}' for key, words in behind)}.",
        doubt,
        keys=(proxy.key, *(key for key, _ in behind), "entropy", "kl"),
        certainty=CERTAINTY,
        cause=REWARD_HACKING,
        advice="Do not train on by this reward alone: close the way that it pays for, or weigh the other up.",
        next_check=(
            f"Read the ten completions of the latest step with the highest {proxy.key}: do they solve the task? "
            "Evaluate them by a reward that was not trained on."
        ),
    )


def _doubt(run: Run, proxy: Course, since: int) -> str:
    """Say why a rise is not certain enough for a warning; "" when it is."""
    if _is_short(proxy):
        return f"{proxy.values.size} rows are too few to be sure."
    if not lasts(proxy, _has_risen):
        return f"It may not last: {LASTING} rows ago it was not there."
    if _restarted_near(run, proxy, since):
        return "It rose where the run was restarted, so something else may have changed."
    return ""


def _restarted_near(run: Run, proxy: Course, step: int) -> bool:
    """Say whether the run went back to earlier steps within 20 rows of a step, as it does on a resume."""
    logged = run.series[proxy.key].steps
    again = logged[1:][logged[1:] <= logged[:-1]]
    near = np.searchsorted(proxy.steps, again) - int(np.searchsorted(proxy.steps, step))
    return bool(np.any(np.abs(near) <= SHORTEST))


def _one_reward(run: Run, rewards: list[Course]) -> tuple[CannotJudge, ...]:
    """Say of a log of scalars that a single training reward cannot show whether the task is learned."""
    evaluated = any(EVALUATIONS.fullmatch(key) and rows_of(run, key)[1].size >= EVALUATED for key in run.series)
    if not rewards or _differ(rewards) or evaluated or run.blocks:
        return ()
    reason = "one training reward is logged and no evaluation, so whether the task itself is learned cannot be judged."
    return (CannotJudge(ID, reason, "Log an evaluation, or a second reward that is not trained on."),)


def _differ(rewards: list[Course]) -> bool:
    """Say whether there are two rewards: that of a single reward function is logged again as the total."""
    return any(not np.array_equal(each.values, rewards[0].values) for each in rewards[1:])


def _is_reward(key: str) -> bool:
    return REWARDS.fullmatch(key) is not None and DERIVED.search(key) is None


def _has_risen(reward: Course) -> bool:
    """Say whether a reward rose far, and long enough ago."""
    if reward.gain <= 0 or reward.rise <= 0:
        return False
    if _is_short(reward):
        return reward.values.size >= FEWEST and kendall(reward.values) >= KENDALL and reward.change.ratio >= 1 + RISE
    if _standard_errors(reward) < STANDARD_ERRORS:
        return False
    far = not reward.change.ratio < 1 + RISE  # the ratio is NaN around zero
    return far and reward.direction == "up"


def _is_short(reward: Course) -> bool:
    return reward.values.size < MINIMUM_BASELINE + MINIMUM_RECENT


def _standard_errors(reward: Course) -> float:
    """Return the rise in standard errors of the difference between the early and the late mean."""
    _, error_of_one = step_noise(reward.early, reward.values[reward.early.size :])
    error = error_of_one * math.sqrt(1 / reward.early.size + 1 / reward.late.size)
    return reward.rise / error if error > 0 else math.inf


def _lag(other: Course, proxy: Course) -> str:
    """Say how another training reward lagged behind; "" when it rose too, or had no room to."""
    if other.direction == "down":
        return f"has fallen from {other.early.mean():.3g} to {other.late.mean():.3g}"
    room = other.late.mean() > 0 and other.values.std() > 0 and other.late.mean() < SATURATED * other.values.max()
    still = not other.change.moved and not (_is_short(other) and kendall(other.values) > 1)
    if still and room and other.rise <= SMALL_SHARE * proxy.gain:
        return f"has not followed ({other.early.mean():.3g}, then {other.late.mean():.3g})"
    return ""


def _evaluations(run: Run, proxy: Course) -> Iterator[tuple[str, str]]:
    """Yield the evaluations that are flat or fell while the proxy rose."""
    for key in run.series:
        if EVALUATIONS.fullmatch(key) is None or DERIVED.search(key):
            continue
        _, values = rows_of(run, key)
        if values.size < EVALUATED:
            continue
        early, late = values[: values.size // 3], values[-(values.size // 3) :]
        gain, error = float(late.mean() - early.mean()), _standard_error(early, late)
        if gain + 3 * error < 0:
            yield key, f"has fallen from {early.mean():.3g} to {late.mean():.3g}"
        elif gain + 2 * error <= 0.5 * proxy.gain and late.mean() < SATURATED * values.max():
            yield key, f"has not followed ({early.mean():.3g}, then {late.mean():.3g})"


def _standard_error(early: Floats, late: Floats) -> float:
    return math.sqrt(float(np.var(early)) / max(early.size - 1, 1) + float(np.var(late)) / max(late.size - 1, 1))
