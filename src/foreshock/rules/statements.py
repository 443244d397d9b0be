"""What the rules over logged series say: sentences, tables of evidence, and the finding that holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from foreshock.rules.finding import Finding, RuleResult
from foreshock.rules.series import Course, course, decisive, even_rows
from foreshock.run import Run
from foreshock.stats.trend import theil_sen

SIMULATED_RUNS = 5_400
"""Healthy runs of benchmarks/series_rules.py, from which the rules' rates of false alarms come."""

NEAR = 0.1
"""Share of the steps so far within which harm is near, so that a trend towards it is critical (heuristic)."""

POLICY_METRICS = ("entropy", "grad_norm", "kl", "completions/mean_length")
"""What moves when the policy itself has changed."""


def one_finding(
    run: Run,
    rule: str,
    severity: str,
    since: int,
    *summary: str,
    keys: Iterable[str],
    first: int = 0,
    certainty: str,
    cause: str = "",
    name: str = "",
    exclusions: Iterable[str] = (),
    advice: str,
    next_check: str,
) -> RuleResult:
    """Return the result of a rule over series that found one thing, which has lasted from a step to the end.

    ``keys`` are the columns of its table of early, middle and late rows, from the step ``first`` on. A note keeps its
    advice and has no cause.
    """
    finding = Finding(
        rule=rule,
        severity=severity,
        steps=(since, run.last_step),
        summary=sentences(*summary),
        evidence=segment_rows(run, keys, first),
        certainty=certainty,
        cause="" if severity == "note" else cause,
        exclusions=tuple(filter(None, exclusions)),
        advice=advice,
        next_check=next_check,
        name=name,
    )
    return RuleResult((finding,))


def heuristic(warned: int, where: str = "") -> str:
    """Say that the levels of a rule are heuristics, and in how many simulated healthy runs it warned at any time."""
    how_often = f"at any time in {warned} of" if warned else "at no time in"
    return (
        f"Its levels are heuristics: it warned {how_often} {SIMULATED_RUNS:,} simulated healthy runs{where} "
        "(benchmarks/series_rules.py)."
    )


def policy_metrics(run: Run) -> tuple[list[str], list[str]]:
    """Return which of the policy's own metrics have moved since the warm-up, and which have not."""
    judged = {key: found.direction for key in POLICY_METRICS if (found := course(run, key))}
    moved = [key for key, went in judged.items() if went != "flat"]
    return moved, [key for key in judged if key not in moved]


def reward_sentence(run: Run) -> str:
    """Say what the reward did meanwhile; "" when it cannot be judged."""
    judged = decisive(run, "reward")
    if judged is None:
        return ""
    words = {"up": "has risen", "down": "has fallen", "flat": "has not moved"}[judged.direction]
    levels = f"{judged.early_level:.3g} at steps {judged.steps[0]}–{judged.steps[judged.early.size - 1]}"
    return f"The reward {words} meanwhile ({levels}, {judged.late_level:.3g} in the last rows)."


def steps_left(trend: Course, bound: float) -> float:
    """Return in how many steps a trend reaches its bound at the rate of the late rows; infinite when it goes elsewhere.

    The rate is the Theil–Sen slope over the last half of the rows, thinned to 100 (Sen, 1968).
    """
    half = slice(trend.steps.size // 2, None, max(1, trend.steps.size // 200))
    slope = theil_sen(trend.steps[half], trend.values[half])
    left = (bound - trend.late_level) / slope if slope else math.inf
    return left if left >= 0 else math.inf


def is_near(trend: Course, bound: float) -> bool:
    """Say whether a trend reaches the level of harm within a tenth of the steps that it has been logged for."""
    return steps_left(trend, bound) <= NEAR * float(trend.steps[-1] - trend.steps[0])


def time_sentence(trend: Course, bound: float, words: str) -> str:
    """Say in about how many steps a trend reaches its bound; "" when not within as many as it has been logged for."""
    left = steps_left(trend, bound)
    if not 1 <= left <= trend.steps[-1] - trend.steps[0]:
        return ""
    return f"At this rate it reaches {words} in about {float(f'{left:.1g}'):,.0f} steps."


def segment_rows(run: Run, keys: Iterable[str], first: int = 0) -> tuple[dict[str, Any], ...]:
    """Return the mean of each logged key over the early, middle and late third of the steps from ``first`` on."""
    columns = {key: even_rows(run, key) for key in keys}
    columns = {key: (steps[steps >= first], values[steps >= first]) for key, (steps, values) in columns.items()}
    logged = [steps for steps, _ in columns.values() if steps.size]
    if not logged:
        return ()
    start, end = min(int(steps[0]) for steps in logged), max(int(steps[-1]) for steps in logged)
    third = (end - start + 1) / 3
    table = []
    for number, name in enumerate(("early", "middle", "late")):
        low, high = start + round(number * third), start + round((number + 1) * third) - 1
        row: dict[str, Any] = {"segment": name, "steps": f"{low}–{high}"}
        for key, (steps, values) in columns.items():
            inside = values[(steps >= low) & (steps <= high)]
            if steps.size:
                row[key] = float(inside.mean()) if inside.size else math.nan
        table.append(row)
    return tuple(table)


def sentences(*parts: str) -> str:
    """Join the sentences that are there."""
    return " ".join(filter(None, parts))


def listed(names: Sequence[str]) -> str:
    """Return ``a, b and c``."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
