"""Length at the cap: completions run into the length limit.

What: ``completions/clipped_ratio``, the share of completions cut off at the limit, is near 1 or has risen far.
Why it matters: a completion that is cut off rarely holds its answer; its reward says nothing of what the policy knows.
Known problems: some set-ups cut completions off by design. While the reward rises, a high share is only noted. The
reward of the completions that were cut off is not logged, so it is not judged.
Example: "The share of completions cut off at the length limit has risen from 8% to 52% since step 140."
Options: none.
References: Yu et al., "DAPO" (arXiv:2503.14476), sections on overlong completions; Liu et al., "Understanding
R1-Zero-like training" (arXiv:2503.20783), for the length bias of the loss.
"""

from __future__ import annotations

import math

from foreshock.rules.cause_names import LENGTH_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import are_shares, course, direction, held_since, latest, rows_of
from foreshock.rules.statements import heuristic, is_near, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "length-at-cap"

NEEDS = "completions/clipped_ratio"

SEVERITIES = ("note", "warning", "critical")

KEY = "completions/clipped_ratio"

NEARLY_ALL = 0.9
"""Mean share of the latest rows that is a finding on its own."""

RISE, RISEN = 0.25, 0.4
"""A rise by this much to at least this level is a finding (heuristic)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Judge the level from the first logs on, then the trend since the warm-up."""
    _, recent = latest(run, KEY)
    if not are_shares(recent):
        return RuleResult()
    level = float(recent.mean())
    if level >= NEARLY_ALL:
        steps, values = rows_of(run, KEY)
        since = held_since(steps, values >= NEARLY_ALL)
        what = f"{level:.0%} of the completions are cut off at the length limit in the latest rows, nearly all since "
        return _result(run, level, f"{what}step {since}.", since)
    share = course(run, KEY)
    late = math.nan if share is None else float(share.late.mean())
    if share is None or share.rise < RISE or not RISEN <= late <= 1 or share.direction != "up":
        return RuleResult(judged=(f"completions end before the length limit ({KEY})",))
    since = share.since
    what = f"The share of completions cut off at the length limit has risen from {share.early.mean():.0%} to {late:.0%}"
    when = time_sentence(share, NEARLY_ALL, f"{NEARLY_ALL:.0%}")
    near = is_near(share, NEARLY_ALL)
    return _result(run, NEARLY_ALL if near else late, f"{what} since step {since}.", since, when)


def _severity(reward: str, level: float) -> str:
    if reward == "up":
        return "note"
    return "critical" if reward == "down" and level >= NEARLY_ALL else "warning"


def _result(run: Run, level: float, what: str, since: int, when: str = "") -> RuleResult:
    severity = _severity(direction(run), level)
    by_design = "As the reward rises, the limit may be meant so." if severity == "note" else ""
    return one_finding(
        run,
        ID,
        severity,
        since,
        what,
        when,
        reward_sentence(run),
        by_design,
        keys=(KEY, "completions/mean_length", "reward", "frac_reward_zero_std", "entropy"),
        certainty=CERTAINTY,
        cause=LENGTH_COLLAPSE,
        advice=(
            "Raise max_completion_length, check that the end-of-sequence token of the model is the one that stops "
            "generation, or take a length penalty back that pays for long answers."
        ),
        next_check="Read five completions that were cut off: an unfinished answer, a loop, or a missed end token?",
    )
