"""Figures of the report: numbers that sketches and series hold, arranged as plotly figures. Nothing is judged here.

Colours are readable on white and on near-black and apart for colour-blind eyes; text and grid colours are set where the
figure is shown. A figure that cannot be drawn is a plain sentence instead.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from foreshock.batch import POST_TOOL, SLICES, TEXT_ONLY
from foreshock.run import Block, Run, merge_pair
from foreshock.stats.diagnostic import Diagnostic
from foreshock.stats.ecdf import Ecdf
from foreshock.views.tables import ESS_CAP, parts_of

COLOURS = {TEXT_ONLY: "#67829c", POST_TOOL: "#d9600f"}
USER_COLOURS = ("#009e73", "#b07aa1", "#c79a00", "#3a9bdc", "#8c6d5a", "#7f7f7f", "#5e8f3a", "#c0627a")
NEUTRAL = "#7d8791"
OPACITY = {"early": 0.42, "middle": 0.7, "late": 1.0}
MOST_USER_SLICES = len(USER_COLOURS)
MOST_MARKERS = 60
"""Points of a line above which single points are no longer marked."""

Range = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """A figure with its title and how to read it, or the plain sentence that stands in its place.

    ``notes``: what could not be drawn in it, one sentence each.
    """

    title: str
    caption: str
    figure: Any = None
    missing: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Steps:
    """What all figures over optimizer steps share: the range, the end of the warm-up (0: none), and marked steps."""

    first: int
    last: int
    warm_up: int = 0
    marks: Mapping[int, str] | None = None


def steps_of(run: Run, warm_up: int = 0, marks: Mapping[int, str] | None = None) -> Steps:
    """Return the steps that the run covers, for the shared horizontal axis."""
    firsts = [int(series.steps[0]) for series in run.series.values() if len(series)]
    firsts += [block.first_step for block in run.blocks[:1]]
    return Steps(min(firsts, default=0), run.last_step, warm_up, marks)


def tail_panel(blocks: Sequence[Block], pair: str, steps: Steps) -> Panel:
    """Draw p95 and p99 of |log-ratio| per block for the two built-in slices."""
    figure = empty_figure(340, _y_axis("|log-ratio| (nats)", rangemode="tozero"))
    notes = []
    for name in SLICES:
        for label, q, style in (("p95", 0.95, {"width": 1.4, "dash": "dot"}), ("p99", 0.99, {"width": 2.4})):
            values = [_of(block, pair, name, lambda sketch, s=name, q=q: sketch.quantile(q, s)) for block in blocks]
            _add_blocks(figure, blocks, values, f"{name} {label}", COLOURS[name], style)
        notes += _gaps(blocks, pair, name)
    over_steps(figure, steps, labels=True)
    return Panel(
        f"Tail of |{_pair_words(pair)}| by slice",
        "Each point is one block; the shaded warm-up is not judged. A tail that stretches only in the post-tool slice, "
        "while text-only stays flat, means that the policy has left what its reference supports after tool results; "
        "both rising together points to ordinary drift.",
        figure,
        notes=tuple(notes),
    )


def user_tail_panel(blocks: Sequence[Block], pair: str, steps: Steps, slices: Sequence[str]) -> Panel:
    """Draw p99 of |log-ratio| per block for the user's slices, those with the most tokens."""
    merged = merge_pair(blocks, pair)
    assert merged is not None
    largest = sorted(slices, key=lambda name: -merged.n(name))[:MOST_USER_SLICES]
    figure = empty_figure(320, _y_axis("p99 of |log-ratio| (nats)", rangemode="tozero"))
    for name, colour in zip(largest, USER_COLOURS, strict=False):
        values = [_of(block, pair, name, lambda sketch, s=name: sketch.quantile(0.99, s)) for block in blocks]
        _add_blocks(figure, blocks, values, name, colour, {"width": 1.8})
    over_steps(figure, steps)
    left_out = len(slices) - len(largest)
    return Panel(
        "Tail in your own slices",
        "p99 of |log-ratio| per block in the slices that slice_fn names."
        + (
            f" The {len(largest)} with the most tokens are drawn; {left_out} more are in the table." if left_out else ""
        ),
        figure,
    )


def tail_share_panels(blocks: Sequence[Block], pair: str, slices: Sequence[str] = SLICES) -> list[Panel]:
    """Draw 1 − ECDF of |log-ratio| on log–log axes for early, middle and late blocks: one panel a slice."""
    parts = {part: (some, merge_pair(some, pair)) for part, some in parts_of(blocks).items()}
    curves = {
        name: {
            part: (some, _tail_curve(sketch.ecdf(name)))
            for part, (some, sketch) in parts.items()
            if sketch is not None and sketch.n(name)
        }
        for name in slices
    }
    axes = _tail_axes([curve for drawn in curves.values() for _, curve in drawn.values()])
    whole = merge_pair(blocks, pair)
    assert whole is not None
    return [_tail_share_panel(name, drawn, axes, whole.ecdf(name).reason) for name, drawn in curves.items()]


def ess_panel(blocks: Sequence[Block], pair: str, steps: Steps) -> Panel:
    """Draw the effective sample size over n, log-ratios capped at 3 nats, per block for the two built-in slices."""
    figure = empty_figure(210, _y_axis("ESS/n", range=(0, 1.04)))
    notes = []
    for name in SLICES:
        values = [_of(block, pair, name, lambda sketch, s=name: sketch.ess_share(s, cap=ESS_CAP)) for block in blocks]
        _add_blocks(figure, blocks, values, name, COLOURS[name], {"width": 2})
        notes += _gaps(blocks, pair, name)
    over_steps(figure, steps)
    return Panel(
        "Effective sample size",
        "Share of tokens that still count when each is weighted by its importance ratio (log-ratio capped at 3 nats). "
        "A supporting signal only: it falls with the tail and never raises a finding by itself.",
        figure,
        notes=tuple(notes),
    )


def alpha_panel(blocks: Sequence[Block], pair: str | None, steps: Steps) -> Panel:
    """Draw α, the share of response tokens in ``post_tool``, per block."""
    title = "α: share of response tokens after tool results"
    caption = (
        "How much of the training signal comes from states that a tool result led into. When α and the post-tool tail "
        "rise together, more and more of each update rests on tokens that the reference hardly supports."
    )
    values = [_alpha(block, pair) for block in blocks]
    if all(math.isnan(value) for value in values):
        return Panel(title, caption, missing="No response tokens were counted in this run, so α is unknown.")
    figure = empty_figure(190, _y_axis("share of tokens", range=(0, 1.04), tickformat=".0%"))
    _add_blocks(figure, blocks, values, POST_TOOL, COLOURS[POST_TOOL], {"width": 2}, fill=True)
    figure.update_layout(showlegend=False)
    over_steps(figure, steps)
    notes = (
        () if any(value > 0 for value in values) else ("No response token of this run follows a tool result: α is 0.",)
    )
    return Panel(title, caption, figure, notes=notes)


def _tail_share_panel(
    name: str, drawn: Mapping[str, tuple[Sequence[Block], tuple[list[float], list[float]]]], axes: tuple[Range, Range],
    reason: str,
) -> Panel:  # fmt: skip
    title = f"How far the tail reaches: {name}"
    caption = (
        "Share of tokens whose |log-ratio| exceeds x, both axes logarithmic; p99 is where a curve crosses 1 %. While "
        "nothing changes the curves lie on each other; a late curve further to the right is a tail that stretches."
    )
    if not drawn:
        return Panel(title, caption, missing=f"There is no tail to draw: {reason}.")
    x_range, y_range = axes
    figure = empty_figure(330, _log_axis("share of tokens above x", y_range, percent=True))
    for part, (blocks, (values, shares)) in drawn.items():
        label = f"{part} {blocks[0].first_step}–{blocks[-1].last_step}"
        figure.add_trace(
            go.Scatter(
                x=values, y=shares, name=label, mode="lines", opacity=OPACITY.get(part, 1.0),
                line={"shape": "hv", "width": 2.2, "color": COLOURS.get(name, NEUTRAL)},
                hovertemplate=f"%{{y:.2%}} above %{{x:.3g}} nats<extra>{html.escape(part)}</extra>",
            )
        )  # fmt: skip
    figure.update_layout(xaxis=_log_axis("|log-ratio| (nats)", x_range), hovermode="closest", margin={"l": 76})
    notes = () if len(drawn) > 1 else ("Fewer than three blocks: one curve for the whole run.",)
    return Panel(title, caption, figure, notes=notes)


def _tail_curve(found: Ecdf) -> tuple[list[float], list[float]]:
    """Return |log-ratio| and the share of tokens above it, without what a logarithmic axis cannot hold."""
    above = 1 - found.shares
    if len(above) > 1:
        above[-1] = above[-2]  # draws the last step out to the largest value
    else:
        above[-1] = 1.0
    keep = found.values > 0
    return rounded(found.values[keep].tolist()), rounded(above[keep].tolist())


def _tail_axes(curves: Sequence[tuple[list[float], list[float]]]) -> tuple[Range, Range]:
    """Return exponents of ten for the ranges of both axes that hold the upper half of every curve."""
    starts = [next((x for x, y in zip(*curve, strict=True) if y <= 0.5), None) for curve in curves]
    values = [x for curve in curves for x in curve[0]]
    shares = [y for curve in curves for y in curve[1] if y > 0]
    if not values:
        return (-3.0, 1.0), (-4.0, 0.1)
    low = min([start for start in starts if start is not None], default=min(values))
    low = max(min(low, max(values) / 10), 1e-6)
    return (math.log10(low), math.log10(max(values)) + 0.08), (math.log10(min(shares)) - 0.15, 0.08)


def _of(block: Block, pair: str, name: str, read: Any) -> float:
    """Read one statistic of a block; NaN where the block has no such pair or slice."""
    sketch = block.sketches.get(pair)
    if sketch is None or name not in sketch.slices:
        return math.nan
    diagnostic: Diagnostic = read(sketch)
    return diagnostic.value


def _alpha(block: Block, pair: str | None) -> float:
    """Return α of a block: from the counters of the watch, which see every row, else from the sketch."""
    tokens = block.total("response_tokens")
    if tokens:
        return block.total("post_tool_tokens") / tokens
    return block.sketches[pair].alpha().value if pair is not None and pair in block.sketches else math.nan


def _gaps(blocks: Sequence[Block], pair: str, name: str) -> list[str]:
    """Say in how many blocks a slice holds nothing that could be drawn."""
    empty = sum(pair not in block.sketches or not block.sketches[pair].n(name) for block in blocks)
    if not empty:
        return []
    if empty == len(blocks):
        return [f"The slice {name} holds no finite log-ratio in this run, so it has no line."]
    return [f"The slice {name} holds no finite log-ratio in {empty} of {len(blocks)} blocks: a gap in its line."]


def _add_blocks(
    figure: Any, blocks: Sequence[Block], values: Sequence[float], name: str, colour: str, line: dict[str, Any],
    *, fill: bool = False,
) -> None:  # fmt: skip
    finite = [value if math.isfinite(value) else None for value in values]
    if all(value is None for value in finite):
        return
    figure.add_trace(
        go.Scatter(
            x=[block.middle_step for block in blocks],
            y=rounded(finite),
            customdata=[f"{block.first_step}–{block.last_step}" for block in blocks],
            name=html.escape(name),
            mode="lines+markers" if len(blocks) <= MOST_MARKERS else "lines",
            line={"color": colour, **line},
            marker={"size": 5 if len(blocks) > 1 else 9, "color": colour},
            fill="tozeroy" if fill else None,
            fillcolor=_faint(colour) if fill else None,
            hovertemplate=f"%{{y:.4g}}  (steps %{{customdata}})<extra>{html.escape(name)}</extra>",
        )
    )


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.18)"


def over_steps(figure: Any, steps: Steps, *, labels: bool = False) -> None:
    """Give a figure the shared step axis, the shaded warm-up and a line at every marked step."""
    space = max((steps.last - steps.first) * 0.02, 0.5)
    low, high = steps.first - space, steps.last + space
    figure.update_xaxes(title={"text": "optimizer step"}, range=[low, high], zeroline=False)
    if steps.warm_up > low:
        end = min(steps.warm_up + 0.5, high)
        figure.add_shape(
            type="rect", x0=low, x1=end, y0=0, y1=1, yref="paper", layer="below", line={"width": 0},
            fillcolor="rgba(125,135,145,0.13)",
        )  # fmt: skip
        if labels:
            figure.add_annotation(x=(low + end) / 2, y=1, yref="paper", yanchor="top", showarrow=False, text="warm-up")
    for step, label in (steps.marks or {}).items():
        figure.add_shape(
            type="line",
            x0=step,
            x1=step,
            y0=0,
            y1=1,
            yref="paper",
            line={"width": 1.4, "dash": "dash", "color": NEUTRAL},
        )
        if labels:
            right = step > (low + high) / 2
            figure.add_annotation(
                x=step, y=1, yref="paper", yanchor="top", showarrow=False, xanchor="right" if right else "left",
                text=html.escape(label), align="right" if right else "left", xshift=-4 if right else 4,
            )  # fmt: skip


def empty_figure(height: int, y_axis: dict[str, Any]) -> Any:
    """Return a figure without anything in it, in the style of the report; ``height`` in pixels."""
    return go.Figure(
        layout={
            "height": height,
            "margin": {"l": 62, "r": 14, "t": 8, "b": 44},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"size": 12.5},
            "hovermode": "x unified",
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"},
            "yaxis": y_axis,
        }
    )


def _y_axis(title: str, **options: Any) -> dict[str, Any]:
    return {"title": {"text": title}, "nticks": 6, "zeroline": False, **options}


def _log_axis(title: str, exponents: Range, *, percent: bool = False) -> dict[str, Any]:
    ticks = [10.0**tick for tick in range(math.floor(exponents[0]), math.floor(exponents[1]) + 1)]
    if exponents[1] - exponents[0] < 3.5 and not percent:
        ticks = [factor * tick for tick in ticks for factor in (1, 3)]
    return {
        "title": {"text": title},
        "type": "log",
        "range": list(exponents),
        "tickvals": ticks,
        "ticktext": [f"{100 * tick:.6g} %" if percent else f"{tick:.6g}" for tick in ticks],
        "zeroline": False,
    }


def _pair_words(pair: str) -> str:
    numerator, denominator = pair.split("/")
    return f"log π_{numerator} − log π_{denominator}"


def rounded(values: Sequence[float | None]) -> list[Any]:
    """Keep five significant digits: more would only make the file larger."""
    return [None if value is None else float(f"{value:.5g}") for value in values]
