"""Small pictures for a terminal: the course of what a finding speaks of, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foreshock.batch import SLICES
from foreshock.rules.finding import Finding
from foreshock.run import Run

BARS = "▁▂▃▄▅▆▇█"
WIDTH = 32
MOST_LINES = 3

Floats = npt.NDArray[np.float64]


class Sparkline(NamedTuple):
    """One line: what it shows, the picture, and the mean of its first and its last bar."""

    label: str
    picture: str
    first: float
    last: float


def sparklines(finding: Finding, run: Run) -> list[Sparkline]:
    """Return the course of the tail per slice for a finding about a slice, else of the series in its evidence."""
    if finding.slice and run.pair is not None:
        tails = {f"p99 {name}": _tail(run, run.pair, name) for name in SLICES}
        return _lines({label: values for label, values in tails.items() if np.isfinite(values).any()}, shared=True)
    keys = dict.fromkeys(key for row in finding.evidence for key in row if key in run.series)
    return _lines({key: run.series[key].even[1] for key in list(keys)[:MOST_LINES]}, shared=False)


def draw(values: Floats, low: float, high: float) -> str:
    """Return a bar a value, (bars,); a value that is not finite leaves a gap."""
    span = high - low
    heights = np.zeros(len(values)) if span <= 0 else (values - low) / span * (len(BARS) - 1)
    return "".join(BARS[round(float(height))] if np.isfinite(height) else " " for height in heights)


def _lines(courses: dict[str, Floats], *, shared: bool) -> list[Sparkline]:
    binned = {label: _binned(values) for label, values in courses.items()}
    binned = {label: values for label, values in binned.items() if np.isfinite(values).sum() > 1}
    everything = np.concatenate(list(binned.values())) if binned else np.empty(0)
    lines = []
    for label, values in binned.items():
        low, high = _limits(everything if shared else values)
        finite = values[np.isfinite(values)]
        lines.append(Sparkline(label, draw(values, low, high), float(finite[0]), float(finite[-1])))
    return lines


def _limits(values: Floats) -> tuple[float, float]:
    """Return the values of the lowest and the highest bar: from 0 on, unless values of both signs leave no choice."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    return (0.0, high) if low >= 0 else (low, 0.0) if high <= 0 else (low, high)


def _binned(values: Floats) -> Floats:
    """Return the mean of the finite values in at most :data:`WIDTH` bins; NaN for a bin without any."""
    values = np.where(np.isfinite(values), values, np.nan)
    bins: Sequence[Floats] = np.array_split(values, min(WIDTH, len(values))) if len(values) else []
    return np.array([part[~np.isnan(part)].mean() if (~np.isnan(part)).any() else np.nan for part in bins])


def _tail(run: Run, pair: str, name: str) -> Floats:
    """Return p99 of |log-ratio|, in nats, of the blocks that have the pair, of a long run of eight for each bar."""
    count = len(run.blocks)
    places = np.unique(np.linspace(0, count - 1, min(count, 8 * WIDTH)).astype(int)).tolist()
    blocks = [run.blocks[place] for place in places]
    return np.array([block.sketches[pair].quantile(0.99, name).value for block in blocks if pair in block.sketches])
