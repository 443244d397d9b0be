"""What the policy says: empty answers, void turns, repetition, refusals, and answers that all begin alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from foreshock.rules.cause_names import ENVIRONMENT, REWARD_HACKING
from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.traces.chat import is_void, spoken
from foreshock.traces.checks.common import Share, examples, judge, together
from foreshock.traces.episode import Episode, Traces
from foreshock.traces.refusal import is_english_script, is_refusal
from foreshock.traces.texts import beginning, is_repetitive

FEWEST_PROMPTS = 10
"""Prompts over which a beginning must be shared before it says anything of the policy."""

MOST_ROWS = 8


def check(traces: Traces) -> RuleResult:
    """Judge the words of the policy."""
    findings = [finding for share in (*SHARES, _alike(traces)) for finding in judge(traces, share)]
    return together(RuleResult(tuple(findings)), _refusals(traces))


def _empty(episode: Episode) -> tuple[float, float]:
    return not episode.turns or is_void(episode.turns[-1]), 1


def _void(episode: Episode) -> tuple[float, float]:
    earlier = episode.turns[:-1]
    return sum(map(is_void, earlier)), len(earlier)


def _repetitive(episode: Episode) -> tuple[float, float]:
    return any(is_repetitive(spoken(turn["content"]) or turn["content"]) for turn in episode.turns), bool(episode.turns)


def _refused(episode: Episode) -> tuple[float, float]:
    words = spoken(episode.answer)
    return is_refusal(words), bool(words)


SHARES = (
    Share(
        rule="trace-empty-answers",
        words="of the episodes end with an empty answer: neither words nor a call",
        count=_empty,
        levels=(0.05, 0.3),
        rise=0.05,
        cause=ENVIRONMENT,
        advice="Check that the model server answers and that no stop string ends an answer before its first word.",
        next_check="Send three of the prompts to the server by hand, and look at the raw tokens.",
    ),
    Share(
        rule="trace-void-turns",
        words="of the turns before the last are void: neither words nor a call",
        count=_void,
        levels=(0.1, 0.3),
        rise=0.05,
        cause=ENVIRONMENT,
        advice="Leave episodes with void turns out of the update, and check what the environment answers to one.",
        next_check="Read the observation that came before three void turns.",
    ),
    Share(
        rule="trace-repetition",
        words="of the episodes hold a message whose end repeats itself",
        count=_repetitive,
        levels=(0.05, 0.2),
        rise=0.05,
        cause=REWARD_HACKING,
        advice="Lower the learning rate or go back to an earlier checkpoint; look at the reward of these episodes.",
        next_check="Read three of the ends: do they repeat until the length limit, and what reward did they get?",
    ),
)

REFUSALS = Share(
    rule="trace-refusals",
    words="of the answers begin as a refusal does (English templates)",
    count=_refused,
    levels=(0.2, 0.5),
    rise=0.1,
    cause=REWARD_HACKING,
    advice="Check whether refusing is rewarded better than a wrong answer, and whether the prompts ask for harm.",
    next_check="Read five of the refusals: is the task refused, or is a tool missing?",
)


def _refusals(traces: Traces) -> RuleResult:
    """Judge refusals when most answers could be English."""
    words = [spoken(episode.answer) for episode in traces.episodes]
    spoken_words = [text for text in words if text]
    if 2 * sum(map(is_english_script, spoken_words)) < len(spoken_words):
        reason = "most answers are not in English letters, and its templates are English."
        return RuleResult(cannot_judge=(CannotJudge(REFUSALS.rule, reason),))
    return RuleResult(judge(traces, REFUSALS))


def _alike(traces: Traces) -> Share:
    """Return the share of answers that begin as the most common ones do, over many prompts."""
    begun: dict[str, list[Episode]] = defaultdict(list)
    for episode in traces.episodes:
        if start := beginning(spoken(episode.answer)):
            begun[start].append(episode)
    prompts = {start: len({episode.group for episode in episodes}) for start, episodes in begun.items()}
    common = Counter({start: len(part) for start, part in begun.items() if prompts[start] >= FEWEST_PROMPTS})
    most = common.most_common(1)[0][0] if common else ""

    def count(episode: Episode) -> tuple[float, float]:
        start = beginning(spoken(episode.answer))
        return start == most, bool(start)

    def table(_: Traces) -> tuple[dict[str, Any], ...]:
        return tuple(
            {"beginning": start, "answers": number, "prompts": prompts[start], "examples": examples(begun[start])}
            for start, number in common.most_common(MOST_ROWS)
        )

    return Share(
        rule="trace-same-beginning",
        words="of the answers of 80 characters and more begin with the same 80 characters, whatever the prompt",
        count=count,
        levels=(0.5, 0.9),
        rise=0.25,
        table=table,
        cause=REWARD_HACKING,
        advice="If no template asks for it, the policy has one answer left: go back to an earlier checkpoint.",
        next_check="Compare with the first steps, and with what the system prompt asks for.",
    )
