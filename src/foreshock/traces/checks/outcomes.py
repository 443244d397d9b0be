"""How episodes end: success and reward, and why they ended."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from foreshock.rules.cause_names import ENVIRONMENT, LENGTH_COLLAPSE, REWARD_HACKING, ZERO_SIGNAL
from foreshock.rules.finding import SEVERITIES, CannotJudge, RuleResult
from foreshock.traces.checks.common import Share, examples, judge, one_finding, percent, segments, together
from foreshock.traces.episode import (
    CONTEXT,
    ERROR,
    LENGTH,
    STEP_LIMIT,
    UNFINISHED,
    WALL_CLOCK,
    Episode,
    Traces,
)
from foreshock.traces.rates import Count, Trend, estimate, trend

SUCCESS, TERMINATION = "trace-success", "trace-termination"

NONE_SUCCEED, FALL = 0.02, 0.1
"""The success rate that leaves nothing to learn from, and a fall from early to late that is a finding (heuristics)."""

ENDINGS = {
    WALL_CLOCK: (0.1, 0.3),
    ERROR: (0.05, 0.3),
    UNFINISHED: (0.1, 0.5),
    CONTEXT: (0.2, 0.5),
    LENGTH: (0.3, 0.7),
    STEP_LIMIT: (0.3, 0.7),
}
"""Share of the episodes that ended so from which on it is a warning, and critical (heuristics)."""


def check(traces: Traces) -> RuleResult:
    """Judge how the episodes ended; a rate is judged only where there are labels."""
    return together(_outcome(traces), _endings(traces))


def outcome_of(traces: Traces) -> tuple[Count, bool]:
    """Return how to count what an episode achieved, and whether that is a success rate.

    Success is its label, or the reward where every reward is 0 or 1; without either, the mean reward is counted.
    """
    if any(episode.success is not None for episode in traces.episodes):
        return (lambda episode: (bool(episode.success), episode.success is not None)), True
    return reward, all(episode.reward in (None, 0.0, 1.0) for episode in traces.episodes)


def reward(episode: Episode) -> tuple[float, float]:
    """Count the reward of an episode that has one."""
    return episode.reward or 0.0, episode.reward is not None


def _outcome(traces: Traces) -> RuleResult:
    count, is_rate = outcome_of(traces)
    level = estimate(traces.episodes, count, share=is_rate)
    if level is None:
        reason = "no episode has a success label or a reward, so a success rate cannot be judged."
        return RuleResult(cannot_judge=(CannotJudge(SUCCESS, reason, "Log success or reward with each episode."),))
    if is_rate and level.high <= NONE_SUCCEED:
        what = f"Hardly any episode succeeds: {percent(level.value)} of {level.count:.0f} with a label."
        return _found(traces, what, "warning", ZERO_SIGNAL)
    course = trend(traces, count, share=is_rate)
    least = FALL if is_rate else FALL * _spread(traces)
    if course is None or course.direction >= 0 or -course.rise < least:
        return RuleResult()
    return _fallen(traces, course, is_rate)


def _fallen(traces: Traces, course: Trend, is_rate: bool) -> RuleResult:
    name = "The success rate" if is_rate else "The mean reward"
    early, late = (percent(part.value) if is_rate else f"{part.value:.3g}" for part in (course.early, course.late))
    what = f"{name} has fallen from {early} in the first third of the steps to {late} in the last."
    moved = _moved(traces)
    if not moved:
        what += " Length and tool calls of the episodes did not move: look at the environment and the grader first."
    severity = "critical" if course.late.value <= course.early.value / 2 and course.early.value > 0 else "warning"
    return _found(traces, what, severity, REWARD_HACKING if moved else ENVIRONMENT, course.since)


def _moved(traces: Traces) -> bool:
    """Say whether length or tool calls of the episodes changed from the early to the late steps."""
    measures: tuple[Count, ...] = (
        lambda e: (traces.size(e), 1),
        lambda e: (len(e.calls), 1),
        lambda e: (len(e.turns), 1),
    )
    courses = [trend(traces, measure, share=False) for measure in measures]
    return any(course is not None and course.direction for course in courses)


def _found(traces: Traces, what: str, severity: str, cause: str, since: int | None = None) -> RuleResult:
    count, is_rate = outcome_of(traces)
    return one_finding(
        traces,
        SUCCESS,
        severity,
        what,
        since=since,
        evidence=segments(traces, count, "share" if is_rate else "mean reward"),
        cause=cause,
        advice="Grade ten early answers again with today's grader before you change the training.",
        next_check="Run the first checkpoint on the latest prompts: does it still succeed as it did?",
    )


def _endings(traces: Traces) -> RuleResult:
    if not any(episode.termination for episode in traces.episodes):
        reason = "the traces do not say why an episode ended, so those that a limit cut off cannot be told."
        return RuleResult(cannot_judge=(CannotJudge(TERMINATION, reason, "Log why each episode ended."),))
    findings = [finding for cause, levels in ENDINGS.items() for finding in judge(traces, _ending(cause, levels))]
    if not findings:
        return RuleResult()
    worst = max(findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return RuleResult((replace(worst, summary=" ".join(finding.summary for finding in findings)),))


def _ending(cause: str, levels: tuple[float, float]) -> Share:
    fault = cause in (WALL_CLOCK, ERROR, UNFINISHED)
    return Share(
        rule=TERMINATION,
        words=f"of the episodes did not end by themselves: {cause}",
        count=lambda episode: (episode.termination == cause, bool(episode.termination)),
        levels=levels,
        rise=0.1,
        table=_endings_table,
        cause=ENVIRONMENT if fault else LENGTH_COLLAPSE,
        advice=(
            "Do not train on these episodes as if the policy had ended them: mask them, or start them again."
            if fault
            else "Raise the limit, or mask the episodes that it cuts off, and look at what makes them long."
        ),
        next_check="Look at whether these episodes carry a label: a label on a cut episode is one of the limit.",
    )


def _endings_table(traces: Traces) -> tuple[dict[str, Any], ...]:
    causes: dict[str, list[Episode]] = defaultdict(list)
    for episode in traces.episodes:
        causes[episode.termination or "not recorded"].append(episode)
    rows = []
    for cause, episodes in sorted(causes.items(), key=lambda item: -len(item[1])):
        rewards = [episode.reward for episode in episodes if episode.reward is not None]
        rows.append(
            {
                "ended by": cause,
                "episodes": len(episodes),
                "share": len(episodes) / len(traces.episodes),
                "labelled success": sum(bool(episode.success) for episode in episodes),
                "mean reward": math.fsum(rewards) / len(rewards) if rewards else math.nan,
                "examples": examples(episodes),
            }
        )
    return tuple(rows)


def _spread(traces: Traces) -> float:
    rewards = [episode.reward for episode in traces.episodes if episode.reward is not None]
    return float(np.std(rewards)) if rewards else 0.0
