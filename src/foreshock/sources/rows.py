"""Rows of numbers on their way from a log to a run, in bounded memory.

A row joins those with the same keys, in the same order, in one table of plain columns. Once all rows are in, the step
key is chosen, restarts and repetitions are settled, and each key becomes a series.
"""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foreshock.run import Run, Series
from foreshock.sources.keys import STEP_KEYS, canonical_names, is_evaluation, is_measurement, is_step

MOST_VALUES = 22_000_000
"""Values held, 8 bytes each. Beyond it every second row of the largest tables is left out and counted."""

MOST_KEYS = 10_000
"""Keys held. A log with more puts data into its keys; values of further keys are counted, not kept."""

MOST_TABLES = 2_000
"""Sets of keys held as such. Rows of further sets are split into one row a key, at a cost in memory only."""

NO_NUMBER = "values that are not numbers"
EMPTY = "empty values (null)"
NO_STEP = "rows without a step"
SUPERSEDED = "rows superseded by a resume"
REPEATED = "rows of a repeated step"
THINNED = "rows left out to fit in memory"

_PENDING = 4_096
_LARGEST_STEP = 2.0**53
_WRAPPED = re.compile(r"[A-Za-z_][\w.]*\(\s*([^,()]*)[,)]?.*", re.DOTALL)
_FRACTION = re.compile(r"[\s'\"]*(\d+)\s*/\s*\d+[\s'\"]*")
_WORDS = {"none": math.nan, "null": math.nan, "true": 1.0, "false": 0.0}

Steps = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


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


def joined(points: Iterable[tuple[Any, Any, Any]]) -> Iterator[dict[str, Any]]:
    """Join values ``(step, key, value)`` to rows with a ``_step``: those of a step that follow each other are one."""
    row: dict[str, Any] = {}
    for step, key, value in points:
        if key in row or row.get("_step") != step:
            if row:
                yield row
            row = {"_step": step}
        row[str(key)] = value
    if row:
        yield row


class Table:
    """The rows of one set of keys: a column a key, and the position of each row in the log."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.keys = keys
        self.rows = array("Q")
        self.columns = [array("d") for _ in keys]
        self.pending = array("d")
        self.stride = 1
        self.seen = 0
        self.is_evaluation = is_evaluation(keys)
        self.is_summary = any(key.rpartition("/")[2] == "train_runtime" for key in keys)

    def flush(self) -> int:
        """Move the pending rows into the columns; return how many values these were."""
        count = len(self.pending)
        block = np.array(self.pending).reshape(-1, len(self.keys))
        for position, column in enumerate(self.columns):
            column.frombytes(block[:, position].tobytes())
        self.pending = array("d")
        return count

    def thin(self) -> int:
        """Leave out every second row; return how many values that freed."""
        before = len(self.rows)
        self.rows = self.rows[::2]
        self.columns = [column[::2] for column in self.columns]
        self.stride *= 2
        return (before - len(self.rows)) * len(self.keys)

    def column(self, key: str) -> Values:
        """Return the values of a key, shape ``(rows,)``, without a copy."""
        return np.frombuffer(self.columns[self.keys.index(key)], dtype=np.float64)


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
        tables, summary = _without_summaries(tables)
        run = Run(path=path, skipped=self.skipped)
        run.skipped[THINNED] += sum(table.seen - len(table.rows) for table in tables)
        step_key = _step_key(tables)
        placed = _placed(tables, step_key, run)
        names = _fill(run, placed, step_key)
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


class _Placed:
    """A table with a step for each row that counts, in rising order; ``take`` picks those rows, None means all."""

    def __init__(self, table: Table, steps: Steps, rows: npt.NDArray[np.uint64], take: Steps | None) -> None:
        self.table = table
        self.steps = steps
        self.rows = rows
        self.take = take
        self.replaced: Steps | None = None

    def values(self, key: str) -> Values:
        column = self.table.column(key)
        return column if self.take is None else column[self.take]

    def count_replaced(self, positions: Steps) -> None:
        if self.replaced is None:
            self.replaced = np.zeros(len(self.steps), dtype=np.int64)
        self.replaced[positions] += 1


def _flat(row: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterable[tuple[str, Any]]:
    for key, value in row.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value and depth < 20:
            yield from _flat(value, f"{name}/", depth + 1)
        else:
            yield name, value


def _without_summaries(tables: list[Table]) -> tuple[list[Table], dict[str, float]]:
    """Separate closing rows: those with ``train_runtime``, and a single row with ``train_loss`` beside ``loss``."""
    has_loss = any("loss" in table.keys for table in tables)
    rest, summary = [], {}
    for table in tables:
        lone = has_loss and "train_loss" in table.keys and "loss" not in table.keys and table.seen == 1
        if table.is_summary or lone:
            summary.update({key: float(table.column(key)[-1]) for key in table.keys})
        else:
            rest.append(table)
    return rest, summary


def _step_key(tables: list[Table]) -> str | None:
    """Return the best key that at least half of the rows with any step key have; None when no row has one."""
    rows: Counter[str] = Counter()
    for table in tables:
        rows.update({key: len(table.rows) for key in table.keys if is_step(key)})
    if not rows:
        return None
    total = sum(len(table.rows) for table in tables if any(map(is_step, table.keys)))
    ranked = sorted(rows, key=lambda key: STEP_KEYS.index(key.lower()))
    return next((key for key in ranked if 2 * rows[key] >= total), rows.most_common(1)[0][0])


def _placed(tables: list[Table], step_key: str | None, run: Run) -> list[_Placed]:
    """Give every row its step, and leave out rows without one, superseded rows and repetitions within a table."""
    found: list[tuple[Table, Steps, Steps | None]] = []
    if step_key is None:
        found = [(table, steps, None) for table, steps in zip(tables, _row_numbers(tables), strict=True)]
    else:
        for table in tables:
            if step_key in table.keys:
                steps, take = _whole_steps(table.column(step_key))
                run.skipped[NO_STEP] += len(table.rows) - len(steps)
                found.append((table, steps, take))
            else:
                run.skipped[NO_STEP] += len(table.rows)
    rows = [_row_ids(table, take) for table, _, take in found]
    events = _restarts([steps for _, steps, _ in found], rows)
    placed = []
    for (table, steps, take), ids in zip(found, rows, strict=True):
        current = _current(steps, ids, events)
        if current is not None:
            run.skipped[SUPERSEDED] += len(steps) - len(current)
            take = current if take is None else take[current]
            steps, ids = steps[current], ids[current]
        if len(steps) > 1 and not bool((steps[1:] > steps[:-1]).all()):
            last = _last_of_each(steps)
            run.skipped[REPEATED] += len(steps) - len(last)
            take = last if take is None else take[last]
            steps, ids = steps[last], ids[last]
        if len(steps):
            placed.append(_Placed(table, steps, ids, take))
    return placed


def _row_ids(table: Table, take: Steps | None) -> npt.NDArray[np.uint64]:
    ids = np.frombuffer(table.rows, dtype=np.uint64)
    return ids if take is None else ids[take]


def _row_numbers(tables: list[Table]) -> list[Steps]:
    """Count training rows from 1; a row of an evaluation takes the number of the training row before it."""
    training = [_row_ids(table, None) for table in tables if not table.is_evaluation]
    if not training or any(table.stride > 1 for table in tables):
        return [_row_ids(table, None).astype(np.int64) + 1 for table in tables]
    ordered = np.unique(np.concatenate(training))
    return [
        np.maximum(np.searchsorted(ordered, _row_ids(table, None), side="right").astype(np.int64), 1)
        for table in tables
    ]


def _whole_steps(column: Values) -> tuple[Steps, Steps | None]:
    """Return the steps and which rows have them; None for all rows."""
    with np.errstate(invalid="ignore"):
        whole = (np.abs(column) <= _LARGEST_STEP) & (column == np.floor(column))
    if whole.all():
        return column.astype(np.int64), None
    take = np.flatnonzero(whole)
    return column[take].astype(np.int64), take


def _restarts(steps: list[Steps], rows: list[npt.NDArray[np.uint64]]) -> list[tuple[int, int]]:
    """Return ``(row, step)`` for each place where the run went back and went on from there.

    A row that falls below the one before it in its table is a restart when its step was logged before, or when the
    next row stays below as well; anything else is a row that was written late. The first such rows of other tables
    belong to the same restart.
    """
    falls: list[tuple[int, int, int]] = []
    for table_steps, table_rows in zip(steps, rows, strict=True):
        at = np.flatnonzero(table_steps[1:] < table_steps[:-1]) + 1
        if not len(at):
            continue
        _, first = np.unique(table_steps, return_index=True)
        logged_first = np.zeros(len(table_steps), dtype=bool)
        logged_first[first] = True
        following = table_steps[np.minimum(at + 1, len(table_steps) - 1)]
        stays = (at + 1 < len(table_steps)) & (following < table_steps[at - 1])
        at = at[~logged_first[at] | stays]
        falls.extend(zip(table_rows[at].tolist(), table_steps[at].tolist(), table_rows[at - 1].tolist(), strict=True))
    events: list[tuple[int, int]] = []
    for row, step, before in sorted(falls):
        if events and before < events[-1][0]:
            events[-1] = events[-1][0], min(step, events[-1][1])
        else:
            events.append((row, step))
    return events


def _current(steps: Steps, rows: npt.NDArray[np.uint64], events: list[tuple[int, int]]) -> Steps | None:
    """Return the positions of the rows that no later restart supersedes; None for all."""
    if not events or not len(steps):
        return None
    starts = np.array([row for row, _ in events], dtype=np.uint64)
    lowest = np.minimum.accumulate(np.array([step for _, step in events], dtype=np.int64)[::-1])[::-1]
    limits = np.append(lowest, np.iinfo(np.int64).max)[np.searchsorted(starts, rows, side="right")]
    return np.flatnonzero(steps < limits)


def _last_of_each(steps: Steps) -> Steps:
    """Return the positions of the last row of each step, in rising order of steps."""
    order = np.argsort(steps, kind="stable")
    ordered = steps[order]
    last: Steps = order[np.append(ordered[1:] != ordered[:-1], True)]
    return last


def _fill(run: Run, placed: list[_Placed], step_key: str | None) -> dict[str, str]:
    """Make a series of each key; return original → key."""
    kinds: dict[str, set[int]] = {}
    for kind, part in enumerate(placed):
        for key in part.table.keys:
            if key != step_key:
                kinds.setdefault(key, set()).add(kind)
    names = canonical_names(kinds)
    sources: dict[str, list[tuple[_Placed, str]]] = {}
    for key, name in names.items():
        sources.setdefault(name, []).extend((placed[kind], key) for kind in sorted(kinds[key]))
    for name, parts in sources.items():
        run.series[name] = _series(name, parts)
    run.skipped[REPEATED] += sum(
        int((2 * part.replaced >= _value_keys(part.table)).sum()) for part in placed if part.replaced is not None
    )
    return names


def _value_keys(table: Table) -> int:
    return sum(map(is_measurement, table.keys))


def _series(name: str, parts: list[tuple[_Placed, str]]) -> Series:
    """Join the values of a key from all tables that have it; of one step the last row of the log wins."""
    if len(parts) == 1:
        part, key = parts[0]
        return Series.of(name, part.steps, part.values(key))
    steps = np.concatenate([part.steps for part, _ in parts])
    rows = np.concatenate([part.rows for part, _ in parts])
    values = np.concatenate([part.values(key) for part, key in parts])
    order = np.lexsort((rows, steps))
    ordered = steps[order]
    last = np.append(ordered[1:] != ordered[:-1], True)
    replaced, offset = order[~last], 0
    if len(replaced):
        for part, key in parts:
            inside = replaced[(replaced >= offset) & (replaced < offset + len(part.steps))]
            if is_measurement(key):
                part.count_replaced(inside - offset)
            offset += len(part.steps)
    return Series.of(name, ordered[last], values[order[last]])
