"""Two runs side by side: what differs, since which step, and by how much."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foreshock.batch import SLICES
from foreshock.detect.difference import Difference, first_difference
from foreshock.diagnosis import Diagnosis, diagnose_run
from foreshock.rules.aggregates import AGGREGATES
from foreshock.rules.series import Floats, rows_of
from foreshock.rules.statements import segment_rows
from foreshock.run import Run, Series

TABLE_KEYS = 6
"""Columns of the segment table: the aggregates first, then what differs first."""

NO_SETTINGS = ("status", "started", "ended", "session", "source", "summary")
"""Parts of a run's identity that nobody sets."""

FROM_MONITOR = "foreshock/"
"""Keys that repeat a block's value at every step; the blocks themselves are compared instead."""

SMALLEST_TAIL = 2.0**-20
"""Nats below which a sketch reads 0, which has no logarithm."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between run A and run B.

    ``differences``: keys that part, first the one that parts first. ``alike``: keys that do not. ``not_compared``: keys
    that cannot be compared, with the reason. ``settings``: what was configured differently, ``{name: (a, b)}``.
    ``segments``: early, middle and late means of the main keys, each row with its ``run``.
    """

    diagnoses: tuple[Diagnosis, Diagnosis]
    differences: Mapping[str, Difference]
    alike: tuple[str, ...]
    not_compared: Mapping[str, str]
    settings: Mapping[str, tuple[Any, Any]]
    segments: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain values, ready for JSON."""
        return {
            "runs": [diagnosis.to_dict() for diagnosis in self.diagnoses],
            "differences": [{"key": key, **asdict(found)} for key, found in self.differences.items()],
            "alike": list(self.alike),
            "not_compared": dict(self.not_compared),
            "settings": [{"name": name, "a": a, "b": b} for name, (a, b) in self.settings.items()],
            "segments": [dict(row) for row in self.segments],
        }


def compare(a: Run, b: Run) -> Comparison:
    """Compare every series that two runs share, and the tail of the log-ratios per slice where both have blocks.

    Tails are compared by their logarithm.
    """
    diagnoses = diagnose_run(a), diagnose_run(b)
    settings = _different_settings(a, b)
    a, b = _with_tails(a), _with_tails(b)
    shared = [key for key in a.series if key in b.series]
    found = {key: _difference(a, b, key) for key in shared}
    parted = sorted(
        (key for key in shared if found[key].since_step is not None),
        key=lambda key: (found[key].since_step, -abs(found[key].shift)),
    )
    columns = list(dict.fromkeys([*(key for key in AGGREGATES.values() if key in shared), *parted]))[:TABLE_KEYS]
    missing = {key: "only in B" for key in b.series if key not in a.series}
    missing |= {key: "only in A" for key in a.series if key not in b.series}
    return Comparison(
        diagnoses=diagnoses,
        differences={key: found[key] for key in parted},
        alike=tuple(key for key in shared if found[key].since_step is None and not found[key].reason),
        not_compared=missing | {key: found[key].reason for key in shared if found[key].reason},
        settings=settings,
        segments=tuple(
            {"run": name, **row} for name, run in (("A", a), ("B", b)) for row in segment_rows(run, columns)
        ),
    )


def _difference(a: Run, b: Run, key: str) -> Difference:
    steps_a, values_a = rows_of(a, key)
    steps_b, values_b = rows_of(b, key)
    if key.startswith(FROM_MONITOR):  # tails vary by factors: single blocks would hide a difference of the others
        values_a, values_b = (np.log(np.maximum(values, SMALLEST_TAIL)) for values in (values_a, values_b))
    elif _counts_up(values_a) and _counts_up(values_b):
        return Difference(None, None, math.nan, "only counts up")
    return first_difference(steps_a, values_a, steps_b, values_b)


def _counts_up(values: Floats) -> bool:
    return len(values) > 1 and bool((values[1:] > values[:-1]).all())


def _with_tails(run: Run) -> Run:
    """Return the run with p99 and p95 of |log-ratio| per slice as series of one value a block."""
    series = {key: values for key, values in run.series.items() if not key.startswith(FROM_MONITOR)}
    if run.pair is not None:
        for name in SLICES:
            for q in (0.95, 0.99):
                tail = _tail(run, run.pair, q, name)
                series[tail.key] = tail
    return Run(run.path, run.identity, {key: values for key, values in series.items() if len(values)})


def _tail(run: Run, pair: str, q: float, name: str) -> Series:
    tail = Series(f"{FROM_MONITOR}{pair.replace('/', '_')}/abs_p{round(100 * q)}/{name}")
    for block in run.blocks:
        if pair in block.sketches:
            value = block.sketches[pair].quantile(q, name)
            if value.ok:
                tail.append(block.last_step, value.value)
    return tail


def _different_settings(a: Run, b: Run) -> dict[str, tuple[Any, Any]]:
    before, after = dict(_flat(a.identity)), dict(_flat(b.identity))
    return {
        name: (value, after[name])
        for name, value in before.items()
        if name in after and value != after[name] and name.partition(".")[0] not in NO_SETTINGS
    }


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
