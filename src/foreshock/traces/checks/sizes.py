"""How long and how dear episodes are: runaways among them, and growth over the steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from foreshock.rules.cause_names import LENGTH_COLLAPSE
from foreshock.rules.finding import RuleResult
from foreshock.traces.checks.common import one_finding, percent, segments, together
from foreshock.traces.checks.outcomes import outcome_of
from foreshock.traces.episode import Episode, Traces
from foreshock.traces.rates import FEWEST, trend

Measure = Callable[[Episode], float | None]

DEVIATIONS, TIMES = 6.0, 4.0
"""An outlier is this many robust standard deviations of the logarithm, and this many times, above the median."""

SMALLEST_DEVIATION = 0.1
"""Of the logarithm: episodes that are almost all of one length have no meaningful spread."""

HEAVY = 0.2
"""Part of the total that the outliers take from which on they are a warning, not a note (heuristic)."""

GROWTH = 1.5
"""Late over early mean length that is a finding (heuristic)."""

MOST_ROWS = 10


def check(traces: Traces) -> RuleResult:
    """Judge tokens, turns and cost where they are recorded."""
    return together(
        _outliers(traces, "trace-token-runaway", "tokens", lambda episode: episode.tokens),
        _outliers(traces, "trace-turn-runaway", "turns", lambda episode: len(episode.turns) or None),
        _outliers(traces, "trace-cost-outliers", "cost", lambda episode: episode.cost),
        _growth(traces),
    )


def _outliers(traces: Traces, rule: str, unit: str, measure: Measure) -> RuleResult:
    """Name the episodes that lie far above the others. The logarithm is judged: lengths of episodes are skewed."""
    sized = [(value, episode) for episode in traces.episodes if (value := measure(episode)) is not None and value > 0]
    if len(sized) < FEWEST:
        return RuleResult()
    logs = np.log([value for value, _ in sized])
    median = float(np.median(logs))
    deviation = max(1.4826 * float(np.median(np.abs(logs - median))), SMALLEST_DEVIATION)
    limit = math.exp(median + max(DEVIATIONS * deviation, math.log(TIMES)))
    far = sorted((pair for pair in sized if pair[0] > limit), key=lambda pair: -pair[0])
    if not far:
        return RuleResult()
    part = math.fsum(value for value, _ in far) / math.fsum(value for value, _ in sized)
    return one_finding(
        traces,
        rule,
        "warning" if part >= HEAVY else "note",
        f"{len(far)} of {len(sized)} episodes take {percent(part)} of all {unit}: each over {limit:.3g}, with a median "
        f"of {math.exp(median):.3g}.",
        evidence=tuple(_row(unit, value, episode) for value, episode in far[:MOST_ROWS]),
        cause=LENGTH_COLLAPSE,
        advice=f"Set a limit of {unit} for an episode, and end it there with its cause recorded.",
        next_check="Read the longest one from its middle: does it still work at the task?",
    )


def _row(unit: str, value: float, episode: Episode) -> dict[str, Any]:
    return {
        "episode": episode.id,
        unit: value,
        "turns": len(episode.turns),
        "calls": len(episode.calls),
        "reward": math.nan if episode.reward is None else episode.reward,
        "ended by": episode.termination or "not recorded",
    }


def _growth(traces: Traces) -> RuleResult:
    """Judge whether episodes grow; growth that comes with more success is only noted."""

    def size(episode: Episode) -> tuple[float, float]:
        return traces.size(episode), 1

    course = trend(traces, size, share=False)
    if course is None or course.direction <= 0 or course.late.value < GROWTH * course.early.value:
        return RuleResult()
    achieved, is_rate = outcome_of(traces)
    better = trend(traces, achieved, share=is_rate)
    pays = better is not None and better.direction > 0
    unit = "tokens" if traces.has_tokens else "characters"
    return one_finding(
        traces,
        "trace-growth",
        "note" if pays else "warning",
        f"Episodes have grown from {course.early.value:.3g} {unit} in the first third of the steps to "
        f"{course.late.value:.3g} in the last, with {'more' if pays else 'no more'} success.",
        since=course.since,
        evidence=segments(traces, size, f"mean {unit}"),
        cause=LENGTH_COLLAPSE,
        advice="Look at whether the loss or the reward pays for length, and at the share cut off at the limit.",
        next_check="Compare an early and a late answer to the same prompt: what do the added words do?",
    )
