"""Tables of the report: early, middle and late parts of a run, and what was counted but not used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from foreshock.diagnosis import Diagnosis
from foreshock.rules.aggregates import AGGREGATES
from foreshock.run import Block, Run, Series, merge_pair, segments
from foreshock.sketch import LogRatioSketch
from foreshock.stats.diagnostic import Diagnostic
from foreshock.views.words import NO_VALUE, shown

WHOLE_RUN = "whole run"
ESS_CAP = 3.0
"""Cap of the log-ratio, in nats, under which effective sample sizes are shown."""

SLICE_COLUMNS = ("tokens", "p50 (nats)", "p95 (nats)", "p99 (nats)", "p99.9 (nats)", "Hill ξ", "ESS/n")


@dataclass(frozen=True, slots=True)
class Cell:
    """One shown value, and what is to be said against it."""

    text: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A part of the run (``early``, …) for one group, such as a slice."""

    group: str
    part: str
    steps: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under columns; ``notes`` are the distinct notes of the cells, numbered from 1 where they are shown."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Every distinct note of the table, in reading order."""
        return tuple(dict.fromkeys(cell.note for row in self.rows for cell in row.cells if cell.note))


def parts_of(blocks: Sequence[Block]) -> dict[str, Sequence[Block]]:
    """Return the early, middle and late third of the blocks; the whole run when it has fewer than three blocks."""
    return segments(blocks) or ({WHOLE_RUN: blocks} if blocks else {})


def alike(blocks: Sequence[Block], pair: str) -> list[Block]:
    """Return the blocks whose slices are those of the last one; others, from before a resume, cannot be merged."""
    having = [block for block in blocks if pair in block.sketches]
    return [block for block in having if block.sketches[pair].slices == having[-1].sketches[pair].slices]


def slice_table(blocks: Sequence[Block], pair: str, slices: Iterable[str]) -> Table:
    """Return quantiles of |log-ratio| in nats, Hill's ξ and ESS/n per slice and part of the run."""
    merged = {
        part: (f"{some[0].first_step}–{some[-1].last_step}", merge_pair(some, pair))
        for part, some in parts_of(blocks).items()
    }
    rows = [
        Row(name, part, steps, _slice_cells(sketch, name))
        for name in slices
        for part, (steps, sketch) in merged.items()
        if sketch is not None and name in sketch.slices
    ]
    return Table(SLICE_COLUMNS, tuple(rows))


def aggregate_table(run: Run, blocks: Sequence[Block]) -> Table:
    """Return the mean over the finite values of each logged aggregate, per part of the blocks or of the run."""
    keys = {name: key for name, key in AGGREGATES.items() if key in run.series}
    rows = [
        Row("", part, f"{first}–{last}", tuple(_mean_cell(run.series[key], first, last) for key in keys.values()))
        for part, (first, last) in _step_parts(run, blocks, keys.values()).items()
    ]
    units = {"entropy": " (nats)", "mean KL": " (nats)"}
    return Table(tuple(f"{name}{units.get(name, '')}" for name in keys), tuple(rows))


def skipped_counts(run: Run, diagnosis: Diagnosis) -> dict[str, int]:
    """Return everything that was read or seen and enters no statistic, by reason; zero counts are left out."""
    counts = Counter(diagnosis.skipped)
    for block in run.blocks:
        for pair, sketch in block.sketches.items():
            for name in sketch.slices:
                for kind, count in sketch.tally(name).items():
                    counts[f"{_KINDS[kind]} log-ratios of {pair} in {name}"] += count
            counts[f"tokens of {pair} outside every slice"] += sketch.outside
            if f"workers/{pair}" in block.counters:
                counts[f"times that a worker had no token of {pair} in a block"] += block.workers - int(
                    block.total(f"workers/{pair}")
                )
        counts["errors inside the monitor"] += int(block.total("errors"))
    for key, series in run.series.items():
        counts[f"logged values of {key} that are NaN or infinite"] = series.not_finite[0]
    return {reason: count for reason, count in counts.items() if count}


_KINDS = {"nan": "NaN", "pos_inf": "+∞", "neg_inf": "−∞"}


def _slice_cells(sketch: LogRatioSketch, name: str) -> tuple[Cell, ...]:
    quantiles = [sketch.quantile(q, name) for q in (0.5, 0.95, 0.99, 0.999)]
    others = (sketch.hill(name), sketch.ess_share(name, cap=ESS_CAP))
    return (Cell(f"{sketch.n(name):,}"), *map(_cell, (*quantiles, *others)))


def _cell(diagnostic: Diagnostic) -> Cell:
    return Cell(NO_VALUE if math.isnan(diagnostic.value) else shown(diagnostic.value), diagnostic.reason)


def _mean_cell(series: Series, first: int, last: int) -> Cell:
    inside = (series.steps >= first) & (series.steps <= last)
    values = series.values[inside]
    finite = values[np.isfinite(values)]
    if not values.size:
        return Cell(NO_VALUE, f"{series.key} was not logged in steps {first}–{last}")
    if not finite.size:
        return Cell(NO_VALUE, f"{series.key} was never finite in steps {first}–{last}")
    left_out = values.size - finite.size
    note = f"mean of {series.key} in steps {first}–{last} without {left_out} values that are NaN or infinite"
    return Cell(shown(float(finite.mean())), note if left_out else "")


def _step_parts(run: Run, blocks: Sequence[Block], keys: Iterable[str]) -> dict[str, tuple[int, int]]:
    """Return the parts of the blocks as step ranges, or thirds of the logged steps when there are no blocks."""
    parts = {part: (some[0].first_step, some[-1].last_step) for part, some in parts_of(blocks).items()}
    steps = [
        int(step) for key in keys for step in (run.series[key].steps[:1].tolist() + run.series[key].steps[-1:].tolist())
    ]
    if parts or not steps:
        return parts
    first, last = min(steps), max(steps)
    third = (last - first + 1) // 3
    if third == 0:
        return {WHOLE_RUN: (first, last)}
    middle = first + (last - first + 1 - third) // 2
    return {
        "early": (first, first + third - 1),
        "middle": (middle, middle + third - 1),
        "late": (last - third + 1, last),
    }
