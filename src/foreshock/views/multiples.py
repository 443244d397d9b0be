"""Logged series as small multiples: the aggregates, and what the findings speak of. Nothing is judged here."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from foreshock.detect.series_change import Change
from foreshock.rules.aggregates import AGGREGATES
from foreshock.rules.finding import Finding
from foreshock.run import Run, Series
from foreshock.views.figures import NEUTRAL, Panel, Steps, empty_figure, over_steps, rounded
from foreshock.views.words import change_words

UNITS = {"entropy": "nats per token", "mean KL": "nats per token"}

MOST_SERIES = 8
"""Series of findings that are drawn."""


def aggregates_panel(run: Run, changes: Mapping[str, Change], steps: Steps) -> Panel:
    """Draw loss, reward, entropy and mean KL, as far as they were logged."""
    title = "Aggregates on the same steps"
    caption = (
        "What dashboards usually show, with the state of each series against its own level after the warm-up. Where "
        "these stay flat while a tail stretches, the failure is hidden from them."
    )
    logged = {name: run.series[key] for name, key in AGGREGATES.items() if key in run.series}
    absent = ", ".join(key for name, key in AGGREGATES.items() if name not in logged)
    notes = [f"Not logged: {absent}."] if absent else []
    reasons = {name: changes[name].reason for name in logged if name in changes and changes[name].reason}
    for reason in dict.fromkeys(reasons.values()):
        names = ", ".join(name for name in reasons if reasons[name] == reason)
        notes.append(f"Not judged: {names} ({reason}).")
    if not logged:
        return Panel(title, caption, missing="Neither loss, reward, entropy nor kl was logged in this run.")
    states = {name: f" — {change_words(change)}" for name, change in changes.items()}
    return Panel(title, caption, _multiples(logged, states, steps), notes=tuple(notes))


def findings_panel(run: Run, findings: Sequence[Finding], steps: Steps) -> Panel | None:
    """Draw the series in the evidence of the findings that are no aggregates; None where there are none."""
    keys = dict.fromkeys(key for finding in findings for row in finding.evidence for key in row if key in run.series)
    chosen = [key for key in keys if key not in AGGREGATES.values()]
    if not chosen:
        return None
    left = len(chosen) - MOST_SERIES
    return Panel(
        "Series that the findings speak of",
        "The logged keys in the tables of the findings. A dashed line is the step from which on a finding speaks.",
        _multiples({key: run.series[key] for key in chosen[:MOST_SERIES]}, {}, steps),
        notes=(f"{left} more are not drawn.",) if left > 0 else (),
    )


def _multiples(lines: Mapping[str, Series], states: Mapping[str, str], steps: Steps) -> Any:
    """Return one figure with a small drawing a series, above each its name, its unit and its state."""
    figure = empty_figure(60 + 112 * len(lines), {})
    gap = 0.3 / len(lines)
    for number, (name, series) in enumerate(lines.items(), start=1):
        bottom, top = 1 - number / len(lines), 1 - (number - 1) / len(lines) - gap
        axis = "y" if number == 1 else f"y{number}"
        values = [value if math.isfinite(value) else None for value in series.values.tolist()]
        shown = {"mode": "lines"} if len(values) > 1 else {"mode": "markers", "marker": {"color": NEUTRAL, "size": 6}}
        figure.add_trace(
            go.Scatter(
                x=series.steps.tolist(), y=rounded(values), name=name, yaxis=axis, **shown,
                line={"width": 1.3, "color": NEUTRAL}, hovertemplate=f"%{{y:.4g}}<extra>{html.escape(name)}</extra>",
            )
        )  # fmt: skip
        style = {"domain": [max(bottom, 0), top], "nticks": 4, "zeroline": False, "exponentformat": "e"}
        figure.update_layout({f"yaxis{number}": style})
        figure.add_annotation(
            text=_title(name, series.values, states.get(name, "")), x=0, y=top, xref="paper", yref="paper",
            xanchor="left", yanchor="bottom", showarrow=False, align="left",
        )  # fmt: skip
    figure.update_layout(showlegend=False, xaxis={"anchor": "y" if len(lines) == 1 else f"y{len(lines)}"})
    over_steps(figure, steps)
    return figure


def _title(name: str, values: Any, state: str) -> str:
    unit = f" ({UNITS[name]})" if name in UNITS else ""
    bad = int(np.count_nonzero(~np.isfinite(values)))
    return f"<b>{html.escape(name)}</b>{unit}{state}" + (f"; {bad} of {len(values)} not finite" if bad else "")
