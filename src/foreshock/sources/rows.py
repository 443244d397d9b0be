"""Rows of numbers on their way from a log to a run, in bounded memory.

A row joins those with the same keys, in the same order, in one table of plain columns. Once all rows are in, they are
settled: each key becomes a series.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foreshock.run import Run
from foreshock.sources.keys import is_step
from foreshock.sources.settle import settle, without_summaries
from foreshock.sources.tables import Table

MOST_VALUES = 22_000_000
"""Values held, 8 bytes each. Beyond it every second row of the largest tables is left out and counted."""

MOST_KEYS = 10_000
"""Keys held. A log with more puts data into its keys; values of further keys are counted, not kept."""

MOST_TABLES = 2_000
"""Sets of keys held as such. Rows of further sets are split into one row a key, at a cost in memory only."""

NO_NUMBER = "values that are not numbers"
EMPTY = "empty values (null)"
THINNED = "rows left out to fit in memory"

_PENDING = 4_096
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[,)]?.*", re.DOTALL)
_FRACTION = re.compile(r"[\s'\"]*(\d+)\s*/\s*\d+[\s'\"]*")
_WORDS = {"none": math.nan, "null": math.nan, "true": 1.0, "false": 0.0}


def number(value: Any) -> float | None:
    """Return a logged value as a number, NaN and infinities in any notation; None when it is no number.

    Text may wrap the number, as in ``np.float64(0.5)`` or ``tensor(0.5, device='cuda:0')``. None itself is NaN.
    """
    if value is None:
        return math.nan
    if isinstance(value, (int, float)):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return _text_number(value) if isinstance(value, str) and len(value) <= 100 else None


def _text_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        stripped = value.strip().strip("'\"")
    wrapped = _WRAPPED.fullmatch(stripped)
    if wrapped:
        stripped = wrapped.group(1).strip()
    try:
        return float(stripped)
    except ValueError:
        return _WORDS.get(stripped.lower())


class Rows:
    """Collects rows in the order of the log and makes a run of them."""

    def __init__(self, null_is_nan: bool = False) -> None:
        """``null_is_nan``: in this format an empty value is a NaN, not a value that was not logged."""
        self.skipped: Counter[str] = Counter()
        self.count = 0
        self.nulls: Counter[str] = Counter()
        self.not_numbers: Counter[str] = Counter()
        self._null_is_nan = null_is_nan
        self._tables: dict[tuple[str, ...], Table] = {}
        self._keys: set[str] = set()
        self._values = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one row; nested mappings are flattened with ``/``, and what is no number is counted."""
        table = self._tables.get(tuple(row))
        if table is not None:
            if table.seen % table.stride:
                table.seen += 1
                self.count += 1
                return
            length = len(table.pending)
            try:
                table.pending.extend(row.values())
            except (TypeError, OverflowError):
                del table.pending[length:]
            else:
                table.rows.append(self.count)
                self.count += 1
                table.seen += 1
                if length > _PENDING:
                    self._flush(table)
                return
        self._add_slowly(row)

    def add_points(self, points: Iterable[tuple[Any, Any, Any]]) -> None:
        """Add values ``(step, key, value)``: those of a step that follow each other are one row with a ``_step``."""
        row: dict[str, Any] = {}
        for step, key, value in points:
            if key in row or row.get("_step") != step:
                if row:
                    self.add(row)
                row = {"_step": step}
            row[str(key)] = value
        if row:
            self.add(row)

    def _add_slowly(self, row: Mapping[str, Any]) -> None:
        numbers: dict[str, float] = {}
        for key, value in _flat(row):
            self._take(key, value, numbers)
        if not numbers:
            self.skipped["rows without a number"] += 1
            return
        keys = tuple(numbers)
        if keys not in self._tables and len(self._tables) >= MOST_TABLES:
            steps = {key: value for key, value in numbers.items() if is_step(key)}
            parts = [{**steps, key: value} for key, value in numbers.items() if key not in steps] or [steps]
        else:
            parts = [numbers]
        for part in parts:
            self._append(part)
        self.count += 1

    def _take(self, key: str, value: Any, numbers: dict[str, float]) -> None:
        if key not in self._keys:
            if len(self._keys) >= MOST_KEYS:
                self.skipped[f"values of keys beyond the first {MOST_KEYS:,}"] += 1
                return
            self._keys.add(key)
        if (value is None or value == "") and not self._null_is_nan:
            self.nulls[key] += 1
            return
        found = number(value)
        if found is None and is_step(key) and isinstance(value, str) and (part := _FRACTION.fullmatch(value)):
            found = float(part.group(1))  # "5/3766": step of all steps
        if found is None:
            self.not_numbers[key] += 1
        else:
            numbers[key] = found

    def _append(self, numbers: dict[str, float]) -> None:
        keys = tuple(numbers)
        table = self._tables.get(keys)
        if table is None:
            table = self._tables[keys] = Table(keys)
        if table.seen % table.stride == 0:
            table.pending.extend(numbers.values())
            table.rows.append(self.count)
        table.seen += 1
        if len(table.pending) > _PENDING:
            self._flush(table)

    @property
    def values(self) -> int:
        """How many numbers are held."""
        return sum(len(table.rows) * len(table.keys) for table in self._tables.values())

    def _flush(self, table: Table) -> None:
        self._values += table.flush()
        if self._values > MOST_VALUES:
            for other in self._tables.values():
                self._values += other.flush()
            sizes = {id(other): len(other.rows) * len(other.keys) for other in self._tables.values()}
            for other in self._tables.values():
                if sizes[id(other)] * len(sizes) >= self._values:
                    self._values -= other.thin()

    def run(self, path: Path, format_name: str) -> Run:
        """Make the run; the rows are used up.

        ``run.identity["source"]`` then holds the format, the path, the step key, the number of rows and
        ``{original key: key}``, and ``run.identity["summary"]`` what closing rows said.
        """
        tables = [table for table in self._tables.values() if table.seen]
        self._tables = {}
        for table in tables:
            table.flush()
        tables, summary = without_summaries(tables)
        run = Run(path=path, skipped=self.skipped)
        run.skipped[THINNED] += sum(table.seen - len(table.rows) for table in tables)
        step_key, names = settle(tables, run)
        run.skipped[NO_NUMBER] += self.not_numbers.total()
        run.skipped[EMPTY] += self.nulls.total()
        run.skipped = +run.skipped
        self._explain(run, step_key)
        for key in (*self.not_numbers, *self.nulls):
            names.setdefault(key, key)
        run.identity = {
            "source": {
                "format": format_name,
                "path": str(path),
                "rows": self.count,
                "step_key": step_key,
                "keys": names,
                "not_numbers": dict(self.not_numbers),
                "nulls": dict(self.nulls),
            }
        }
        if summary:
            run.identity["summary"] = summary
        return run

    def _explain(self, run: Run, step_key: str | None) -> None:
        """Put into sentences what a reader of the run should know before trusting it."""
        if step_key is None and run.series:
            run.notices["no_step"] = "The log names no step: its rows are counted instead, from 1."
        if self.nulls:
            listed = ", ".join(f"{key} ({count})" for key, count in self.nulls.most_common(5))
            run.notices["null_values"] = (
                f"{self.nulls.total()} values are null and were taken as not logged: {listed}. Some loggers write NaN "
                "as null, so whether these were NaN cannot be told."
            )
        if run.skipped[THINNED]:
            run.notices["thinned"] = (
                f"The log holds more than {MOST_VALUES:,} values: {run.skipped[THINNED]:,} rows were left out evenly."
            )


def _flat(row: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < 20:
            yield from _flat(value, f"{name}/", depth + 1)
        else:
            yield name, value
