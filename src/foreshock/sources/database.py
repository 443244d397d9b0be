"""SQLite databases of experiment trackers. One holds several runs; ``mlflow.db#RUN`` names one of them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from foreshock.errors import ReadError
from foreshock.run import Run
from foreshock.sources import compressed, mlflow, trackio
from foreshock.sources.rows import Rows

_MAGIC = b"SQLite format 3\0"
_MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class Schema:
    """What a tracker keeps in its tables: which runs there are (id and name of each), and the rows of one."""

    name: str
    tables: frozenset[str]
    runs: Callable[[sqlite3.Connection], list[tuple[str, str]]]
    read_rows: Callable[[sqlite3.Connection, str], Rows]


SCHEMAS = (
    Schema("MLflow database", frozenset({"runs", "experiments", "metrics"}), mlflow.runs, mlflow.read_rows),
    Schema("Trackio database", frozenset({"configs", "metrics"}), trackio.runs, trackio.read_rows),
)
FORMAT = " or ".join(schema.name for schema in SCHEMAS)


def looks_like(start: bytes) -> bool:
    """Say whether this is the header of an SQLite database."""
    return start.startswith(_MAGIC)


def run_in(place: Path) -> tuple[Path, str] | None:
    """Split ``FILE#RUN``; None when that itself is a file, or the part before a ``#`` is none."""
    text = str(place)
    marks = [] if place.exists() else [at for at, letter in enumerate(text) if letter == "#"]
    return next(((Path(text[:at]), text[at + 1 :]) for at in marks if Path(text[:at]).is_file()), None)


def run_paths(path: Path) -> list[Path]:
    """Return ``FILE#RUN`` for each run.

    Raises:
        ReadError: the file is no database of a known tracker.
    """
    with _opened(path) as (database, schema):
        return [Path(f"{path}#{run}") for run, _ in _runs(schema, database)]


def read(path: Path, run: str | None = None) -> Run:
    """Read the run with this id, or the only one with this name; None for the only run that there is.

    Raises:
        ReadError: the file is no database of a known tracker, or holds no such run, or several.
    """
    with _opened(path) as (database, schema):
        runs = _runs(schema, database)
        chosen = [found for found in runs if run in (None, found[0])] or [
            found for found in runs if run in (found[1], found[1].rpartition("/")[2])
        ]
        if len(chosen) != 1:
            raise ReadError(_which(path, run, chosen or runs))
        rows = schema.read_rows(database, chosen[0][0])
    if not rows.count:
        raise ReadError(f"{str(path)!r} holds no number of the run {chosen[0][0]!r}.")
    found = rows.run(Path(f"{path}#{chosen[0][0]}"), schema.name)
    found.identity = {**found.identity, "name": chosen[0][1]}
    return found


def _runs(schema: Schema, database: sqlite3.Connection) -> list[tuple[str, str]]:
    return [(str(run), str(name)) for run, name in schema.runs(database)]


def _which(path: Path, run: str | None, runs: list[tuple[str, str]]) -> str:
    listed = ", ".join(f"'{path}#{key}' ({name})" for key, name in runs[:_MOST_LISTED])
    more = f", and {len(runs) - _MOST_LISTED} more" if len(runs) > _MOST_LISTED else ""
    asked = "" if run is None else f", and {run!r} is not the id or the name of exactly one"
    return f"{str(path)!r} holds {len(runs)} runs{asked}. Pass one of: {listed}{more}."


@contextmanager
def _opened(path: Path) -> Iterator[tuple[sqlite3.Connection, Schema]]:
    """Open a database for reading, whatever is in it; every fault of SQLite within is a ReadError."""
    try:
        with closing(sqlite3.connect(_address(path), uri=True)) as database:
            database.text_factory = lambda text: text.decode("utf-8", "replace")
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            schema = next((schema for schema in SCHEMAS if schema.tables <= tables), None)
            if schema is None:
                listed = ", ".join(sorted(map(str, tables))[:8]) or "none"
                raise ReadError(f"{str(path)!r} is an SQLite database of no known tracker; its tables are: {listed}.")
            yield database, schema
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second when a damaged name stands in SQLite's message
        raise ReadError(
            f"{str(path)!r} cannot be read as an SQLite database ({error}). Pass a whole, uncompressed one."
        ) from error


def _address(path: Path) -> str:
    """Return how to open a database without writing beside it.

    SQLite makes two more files to read one with a write-ahead log, unless told that nobody else has it open.
    """
    has_log = compressed.head(path, Counter(), 19)[18:] == b"\2"
    is_at_rest = has_log and not Path(f"{path}-wal").exists()
    return f"{path.absolute().as_uri()}?{'immutable=1' if is_at_rest else 'mode=ro'}"
