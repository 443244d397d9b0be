"""Checks over traces: each looks at all episodes, and says what it found or could not judge."""

from __future__ import annotations

from foreshock.rules.finding import CannotJudge, RuleResult
from foreshock.traces.checks import answers, outcomes, pay, sizes, tools
from foreshock.traces.checks.common import together
from foreshock.traces.episode import Traces
from foreshock.traces.rates import FEWEST


def check(traces: Traces) -> RuleResult:
    """Judge traces by every check."""
    found = together(*(part.check(traces) for part in (outcomes, tools, answers, pay, sizes)))
    if len(traces.episodes) >= FEWEST:
        return found
    reason = f"there are only {len(traces.episodes)} episodes, of {FEWEST} needed to call anything healthy."
    return together(found, RuleResult(cannot_judge=(CannotJudge("traces", reason),)))
