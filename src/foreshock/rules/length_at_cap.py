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

from foreshock.rules.causes import LENGTH_COLLAPSE
from foreshock.rules.finding import Finding, RuleResult
from foreshock.rules.series import (
    course,
    direction,
    held_since,
    latest,
    reward_sentence,
    rows_of,
    segment_rows,
    sentences,
)
from foreshock.run import Run

ID = "length-at-cap"

KEY = "completions/clipped_ratio"

NEARLY_ALL = 0.9
"""Mean share of the latest rows that is a finding on its own."""

RISE, RISEN = 0.25, 0.4
"""A rise by this much to at least this level is a finding (heuristic)."""

CERTAINTY = (
    "Its levels are heuristics: it warned at no time in 2,100 simulated healthy runs (benchmarks/series_rules.py)."
)


def check(run: Run) -> RuleResult:
    """Judge the level from the first logs on, then the trend since the warm-up."""
    _, recent = latest(run, KEY)
    level = float(recent.mean()) if recent.size else 0.0
    if not 0 <= level <= 1 + 1e-6:
        return RuleResult()
    if level >= NEARLY_ALL:
        steps, values = rows_of(run, KEY)
        since = held_since(steps, values >= NEARLY_ALL)
        what = f"{level:.0%} of the completions are cut off at the length limit in the latest rows, nearly all since "
        return RuleResult((_finding(run, _severity(direction(run), level), f"{what}step {since}.", since),))
    share = course(run, KEY)
    if share is None or share.rise < RISE or not RISEN <= share.late.mean() <= 1 or share.direction != "up":
        return RuleResult()
    early, late = float(share.early.mean()), float(share.late.mean())
    since = share.change.since_step or run.last_step
    what = f"The share of completions cut off at the length limit has risen from {early:.0%} to {late:.0%}"
    return RuleResult((_finding(run, _severity(direction(run), late), f"{what} since step {since}.", since),))


def _severity(reward: str, level: float) -> str:
    if reward == "up":
        return "note"
    return "critical" if reward == "down" and level >= NEARLY_ALL else "warning"


def _finding(run: Run, severity: str, what: str, since: int) -> Finding:
    by_design = "As the reward rises, the limit may be meant so." if severity == "note" else ""
    return Finding(
        rule=ID,
        severity=severity,
        steps=(since, run.last_step),
        summary=sentences(what, reward_sentence(run), by_design),
        evidence=segment_rows(run, (KEY, "completions/mean_length", "reward", "frac_reward_zero_std", "entropy")),
        certainty=CERTAINTY,
        cause="" if severity == "note" else LENGTH_COLLAPSE,
        advice=(
            "Raise max_completion_length, check that the end-of-sequence token of the model is the one that stops "
            "generation, or take a length penalty back that pays for long answers."
        ),
        next_check="Read five completions that were cut off: an unfinished answer, a loop, or a missed end token?",
    )
