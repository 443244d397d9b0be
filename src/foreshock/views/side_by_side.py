"""The terminal's picture of two compared runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from foreshock.comparison import Comparison
from foreshock.detect.difference import Difference
from foreshock.views.rows import RowsTable
from foreshock.views.terminal import labelled, verdict_line
from foreshock.views.words import exact

MOST_SETTINGS = 15
LONGEST_SETTING = 60
"""Characters."""


def render_comparison(comparison: Comparison) -> RenderableType:
    """Return verdicts, what parts first, the segments of both runs, and what was set differently."""
    parts: list[RenderableType] = [
        Text.assemble((f"{name}  ", "bold"), verdict_line(diagnosis))
        for name, diagnosis in zip("AB", comparison.diagnoses, strict=True)
    ]
    parts += [Text(), Text(_headline(comparison), style="bold")]
    if comparison.differences:
        parts += [Text(), RowsTable([_row(key, found) for key, found in comparison.differences.items()])]
    if comparison.segments:
        parts += [Text(), RowsTable(_side_by_side(comparison.segments))]
    if comparison.settings:
        parts += [Text(), Text("Set differently", style="bold"), RowsTable(_settings(comparison.settings))]
    if comparison.alike:
        parts += [Text(), labelled("Within noise", ", ".join(comparison.alike))]
    if comparison.not_compared:
        parts.append(labelled("Not compared", _reasons(comparison.not_compared)))
    return Group(*parts)


def _headline(comparison: Comparison) -> str:
    if comparison.differences:
        key, found = next(iter(comparison.differences.items()))
        return f"{key} parts first, at step {found.since_step}."
    if comparison.alike:
        return "Nothing differs by more than noise."
    return "Nothing could be compared."


def _row(key: str, found: Difference) -> dict[str, Any]:
    return {"key": key, "from step": found.since_step, "to step": found.until_step, "B − A (sd of a step)": found.shift}


def _side_by_side(segments: tuple[Mapping[str, Any], ...]) -> list[Mapping[str, Any]]:
    """Set early, middle and late of both runs under each other, one row a key, so that narrow terminals can show it."""
    keys = dict.fromkeys(key for row in segments for key in row if key not in ("run", "segment", "steps"))
    return [
        {"mean of": key, **{f"{row['run']} {row['segment']}": row[key] for row in segments if key in row}}
        for key in keys
    ]


def _settings(settings: Mapping[str, tuple[Any, Any]]) -> list[dict[str, str]]:
    rows = [{"name": name, "A": _cut(a), "B": _cut(b)} for name, (a, b) in settings.items()][:MOST_SETTINGS]
    left = len(settings) - len(rows)
    return [*rows, {"name": f"… {left} more, see --json", "A": "", "B": ""}] if left else rows


def _cut(value: Any) -> str:
    text = exact(value)
    return text if len(text) <= LONGEST_SETTING else text[: LONGEST_SETTING - 1] + "…"


def _reasons(not_compared: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for key, reason in not_compared.items():
        by_reason.setdefault(reason, []).append(key)
    return "; ".join(f"{', '.join(keys)} ({reason})" for reason, keys in by_reason.items())
