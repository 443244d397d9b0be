"""Reward concentration: rewards became nearly equal, and not because the task is solved.

What: ``reward_std`` has fallen to a small part of its early level while the reward has not risen.
Why it matters: most completions then earn the same, which is what mode collapse looks like in a log. Advantages that
are divided by so small a spread amplify noise.
Known problems: a solved task has equal rewards too, so it is nothing while the reward rises. A reward whose scale was
changed in the middle looks the same.
Example: "reward_std has fallen from 0.31 to 0.028 (×0.09), over half of the way since step 140. The reward has not
moved meanwhile."
Options: none.
References: Liu et al., "Understanding R1-Zero-like training" (arXiv:2503.20783), on dividing by the spread.
"""

from __future__ import annotations

from foreshock.rules.cause_names import REWARD_HACKING
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import course, direction
from foreshock.rules.statements import heuristic, one_finding, reward_sentence
from foreshock.run import Run

ID = "reward-concentration"

NEEDS = "reward_std and reward"

SEVERITIES = ("warning",)

KEY = "reward_std"

SMALL = 0.25
"""Late over early level of reward_std (heuristic)."""

CERTAINTY = heuristic(warned=1, where=", in very rough noise")


def check(run: Run) -> RuleResult:
    """Compare the late spread of the rewards with the early one."""
    spread, reward = course(run, KEY), direction(run)
    if spread is None or spread.early_level <= 0 or not reward:
        return RuleResult()
    if spread.growth > SMALL or spread.direction != "down" or reward == "up":
        return RuleResult(judged=(f"rewards keep their spread ({KEY})",) if spread.growth > SMALL else ())
    since = spread.since
    return one_finding(
        run,
        ID,
        "warning",
        since,
        f"{KEY} has fallen from {spread.early_level:.3g} to {spread.late_level:.3g} (×{spread.growth:.2f}), over half "
        f"of the way since step {since}.",
        reward_sentence(run),
        keys=(KEY, "reward", "frac_reward_zero_std", "entropy", "completions/mean_length"),
        first=int(spread.steps[0]),
        certainty=CERTAINTY,
        cause=REWARD_HACKING,
        advice="Look at the values that the reward takes: one for most completions means a penalty or a shortcut.",
        next_check="Count the distinct rewards of the latest step, and read three completions of the commonest one.",
    )
