"""MLflow: a run's folder in a file store (``mlruns/EXPERIMENT/RUN``), and the tables of a database.

Both hold single values with a time and a step; values of one step that follow each other in time are one row.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed
from foreshock.sources.rows import Rows

FORMAT = "MLflow run"
SYSTEM = "system metrics, whose steps count samples"

_SYSTEM_PREFIX = "system/"


def is_run(folder: Path) -> bool:
    """Say whether a folder is that of a run in a file store."""
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir()


def read_folder(folder: Path) -> Run:
    """Read a run of a file store: a file a key, ``time value step`` a line.

    Raises:
        ReadError: a file cannot be opened, or none holds a value.
    """
    rows = Rows()
    rows.add_points(_in_time(folder / "metrics", rows))
    if not rows.count:
        raise ReadError(f"{str(folder)!r} is the folder of an MLflow run without metrics.")
    return rows.run(folder, FORMAT)


def runs(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return id and ``experiment/name`` of the runs that hold metrics and were not deleted, oldest first."""
    return database.execute(
        "SELECT run_uuid, coalesce(experiments.name, '') || '/' || coalesce(runs.name, '') "
        "FROM runs LEFT JOIN experiments USING (experiment_id) "
        "WHERE runs.lifecycle_stage IS NOT 'deleted' "
        "AND EXISTS (SELECT 1 FROM metrics WHERE metrics.run_uuid = runs.run_uuid) ORDER BY start_time"
    ).fetchall()


def read_rows(database: sqlite3.Connection, run: str) -> Rows:
    """Read the metrics of a run."""
    rows = Rows()
    found = database.execute(
        "SELECT step, key, value, is_nan FROM metrics WHERE run_uuid = ? ORDER BY timestamp, step", (run,)
    )
    rows.add_points(_finite_or_not(found, rows))
    return rows


def _finite_or_not(found: sqlite3.Cursor, rows: Rows) -> Iterator[tuple[Any, Any, Any]]:
    """Undo what the database cannot hold: MLflow writes NaN as 0 with a mark, infinity as the largest number."""
    for step, key, value, is_nan in found:
        if str(key).startswith(_SYSTEM_PREFIX):
            rows.skipped[SYSTEM] += 1
        elif is_nan:
            yield step, key, math.nan
        elif isinstance(value, float) and abs(value) == sys.float_info.max:
            yield step, key, math.copysign(math.inf, value)
        else:
            yield step, key, value


def _in_time(folder: Path, rows: Rows) -> Iterator[tuple[int, str, float]]:
    """Yield the values of all keys in the order in which they were logged, so that a resume is seen as one."""
    points: list[tuple[int, int, str, float]] = []
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = file.relative_to(folder).as_posix()
        for line in compressed.lines(file, rows.skipped):
            parts = line.split()
            if name.startswith(_SYSTEM_PREFIX):
                rows.skipped[SYSTEM] += 1
                continue
            try:
                points.append((int(parts[0]), int(parts[2]), name, float(parts[1])))
            except (ValueError, IndexError):
                rows.skipped[compressed.TORN] += 1
    points.sort(key=itemgetter(0, 1))
    return ((step, name, value) for _, step, name, value in points)
