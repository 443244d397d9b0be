"""The tables of the reproduction: parts of the runs by arm, every run by itself, and what the experiment must show."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from foreshock.lab.results import MEASURES, PARTS, RunResult, bootstrap_mean, by_arm
from foreshock.views.words import NO_VALUE, shown

Row = dict[str, Any]

LARGEST_TEXT_GROWTH, SMALLEST_POST_GROWTH = 1.1, 1.25
LARGEST_SHARE_OF_FIXED = 0.65
STEADY = 0.15
SMALLEST_REWARD_SHARE = 0.95
ESS_FALL = 0.9
LIMITED_ESS_FALL = 0.01
"""Of ESS/n with ratios up to 2, which moves little; half of what the fixed arm's development seeds lose."""

HELD = ("drift_aware", "constrained")
"""Arms in which the tail must stay."""


def part_rows(results: Sequence[RunResult]) -> list[Row]:
    """Return every measure of every arm: the mean over seeds, with its bootstrap interval, of each part of the runs."""
    rows = []
    for arm, runs in by_arm([result for result in results if result.parts]).items():
        for name, measure in MEASURES.items():
            cells = {part: _interval([measure(run, part) for run in runs]) for part in PARTS}
            rows.append({"arm": arm, "measure": name, **cells})
    return rows


def run_rows(results: Sequence[RunResult]) -> list[Row]:
    """Return what became of every run: alarm, aggregates, lead, and late over early."""
    return [
        {
            "arm": run.arm,
            "seed": run.seed,
            "alarm": _step(run.alarm),
            "aggregates that moved": ", ".join(f"{name} {step}" for name, step in run.moved.items()) or "none",
            "lead (steps)": _lead(run),
            **{f"{name}, late/early": shown(growth(run, name)) for name in GROWTHS},
        }
        for run in results
    ]


GROWTHS = ("p95 post-tool", "p95 text-only", "p99 post-tool", "reward", "entropy", "mean KL")


def growth(run: RunResult, name: str) -> float:
    """Return a measure late over early; NaN for a run without parts."""
    if not run.parts:
        return math.nan
    return MEASURES[name](run, "late") / MEASURES[name](run, "early")


def check_rows(results: Sequence[RunResult]) -> list[Row]:
    """Return what the experiment must show, each with the seeds that show it and those that do not."""
    arms = {arm: {run.seed: run for run in runs if run.parts} for arm, runs in by_arm(results).items()}
    fixed = arms.get("fixed", {})
    rows = [
        _check(
            f"fixed: p95 late/early ≥ {SMALLEST_POST_GROWTH} post-tool, ≤ {LARGEST_TEXT_GROWTH} text-only; "
            f"reward and entropy within {STEADY:.0%}; loss not moved",
            fixed,
            _shows_pattern,
        ),
        _check("fixed: alarm", fixed, lambda run: run.alarm is not None),
        _check(
            f"fixed: post-tool ESS/n falls below {ESS_FALL} of its early level, text-only does not",
            fixed,
            lambda run: _ess_falls(run, "post-tool") and not _ess_falls(run, "text-only"),
        ),
        _check(
            f"fixed: post-tool ESS/n of ratios up to 2 falls by at least {LIMITED_ESS_FALL}, text-only does not",
            fixed,
            lambda run: _limited_ess_falls(run, "post-tool") and not _limited_ess_falls(run, "text-only"),
        ),
    ]
    for arm in HELD:
        runs = {seed: run for seed, run in arms.get(arm, {}).items() if seed in fixed}
        rows.append(_check(f"{arm}: no alarm", runs, lambda run: run.alarm is None))
        rows.append(_check(f"{arm}: post-tool ESS/n does not fall", runs, lambda run: not _ess_falls(run, "post-tool")))
        rows.append(
            _check(
                f"{arm}: post-tool ESS/n of ratios up to 2 does not fall",
                runs,
                lambda run: not _limited_ess_falls(run, "post-tool"),
            )
        )
        rows.append(
            _check(
                f"{arm}: late post-tool p95 at most {LARGEST_SHARE_OF_FIXED} of fixed",
                runs,
                lambda run: _share_of(fixed[run.seed], run, "p95 post-tool") <= LARGEST_SHARE_OF_FIXED,
            )
        )
        rows.append(
            _check(
                f"{arm}: late reward at least {SMALLEST_REWARD_SHARE} of fixed",
                runs,
                lambda run: _share_of(fixed[run.seed], run, "reward") >= SMALLEST_REWARD_SHARE,
            )
        )
    return [row for row in rows if row["seeds that show it"] != NO_VALUE or row["seeds that do not"] != NO_VALUE]


def markdown(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table; all rows have the columns of the first."""
    columns = list(rows[0]) if rows else []
    lines = [columns, ["---"] * len(columns), *[[str(row[column]) for column in columns] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _shows_pattern(run: RunResult) -> bool:
    steady = all(abs(growth(run, name) - 1) <= STEADY for name in ("reward", "entropy"))
    stretched = growth(run, "p95 post-tool") >= SMALLEST_POST_GROWTH
    return stretched and growth(run, "p95 text-only") <= LARGEST_TEXT_GROWTH and steady and "loss" not in run.moved


def _ess_falls(run: RunResult, name: str) -> bool:
    return growth(run, f"ESS/n {name}") < ESS_FALL


def _limited_ess_falls(run: RunResult, name: str) -> bool:
    measure = MEASURES[f"ESS/n {name}, w ≤ 2"]
    return measure(run, "early") - measure(run, "late") >= LIMITED_ESS_FALL


def _share_of(base: RunResult, run: RunResult, name: str) -> float:
    return MEASURES[name](run, "late") / MEASURES[name](base, "late")


def _check(sentence: str, runs: dict[int, RunResult], holds: Callable[[RunResult], bool]) -> Row:
    yes = [str(seed) for seed, run in runs.items() if holds(run)]
    no = [str(seed) for seed in runs if str(seed) not in yes]
    return {
        "what it must show": sentence,
        "seeds that show it": ", ".join(yes) or NO_VALUE,
        "seeds that do not": ", ".join(no) or NO_VALUE,
    }


def _interval(values: Sequence[float]) -> str:
    mean, low, high = bootstrap_mean(values)
    return shown(mean) if math.isnan(low) else f"{shown(mean)} [{shown(low)}, {shown(high)}]"


def _lead(run: RunResult) -> str:
    if run.alarm is None:
        return NO_VALUE
    return f"over {run.run.last_step - run.alarm}" if run.lead is None else str(run.lead)


def _step(step: int | None) -> str:
    return NO_VALUE if step is None else str(step)
