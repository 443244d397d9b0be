"""Void turns: the policy takes turns that hold neither a tool call nor an answer.

What: a logged share of void or empty turns (any key with ``void_turn`` or ``empty_response`` in it) has risen far, or
is high from the first logs on.
Why it matters: a void turn comes from a broken or truncated sample. Trained on, its low-probability tokens blow up the
gradient, and the next observation answers nothing.
Known problems: no framework logs it by itself; log it from the rollout, for example with ``log_metric`` in a reward
function of TRL.
Example: "void_turns has risen from 2% to 31% since step 190."
Options: none.
References: Xue et al., "SimpleTIR" (arXiv:2509.02479), which leaves trajectories with void turns out of the loss.
"""

from __future__ import annotations

import re

from foreshock.rules.cause_names import TOOL_USE_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.rules.series import are_shares, course, held_since, latest, rows_of
from foreshock.rules.statements import heuristic, one_finding, reward_sentence, time_sentence
from foreshock.run import Run

ID = "void-turns"

NEEDS = "a key with void_turn, empty_response or empty_completion in it"

SEVERITIES = ("warning", "critical")

KEYS = re.compile(r".*(void_turn|empty_response|empty_completion).*")

RISE, RISEN, MOST = 0.15, 0.2, 0.5
"""A rise by the first to the second is a finding; the third is one from the first logs on (heuristics)."""

CERTAINTY = heuristic(warned=0)


def check(run: Run) -> RuleResult:
    """Judge the rise since the warm-up, then the level of the latest rows."""
    key = next((key for key in run.series if KEYS.fullmatch(key)), None)
    if key is None:
        return RuleResult()
    share, recent = course(run, key), latest(run, key)[1]
    if not are_shares(recent):
        return RuleResult()
    if share is not None and share.rise >= RISE and share.late_level >= RISEN and share.direction == "up":
        since = share.since
        what = f"{key} has risen from {share.early_level:.0%} to {share.late_level:.0%} since step {since}."
        return _result(run, key, since, what, time_sentence(share, MOST, f"{MOST:.0%}"), float(recent.mean()))
    if recent.mean() < MOST:
        return RuleResult(judged=(f"few void turns ({key})",))
    steps, values = rows_of(run, key)
    since = held_since(steps, values >= MOST)
    return _result(run, key, since, f"{key} is {recent.mean():.0%}, since step {since}.", "", float(recent.mean()))


def _result(run: Run, key: str, since: int, what: str, when: str, level: float) -> RuleResult:
    return one_finding(
        run,
        ID,
        "critical" if level >= MOST else "warning",
        since,
        what,
        when,
        reward_sentence(run),
        keys=(key, "tools/call_frequency", "tools/failure_frequency", "reward", "grad_norm"),
        certainty=CERTAINTY,
        cause=TOOL_USE_COLLAPSE,
        advice="Leave trajectories with void turns out of the loss, and look at the template after tool results.",
        next_check="Read three void turns with their token probabilities: cut off, a stray end token, or gibberish?",
    )
