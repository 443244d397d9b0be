"""Tool calls: failures, calls that cannot be parsed, loops, repeated arguments, and whether tools are still called."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from foreshock.rules.cause_names import ENVIRONMENT, TOOL_USE_COLLAPSE
from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.traces.chat import error_kind
from foreshock.traces.checks.common import Share, examples, judge, one_finding, segments, together
from foreshock.traces.episode import Episode, Traces
from foreshock.traces.loops import loop_in, repeated
from foreshock.traces.rates import FEWEST, trend

FALLEN, FEWEST_CALLS = 0.5, 0.2
"""Calls per episode that fall below the first, as a part of the early level, count as given up; the second is the
smallest early level that is judged."""

MOST_ROWS = 6


def check(traces: Traces) -> RuleResult:
    """Judge the tool calls; traces that never had any say nothing."""
    findings = [finding for share in SHARES for finding in judge(traces, share)]
    calls = sum(len(episode.calls) + episode.parse_errors for episode in traces.episodes)
    gaps: tuple[CannotJudge, ...] = ()
    if 0 < calls < FEWEST and not findings:
        gaps = (CannotJudge("trace-tools", f"the episodes hold only {calls} tool calls, of {FEWEST} needed."),)
    return together(RuleResult(tuple(findings), gaps), _given_up(traces))


def _failed(episode: Episode) -> tuple[float, float]:
    answered = [call for call in episode.calls if call.result is not None]
    return sum(bool(call.error) for call in answered), len(answered)


def _unparsed(episode: Episode) -> tuple[float, float]:
    whole = sum(not isinstance(call.arguments, str) for call in episode.calls)
    return episode.parse_errors, whole + episode.parse_errors


def _looped(episode: Episode) -> tuple[float, float]:
    return bool(loop_in(episode.calls)), bool(episode.calls)


def _repeated(episode: Episode) -> tuple[float, float]:
    return repeated(episode.calls), len(episode.calls)


def _failures_by_kind(traces: Traces) -> tuple[dict[str, Any], ...]:
    calls: dict[str, int] = defaultdict(int)
    failed: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for episode in traces.episodes:
        for call in episode.calls:
            calls[call.name] += call.result is not None
            if call.error:
                failed[call.name, error_kind(call.error)].append(episode)
    ranked = sorted(failed.items(), key=lambda item: -len(item[1]))[:MOST_ROWS]
    return tuple(
        {
            "tool": tool,
            "error": kind,
            "failed": len(episodes),
            "calls of the tool": calls[tool],
            "share": len(episodes) / calls[tool],
            "examples": examples(_distinct(episodes)),
        }
        for (tool, kind), episodes in ranked
    )


def _loops(traces: Traces) -> tuple[dict[str, Any], ...]:
    found: dict[str, list[Episode]] = defaultdict(list)
    for episode in traces.episodes:
        if loop := loop_in(episode.calls):
            found[" → ".join(call.name for call in loop)].append(episode)
    ranked = sorted(found.items(), key=lambda item: -len(item[1]))[:MOST_ROWS]
    return tuple(
        {"calls repeated": cycle, "episodes": len(episodes), "examples": examples(episodes)}
        for cycle, episodes in ranked
    )


def _distinct(episodes: list[Episode]) -> list[Episode]:
    return list({id(episode): episode for episode in episodes}.values())


SHARES = (
    Share(
        rule="trace-tool-failures",
        words="of the tool calls that were answered failed",
        count=_failed,
        levels=(0.3, 0.6),
        rise=0.15,
        table=_failures_by_kind,
        cause=ENVIRONMENT,
        advice="Mend the tool or the environment first; do not train on episodes whose tools did not work.",
        next_check="Replay ten of the failed calls by hand: the same error with arguments that are right?",
    ),
    Share(
        rule="trace-parse-errors",
        words="of the attempted tool calls could not be parsed",
        count=_unparsed,
        levels=(0.1, 0.3),
        rise=0.1,
        cause=TOOL_USE_COLLAPSE,
        advice="Compare the format that the policy writes with the one that the parser reads.",
        next_check="Read three of the calls: cut off at the length limit, wrong quotes, or another template's format?",
    ),
    Share(
        rule="trace-loops",
        words="of the episodes with tool calls hold a loop: the same calls, arguments and answers three times in a row",
        count=_looped,
        levels=(0.1, 0.3),
        rise=0.1,
        table=_loops,
        cause=TOOL_USE_COLLAPSE,
        advice="End an episode at the third equal call, and answer an error with what to change.",
        next_check="Read the answer that comes before the repetition: does it tell the policy anything new?",
    ),
    Share(
        rule="trace-repeated-arguments",
        words="of the tool calls repeat an earlier call of their episode to the letter",
        count=_repeated,
        levels=(0.3, 0.6),
        rise=0.15,
        cause=TOOL_USE_COLLAPSE,
        advice="Check that earlier answers are still in the context, and charge for calls that bring nothing new.",
        next_check="Look at whether the repeated calls come after the context was shortened.",
    ),
)


def _given_up(traces: Traces) -> RuleResult:
    """Judge whether calls per episode have fallen."""

    def calls(episode: Episode) -> tuple[float, float]:
        return len(episode.calls), 1

    course = trend(traces, calls, share=False)
    if course is None or course.early.value < FEWEST_CALLS:
        return RuleResult()
    if course.direction >= 0 or course.late.value > FALLEN * course.early.value:
        return RuleResult()
    return one_finding(
        traces,
        "trace-tool-use",
        "warning",
        f"Tool calls per episode have fallen from {course.early.value:.2g} in the first third of the steps to "
        f"{course.late.value:.2g} in the last.",
        since=course.since,
        evidence=segments(traces, calls, "calls per episode"),
        cause=TOOL_USE_COLLAPSE,
        advice="Look at whether failed calls or long answers were punished; require a call where it helps.",
        next_check="Compare the success of late episodes with and without a call.",
    )
