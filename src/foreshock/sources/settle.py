"""From the tables of a log to the series of a run: its steps, its restarts and its repetitions."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from foreshock.run import Run, Series
from foreshock.sources.keys import STEP_KEYS, canonical_names, is_measurement, is_step
from foreshock.sources.tables import Table, Values

NO_STEP = "rows without a step"
SUPERSEDED = "rows superseded by a resume"
REPEATED = "rows of a repeated step"

_LARGEST_STEP = 2.0**53

Steps = npt.NDArray[np.int64]


def settle(tables: list[Table], run: Run) -> tuple[str | None, dict[str, str]]:
    """Make the series of a run; return its step key, None when the log has no step, and ``{original key: key}``.

    What is left out is counted in ``run.skipped``.
    """
    step_key = _step_key(tables)
    return step_key, _fill(run, _placed(tables, step_key, run), step_key)


def without_summaries(tables: list[Table]) -> tuple[list[Table], dict[str, float]]:
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
    begun_again = [row for row, step in events if step <= min(int(steps.min()) for _, steps, _ in found if len(steps))]
    if begun_again:
        run.notices["begun_again"] = (
            f"After {begun_again[-1]} rows the steps begin again: what was logged before is taken as superseded. "
            "If the run went on and its counter alone began again, split the log there."
        )
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
