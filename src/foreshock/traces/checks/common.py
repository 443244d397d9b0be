"""What the checks share: a share that is judged by its level and by its trend, and evidence tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from foreshock.rules.finding import Finding, RuleResult
from foreshock.traces.episode import Episode, Traces
from foreshock.traces.rates import MOVED, SURE, Count, Trend, estimate, trend

EXAMPLES = 3
"""Episodes that a row of an evidence table names."""

CERTAINTY = (
    f"Its levels are heuristics, exceeded by {SURE:.0f} standard errors; a trend is a change of {MOVED:.0f}. "
    "All checks together warned in 0 of 300 simulated healthy sets of traces (docs/traces.md)."
)

Table = Callable[[Traces], tuple[dict[str, Any], ...]]


@dataclass(frozen=True, slots=True)
class Share:
    """A share of episodes, calls or turns that is bad when it is high.

    ``words``: what follows the percentage in the summary. ``count``: how much of how many, by episode. ``levels``: the
    share that is a warning and the one that is critical. ``rise``: a change from the early to the late steps that is a
    warning. ``table``: the evidence; by default the thirds of the steps with examples.
    """

    rule: str
    words: str
    count: Count
    levels: tuple[float, float]
    rise: float
    cause: str
    advice: str
    next_check: str
    table: Table | None = None


def judge(traces: Traces, share: Share) -> tuple[Finding, ...]:
    """Judge a share by its level and by its trend; empty when both are fine, or there is nothing to count."""
    level = estimate(traces.episodes, share.count)
    if level is None:
        return ()
    course = trend(traces, share.count)
    if course is not None and (course.direction <= 0 or course.rise < share.rise):
        course = None
    warning, critical = share.levels
    lows = (level.low, course.late.low if course else 0.0)
    if course is None and level.low < warning:
        return ()
    return one_finding(
        traces,
        share.rule,
        "critical" if max(lows) >= critical else "warning",
        f"{percent(level.value)} {share.words}{_risen(course)}.",
        since=course.since if course else None,
        evidence=share.table(traces) if share.table else segments(traces, share.count),
        cause=share.cause,
        advice=share.advice,
        next_check=share.next_check,
    ).findings


def one_finding(
    traces: Traces,
    rule: str,
    severity: str,
    summary: str,
    *,
    since: int | None = None,
    evidence: tuple[dict[str, Any], ...],
    cause: str,
    advice: str,
    next_check: str,
) -> RuleResult:
    """Return the result of a check that found one thing, at all steps or since one; a note has no cause."""
    first, last = traces.steps or (0, 0)
    finding = Finding(
        rule=rule,
        severity=severity,
        summary=summary,
        steps=(first if since is None else since, last),
        evidence=evidence,
        certainty=CERTAINTY,
        cause="" if severity == "note" else cause,
        advice=advice,
        next_check=next_check,
    )
    return RuleResult((finding,))


def segments(traces: Traces, count: Count, measure: str = "share") -> tuple[dict[str, Any], ...]:
    """Return the ratio over the early, middle and late third of the steps, or over all, each with examples.

    ``measure``: the name of its column; anything but ``share`` is a mean.
    """
    parts: dict[str, Sequence[Episode]] = dict(zip(("early", "middle", "late"), traces.thirds, strict=False))
    parts = parts or {"all": traces.episodes}
    return tuple(row for name, part in parts.items() if (row := _segment(name, part, count, measure)))


def examples(episodes: Iterable[Episode]) -> str:
    """Return the ids of the first few episodes."""
    named = [episode.id for _, episode in zip(range(EXAMPLES), episodes, strict=False)]
    return ", ".join(named)


def percent(value: float) -> str:
    """Return a share as a percentage, with a decimal where it is small."""
    return f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def _risen(course: Trend | None) -> str:
    if course is None:
        return ""
    early, late = percent(course.early.value), percent(course.late.value)
    return f"; {early} in the first third of the steps, {late} in the last"


def _segment(name: str, part: Sequence[Episode], count: Count, measure: str) -> dict[str, Any]:
    level = estimate(part, count, share=measure == "share")
    if level is None:
        return {}
    row: dict[str, Any] = {"segment": name}
    if name != "all":
        row["steps"] = f"{min(e.step or 0 for e in part)}–{max(e.step or 0 for e in part)}"
    row.update({"episodes": len(part), "of": int(level.count), measure: level.value, "s.e.": level.error})
    counted = [episode for episode in part if count(episode)[0]] or [episode for episode in part if count(episode)[1]]
    return {**row, "examples": examples(counted)}


def together(*results: RuleResult) -> RuleResult:
    """Join results."""
    return RuleResult(
        tuple(finding for result in results for finding in result.findings),
        tuple(gap for result in results for gap in result.cannot_judge),
    )
