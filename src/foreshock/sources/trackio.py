"""Trackio: a database a project, with a row of JSON a call of ``log``."""

from __future__ import annotations

import sqlite3

from foreshock.sources import compressed
from foreshock.sources.jsonl import decode_line
from foreshock.sources.rows import Rows


def runs(database: sqlite3.Connection) -> list[tuple[str, str]]:
    """Return id and name of the runs, oldest first."""
    run = _run_column(database)
    return database.execute(f"SELECT {run}, max(run_name) FROM metrics GROUP BY {run} ORDER BY min(rowid)").fetchall()


def read_rows(database: sqlite3.Connection, run: str) -> Rows:
    """Read the history of a run."""
    rows = Rows()
    for step, line in database.execute(
        f"SELECT step, metrics FROM metrics WHERE {_run_column(database)} = ? ORDER BY rowid", (run,)
    ):
        row = decode_line(line if isinstance(line, bytes) else str(line).encode())
        if row is None:
            rows.skipped[compressed.TORN] += 1
        else:
            rows.add({"_step": step, **row})
    return rows


def _run_column(database: sqlite3.Connection) -> str:
    """Return the column that tells runs apart; early versions knew a run by its name alone."""
    columns = {column[1] for column in database.execute("PRAGMA table_info(metrics)")}
    return "run_id" if "run_id" in columns else "run_name"
