"""Zero learning signal: hardly any group of completions teaches anything.

What: nearly all groups have equal rewards (``frac_reward_zero_std`` near 1, or ``reward_std`` near 0 where that key is
missing), from the first logs on or ever more so.
Why it matters: the advantages of such a group are zero. The mean reward may look fine while nothing is learned.
Known problems: a solved task looks the same, so a rise that came with a rising reward is only a note. With one group a
step the share is 0 or 1, and a level of 0.9 cannot be told from 0.7: then only a lasting 1 counts.
Example: "99.8% of the groups have equal rewards in the latest rows, and nearly all since step 10." beside a mean
reward of 0.88.
Options: none.
References: Shao et al., "DeepSeekMath" (arXiv:2402.03300), for advantages relative to a group; Yu et al., "DAPO"
(arXiv:2503.14476), which samples until groups differ.
"""

from __future__ import annotations

import numpy as np

from foreshock.rules.cause_names import ZERO_SIGNAL
from foreshock.rules.dead_run import is_dead
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import (
    FIRST_ROWS,
    FIRST_STEPS,
    Floats,
    Steps,
    course,
    direction,
    held_since,
    last_rows,
    latest,
    rows_of,
)
from foreshock.rules.statements import heuristic, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "zero-learning-signal"

NEEDS = "frac_reward_zero_std, or reward_std"

SEVERITIES = ("note", "warning", "critical")

SHARE, STD = "frac_reward_zero_std", "reward_std"

NEARLY_ALL = 0.98
"""Mean share of groups without signal from which on nothing is learned: critical."""

MOST = 0.9
"""The same for a warning."""

FEW_GROUPS = 30
"""Steps that are asked for when every row is 0 or 1, and then nearly all must be 1: a row may be a single group."""

RISE, RISEN = 0.2, 0.5
"""A rise of the share by this much to at least this level is a warning when the reward fell (heuristic)."""

LARGE_RISE, LARGELY_RISEN = 0.3, 0.7
"""The same when the reward did not move (heuristic)."""

NO_SPREAD = 1e-4
"""Standard deviation of the rewards, as a share of |reward|, below which they count as equal (heuristic)."""

EVIDENCE = (SHARE, STD, "reward", "grad_norm", "completions/clipped_ratio")

NEXT_CHECK = "Read one group of completions with its rewards: are the texts equal, or only their rewards?"

CERTAINTY = f"A state, not an estimate. {heuristic(warned=5, where=', 4 of them after a restart')}"


def check(run: Run) -> RuleResult:
    """Judge the level of the share from the first logs on, then its trend."""
    if is_dead(run):  # has a rule of its own
        return RuleResult()
    steps, share = _equal_groups(run)
    single = bool(np.isin(share, (0.0, 1.0)).all())  # each row may be a single group
    _, recent = last_rows(run, steps, share, FEW_GROUPS if single else FIRST_STEPS)
    level = float(recent.mean()) if recent.size else 0.0
    if (NEARLY_ALL if single else MOST) <= level <= 1.0 + 1e-6:
        return _level_result(run, level, steps, share)
    judged = RuleResult(judged=(f"groups differ in their rewards ({SHARE if SHARE in run.series else STD})",))
    return _trend(run) or (judged if recent.size else RuleResult())


def _equal_groups(run: Run) -> tuple[Steps, Floats]:
    """Return the share of groups with equal rewards by row; where it is not logged, 1 for rows without any spread."""
    steps, share = rows_of(run, SHARE)
    if steps.size:
        return steps, share
    steps, spread = rows_of(run, STD)
    _, reward = rows_of(run, "reward")
    scale = float(np.abs(reward).mean()) if reward.size else 0.0
    return steps, (np.abs(spread) <= NO_SPREAD * scale).astype(np.float64)


def _level_result(run: Run, level: float, steps: Steps, share: Floats) -> RuleResult:
    since = held_since(steps, share >= MOST)
    solved = since > steps[FIRST_ROWS - 1] and direction(run) == "up"
    return one_finding(
        run,
        ID,
        "note" if solved else "critical" if level >= NEARLY_ALL else "warning",
        since,
        f"{level:.1%} of the groups have equal rewards in the latest rows, and nearly all since step {since}.",
        "The reward rose before that: the task may be solved, and more steps add nothing."
        if solved
        else "Their advantages are zero, so these steps teach nothing, whatever the mean reward says.",
        keys=EVIDENCE,
        certainty=CERTAINTY,
        cause=ZERO_SIGNAL,
        exclusions=_exclusions(run),
        advice=(
            "Stop and look at the rewards of single completions. Use prompts of medium difficulty, a reward that "
            "separates completions, a higher temperature, or a longer completion limit if all are cut off."
        ),
        next_check=NEXT_CHECK,
    )


def _exclusions(run: Run) -> tuple[str, ...]:
    _, clipped = latest(run, "completions/clipped_ratio")
    if not clipped.size or not 0 <= clipped.mean() < 0.5:
        return ()
    return (f"Only {clipped.mean():.0%} of the completions are cut off: the length limit is not the cause.",)


def _trend(run: Run) -> RuleResult | None:
    share = course(run, SHARE)
    if share is None or share.rise < RISE or not RISEN <= share.late.mean() <= 1 or share.direction != "up":
        return None
    level, reward = float(share.late.mean()), direction(run)
    stuck = reward == "flat" and share.rise >= LARGE_RISE and level >= LARGELY_RISEN
    if not (stuck or reward == "down"):
        return None
    since = share.since
    return one_finding(
        run,
        ID,
        "warning",
        since,
        f"The share of groups with equal rewards has risen from {share.early.mean():.0%} to {level:.0%} since step "
        f"{since}, and not because the task is being solved.",
        time_sentence(share, NEARLY_ALL, f"{NEARLY_ALL:.0%}"),
        reward_sentence(run),
        keys=EVIDENCE,
        certainty=CERTAINTY,
        cause=ZERO_SIGNAL,
        advice="Look for mode collapse: completions that became alike, or all of them cut off at the limit.",
        next_check=NEXT_CHECK,
    )
