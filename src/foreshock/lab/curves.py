"""The three figures as plain numbers: what each panel shows, with the seeds as a band. Drawn elsewhere, judged nowhere.

Figure 1: the tail emerges. Figure 2: it stretches at early, middle and late steps. Figure 3: effective sample size and
α beside the aggregates.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foreshock.batch import POLICY_REF, POST_TOOL, SLICES, TEXT_ONLY
from foreshock.lab.environment import REDIRECT_SHARE
from foreshock.lab.results import PARTS, RunResult, by_arm, ess_of
from foreshock.rules.aggregates import AGGREGATES
from foreshock.run import Block, merge_pair
from foreshock.views.figures import COLOURS, NEUTRAL, OPACITY

Floats = npt.NDArray[np.float64]
Range = tuple[float, float | None]

ARMS_PER_FIGURE = 3
FROM_ZERO: Range = (0.0, None)
AGGREGATE_RANGES = {"reward": (0.0, 1.0), "entropy": FROM_ZERO, "mean KL": FROM_ZERO}
"""Axes that begin at zero, so that a change is drawn as large as it is; the loss has no such axis."""

NAMES = {TEXT_ONLY: "text-only", POST_TOOL: "post-tool"}
ABSCISSAE = np.geomspace(0.05, 12.0, 160)
"""|r| in nats at which Figure 2 draws the share of tokens above."""

BELOW_ALL = 1e-7
"""A share of zero on a logarithmic axis, far below its range."""


@dataclass(frozen=True)
class Band:
    """One line with the range of the seeds around it; all arrays ``(n,)``. ``opacity`` is that of the line."""

    name: str
    x: Floats
    middle: Floats
    low: Floats
    high: Floats
    colour: str
    dashed: bool = False
    opacity: float = 1.0


@dataclass(frozen=True)
class Panel:
    """One pair of axes. ``burn_in``: its last step, None where x is not a step; ``alarms``: a step for each alarm."""

    y_title: str
    bands: tuple[Band, ...]
    burn_in: int | None = None
    alarms: tuple[int, ...] = ()
    log: bool = False
    y_range: Range | None = None


@dataclass(frozen=True)
class Figure:
    """A grid of panels, one column an arm; all panels of a row share their axes. ``heights``: of the rows, relative."""

    name: str
    title: str
    caption: str
    x_title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Panel, ...], ...]
    heights: tuple[float, ...]
    x_log: bool = False


def figures(results: Sequence[RunResult]) -> list[Figure]:
    """Return the three figures, each several times where there are more arms than a figure holds."""
    arms = list(by_arm(results).items())
    chunks = [dict(arms[start : start + ARMS_PER_FIGURE]) for start in range(0, len(arms), ARMS_PER_FIGURE)]
    drawn = []
    for make in (_tail_figure, _share_figure, _aggregate_figure):
        for number, chunk in enumerate(chunks):
            drawn.append(make(chunk, f"-{number + 1}" if number else ""))
    return drawn


def _row(arms: dict[str, list[RunResult]], make: Callable[[Sequence[RunResult]], Panel]) -> tuple[Panel, ...]:
    return tuple(make(results) for results in arms.values())


def _tail_figure(arms: dict[str, list[RunResult]], suffix: str) -> Figure:
    curriculum = _series_panel("share of\nredirects", REDIRECT_SHARE, FROM_ZERO)
    return Figure(
        f"figure-1{suffix}",
        "Figure 1. Tail emergence",
        "p95 (dashed) and p99 (solid) of |log π_policy − log π_ref| per block: median and range of the seeds. "
        "Grey: burn-in. Red marks: where Foreshock raised its alarm, one a seed. Below: the share of tool keys that "
        "redirect. It rises on a schedule of its own (an exogenous curriculum), whatever the policy does.",
        "optimizer step",
        tuple(arms),
        (_row(arms, _tail_panel), _row(arms, curriculum)),
        (4.0, 1.0),
    )


def _tail_panel(results: Sequence[RunResult]) -> Panel:
    bands = []
    for name in SLICES:
        for label, q in (("p95", 0.95), ("p99", 0.99)):
            read = _quantile_of(q, name)
            bands.append(_block_band(f"{NAMES[name]} {label}", results, read, COLOURS[name], dashed=q < 0.99))
    alarms = tuple(sorted(result.alarm for result in results if result.alarm is not None))
    return Panel("|r| (nats)", tuple(bands), results[0].burn_in, alarms, log=True)


def _share_figure(arms: dict[str, list[RunResult]], suffix: str) -> Figure:
    rows = tuple(_row(arms, functools.partial(_share_panel, name)) for name in SLICES)
    return Figure(
        f"figure-2{suffix}",
        "Figure 2. Shift of the right tail",
        "Share of tokens whose |log π_policy − log π_ref| exceeds x, early (faint), middle and late (full): the median "
        "of the seeds and their range. p95 is where a curve crosses 5 %. A plain ECDF would hide the tail. The "
        "curriculum of Figure 1 stands behind the shift.",
        "|r| (nats)",
        tuple(arms),
        rows,
        (2.6, 2.6),
        x_log=True,
    )


def _share_panel(name: str, results: Sequence[RunResult]) -> Panel:
    bands = []
    for part in PARTS:
        curves = [_share_above(result.parts[part], name) for result in results if result.parts]
        if curves:
            bands.append(_band(part, ABSCISSAE, curves, COLOURS[name], opacity=OPACITY[part]))
    return Panel(f"{NAMES[name]}: share above x", tuple(bands), log=True, y_range=(5e-4, 1.0))


def _share_above(blocks: Sequence[Block], name: str) -> Floats:
    merged = merge_pair(blocks, POLICY_REF)
    assert merged is not None
    found = merged.ecdf(name)
    below = np.concatenate([[0.0], found.shares])[np.searchsorted(found.values, ABSCISSAE, side="right")]
    return np.asarray(np.maximum(1 - below, BELOW_ALL))


def _aggregate_figure(arms: dict[str, list[RunResult]], suffix: str) -> Figure:
    aggregates = [_series_panel(name, key, AGGREGATE_RANGES.get(name)) for name, key in AGGREGATES.items()]
    rows = tuple(_row(arms, make) for make in (_ess_panel, _alpha_panel, *aggregates))
    return Figure(
        f"figure-3{suffix}",
        "Figure 3. Effective sample size, α and the aggregates",
        "ESS/n per block, log-ratios capped at 3 nats: a supporting signal, it depends on the block and the cap. α is "
        "the share of response tokens after tool results. Aggregates are means over the steps of a block. Medians of "
        "the seeds and their range; grey: burn-in; the curriculum of Figure 1 acts on all of them.",
        "optimizer step",
        tuple(arms),
        rows,
        (1.7, *(1.0,) * (len(rows) - 1)),
    )


def _ess_panel(results: Sequence[RunResult]) -> Panel:
    bands = tuple(_block_band(NAMES[name], results, _ess_of(name), COLOURS[name]) for name in SLICES)
    return Panel("ESS/n", bands, results[0].burn_in, y_range=(0.0, 1.05))


def _alpha_panel(results: Sequence[RunResult]) -> Panel:
    band = _block_band("α", results, _alpha_of, COLOURS[POST_TOOL])
    return Panel("α", (band,), results[0].burn_in, y_range=FROM_ZERO)


def _series_panel(title: str, key: str, y_range: Range | None) -> Callable[[Sequence[RunResult]], Panel]:
    """Return what draws a logged series as means over the steps of each block."""

    def panel(results: Sequence[RunResult]) -> Panel:
        curves = [np.array([_mean_in(result, key, block) for block in result.run.blocks]) for result in results]
        return Panel(title, (_band(title, _middles(results), curves, NEUTRAL),), results[0].burn_in, y_range=y_range)

    return panel


def _block_band(
    name: str, results: Sequence[RunResult], read: Callable[[Block], float], colour: str, *, dashed: bool = False
) -> Band:
    curves = [np.array([read(block) for block in result.run.blocks]) for result in results]
    return _band(name, _middles(results), curves, colour, dashed=dashed)


def _mean_in(result: RunResult, key: str, block: Block) -> float:
    series = result.run.series.get(key)
    if series is None:
        return np.nan
    values = series.values[(series.steps >= block.first_step) & (series.steps <= block.last_step)]
    return float(values.mean()) if values.size else np.nan


def _middles(results: Sequence[RunResult]) -> Floats:
    return np.array([block.middle_step for block in max((result.run.blocks for result in results), key=len)])


def _band(
    name: str, x: Floats, curves: Sequence[Floats], colour: str, *, dashed: bool = False, opacity: float = 1.0
) -> Band:
    table = np.full((len(curves), len(x)), np.nan)
    for row, curve in zip(table, curves, strict=True):
        row[: len(curve)] = curve
    with warnings.catch_warnings():  # where no seed has a value the line has a gap
        warnings.simplefilter("ignore", RuntimeWarning)
        low, middle, high = np.nanmin(table, 0), np.nanmedian(table, 0), np.nanmax(table, 0)
    return Band(name, x, middle, low, high, colour, dashed, opacity)


def _quantile_of(q: float, name: str) -> Callable[[Block], float]:
    return lambda block: block.sketches[POLICY_REF].quantile(q, name).value


def _ess_of(name: str) -> Callable[[Block], float]:
    return lambda block: ess_of(block, name)


def _alpha_of(block: Block) -> float:
    return block.sketches[POLICY_REF].alpha().value
