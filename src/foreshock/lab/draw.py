"""Draws a figure as PNG and SVG with matplotlib (extra ``[figures]``), or with plotly for the page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from foreshock.errors import MissingExtra

try:
    import matplotlib
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import FuncFormatter, NullFormatter
except ImportError as error:
    raise MissingExtra("foreshock reproduce", "'foreshock[trl,figures]'") from error

from foreshock.lab.curves import Band, Figure, Panel
from foreshock.views.figures import NEUTRAL

ALARM = "#b3261e"
BAND_OPACITY = 0.16
STYLE = {
    "font.family": "sans-serif", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.edgecolor": "#8b949c", "axes.grid": True, "grid.color": "#e6e9ec", "grid.linewidth": 0.6,
    "xtick.color": "#4a535b", "ytick.color": "#4a535b", "axes.labelcolor": "#1c2127", "svg.hashsalt": "foreshock",
    "svg.fonttype": "none",
}  # fmt: skip


def save(figure: Figure, folder: Path) -> None:
    """Write ``NAME.png`` and ``NAME.svg``; the same figure gives the same files."""
    with matplotlib.rc_context(STYLE):
        canvas = _canvas(figure)
        canvas.savefig(folder / f"{figure.name}.png", dpi=150)
        canvas.savefig(folder / f"{figure.name}.svg", metadata={"Date": None})


def _canvas(figure: Figure) -> Canvas:
    width = 3.3 * len(figure.columns) + 0.7
    canvas = Canvas(figsize=(width, 1.5 + 1.05 * sum(figure.heights)), layout="constrained")
    canvas.suptitle(figure.title, x=0.01, ha="left", fontsize=12, fontweight="bold")
    canvas.supxlabel(textwrap.fill(figure.caption, int(width * 17)), x=0.01, ha="left", fontsize=7.5, color="#4a535b")
    axes = canvas.subplots(
        len(figure.rows), len(figure.columns), squeeze=False, sharex="all", sharey="row",
        gridspec_kw={"height_ratios": figure.heights},
    )  # fmt: skip
    for i, row in enumerate(figure.rows):
        axes[i][0].set_ylabel(row[0].y_title)
        for j, panel in enumerate(row):
            _draw_panel(axes[i][j], panel, x_log=figure.x_log)
        axes[i][0].set_ylim(*_limits(row))
    for j, name in enumerate(figure.columns):
        axes[0][j].set_title(words_of(name), loc="left", fontsize=10)
        axes[-1][j].set_xlabel(figure.x_title)
    for row in axes:
        _legend(row[0])
    return canvas


def words_of(arm: str) -> str:
    """Return the name of an arm as a heading."""
    return arm.replace("_", "-")


def _draw_panel(axis: Any, panel: Panel, *, x_log: bool) -> None:
    for band in panel.bands:
        style = {"color": band.colour, "alpha": band.opacity, "linestyle": "--" if band.dashed else "-"}
        axis.plot(band.x, band.middle, label=band.name, linewidth=1.2 if band.dashed else 1.7, **style)
        axis.fill_between(band.x, band.low, band.high, color=band.colour, alpha=BAND_OPACITY, linewidth=0)
    if panel.burn_in is not None:
        axis.axvspan(0, panel.burn_in, color="#7d8791", alpha=0.14, linewidth=0)
        axis.set_xlim(left=0)
    for step in panel.alarms:
        axis.plot([step], [0.985], transform=axis.get_xaxis_transform(), marker="v", markersize=5.5, color=ALARM)
    for scaled, used in ((axis.xaxis, x_log), (axis.yaxis, panel.log)):
        if used:
            _log_scale(axis, scaled)


def _log_scale(axis: Any, scaled: Any) -> None:
    (axis.set_xscale if scaled is axis.xaxis else axis.set_yscale)("log")
    low, high = scaled.get_view_interval()
    ticks = [factor * 10.0**power for power in range(-5, 3) for factor in (1, 3)]
    scaled.set_ticks([tick for tick in ticks if low <= tick <= high])
    scaled.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    scaled.set_minor_formatter(NullFormatter())


def _legend(axis: Any) -> None:
    if len(axis.get_legend_handles_labels()[1]) > 1:
        axis.legend(loc="best", fontsize=7.5, frameon=False, handlelength=1.8)


def plotly_figure(figure: Figure) -> Any:
    """Return the same figure for the page; colours of text and grid are set there."""
    drawn = make_subplots(
        len(figure.rows), len(figure.columns), shared_xaxes="all", shared_yaxes="rows",
        row_heights=list(figure.heights), column_titles=[words_of(name) for name in figure.columns],
        horizontal_spacing=0.03, vertical_spacing=0.14 / len(figure.rows),
    )  # fmt: skip
    shown: set[str] = set()
    for i, row in enumerate(figure.rows, start=1):
        limits = [math.log10(value) for value in _limits(row)] if row[0].log else list(_limits(row))
        scale = {"type": "log", "dtick": 1} if row[0].log else {"type": "linear", "zeroline": False}
        drawn.update_yaxes(range=limits, row=i, **scale)
        drawn.update_yaxes(title_text=row[0].y_title.replace("\n", "<br>"), row=i, col=1)
        for j, panel in enumerate(row, start=1):
            for band in panel.bands:
                for trace in _traces(band, show=len(panel.bands) > 1 and band.name not in shown):
                    drawn.add_trace(trace, row=i, col=j)
                shown.add(band.name)
            _furnish(drawn, panel, i, j)
    if figure.x_log:
        drawn.update_xaxes(type="log", dtick=1)
    drawn.update_xaxes(title_text=figure.x_title, row=len(figure.rows))
    drawn.update_layout(
        height=int(150 + 90 * sum(figure.heights)), margin={"l": 62, "r": 14, "t": 60, "b": 44},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", font={"size": 12.5},
        legend={"orientation": "h", "x": 0, "y": 1.02 + 0.1 / sum(figure.heights), "yanchor": "bottom"},
    )  # fmt: skip
    return drawn


def _traces(band: Band, *, show: bool) -> list[Any]:
    line = {"color": band.colour, "width": 1.4 if band.dashed else 2.0, "dash": "dot" if band.dashed else "solid"}
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False, "legendgroup": band.name}
    red, green, blue = (int(band.colour[start : start + 2], 16) for start in (1, 3, 5))
    x = _plain(band.x)
    return [
        go.Scatter(x=x, y=_plain(band.high), **edge),
        go.Scatter(
            x=x, y=_plain(band.low), fill="tonexty", fillcolor=f"rgba({red},{green},{blue},{BAND_OPACITY})", **edge
        ),
        go.Scatter(
            x=x, y=_plain(band.middle), name=band.name, line=line, opacity=band.opacity, mode="lines",
            legendgroup=band.name, showlegend=show, hovertemplate="%{y:.3g} at %{x:.3g}",
        ),
    ]  # fmt: skip


def _furnish(drawn: Any, panel: Panel, i: int, j: int) -> None:
    if panel.burn_in is not None:
        drawn.add_vrect(0, panel.burn_in, fillcolor=NEUTRAL, opacity=0.13, line_width=0, layer="below", row=i, col=j)
    for step in panel.alarms:
        drawn.add_vline(step, line={"color": ALARM, "width": 1.2, "dash": "dot"}, row=i, col=j)


def _limits(row: Sequence[Panel]) -> tuple[float, float]:
    """Return the range of y that the panels of a row share: as asked for, else what holds every band."""
    edges = [edge for panel in row for band in panel.bands for edge in (band.low, band.high)]
    values = np.concatenate([*edges, []])
    values = np.log(values[values > 0]) if row[0].log else values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 1.0)
    room = 0.05 * (high - low) or 0.5
    found = (low - room, high + room)
    bottom, top = (math.exp(found[0]), math.exp(found[1])) if row[0].log else found
    asked = row[0].y_range or (None, None)
    return bottom if asked[0] is None else asked[0], top if asked[1] is None else asked[1]


def _plain(values: Any) -> list[float | None]:
    """Return numbers with five significant digits, None for gaps."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values.tolist()]
